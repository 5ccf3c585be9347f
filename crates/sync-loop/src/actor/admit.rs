//! Admission in the loop: facts for the decision, and what follows from it.

use std::sync::Arc;

use windlass_actors::{AllocationScope, ResourcesAllocated, SourcesReady};
use windlass_node_rules::admission::{AdmissionPolicy, Pressure, Rejection};
use windlass_node_rules::preemption::{PREEMPTED, PreemptionPlan};
use windlass_status::PodStatusEntry;
use windlass_timelines::{RecordKey, RecordKind, RecordOutcome};
use windlass_types::corev1::{Node, PodStatus};
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::view::{Blocker, EventType, PodWorkerState};
use windlass_types::{Phase, PodExt, PodOp, PodUid, PodUpdate, Reason, SharedPod};

use super::SyncLoop;
use crate::admissions::{
    Admission, AdmissionContext, CheckpointChange, Decision, EndedVictim, take_override,
};
use crate::desired::DesiredPods;
use crate::dispatch::Dispatch;
use crate::resizes::RetryTrigger;

impl SyncLoop {
    pub(super) fn config(&mut self, mut update: PodUpdate) {
        match update.op {
            // mostly the echo of a status
            PodOp::Reconcile => tracing::debug!(%update, "config"),
            _ => tracing::info!(%update, "config"),
        }
        self.gauges = None;
        let restored = update.op == PodOp::Restore;
        if restored {
            for pod in &mut update.pods {
                let termination = take_override(pod);
                let termination = termination.filter(|_| !mutated(Mutation::EvictionForgotten));
                if let Some(termination) = termination {
                    self.admissions.restore_override(pod.uid(), termination);
                }
            }
        }
        let op = update.op;
        if op == PodOp::Add {
            self.count_restarted_pods(&update.pods);
        }
        let before = update.pods.iter().map(|pod| {
            let uid = pod.uid();
            let live = self.desired.live(&uid).cloned();
            (uid, live)
        });
        let before: Vec<_> = before.collect();
        let mut trigger = None;
        for dispatch in self.desired.apply(update) {
            trigger = match dispatch {
                Dispatch::Remove(_) => Some(RetryTrigger::PodsRemoved),
                Dispatch::Terminate(_) => Some(RetryTrigger::PodTerminated),
                _ => trigger,
            };
            self.admit(dispatch, restored);
        }
        for (uid, live) in before {
            trigger = self.queue_resize(op, &uid, live.as_ref()).or(trigger);
        }
        let ready = SourcesReady(self.desired.sources_ready(&self.deps.sources));
        let became_ready = self
            .deps
            .sources_ready
            .send_if_modified(|known| std::mem::replace(known, ready) != ready);
        let trigger = trigger.or(became_ready.then_some(RetryTrigger::PodsAdded));
        if let Some(trigger) = trigger {
            self.retry_resizes(trigger);
        }
    }

    /// Counts the pods that start again after the removal of a pod with their UID, which has its
    /// worker until it has terminated (`kubelet_restarted_pods_total`).
    fn count_restarted_pods(&self, added: &[SharedPod]) {
        for pod in added {
            let uid = pod.uid();
            let previous = self.deps.status_store.get(&uid);
            if self.desired.live(&uid).is_none() && previous.is_some_and(|it| it.has_worker) {
                let label = if pod.is_static() { "true" } else { "" };
                let restarted = &self.deps.metrics.workers.restarted_pods;
                restarted.with_label_values(&[label]).inc();
            }
        }
    }

    /// Admits the pod of a dispatch and updates its worker.
    pub(super) fn admit(&mut self, dispatch: Dispatch, restored: bool) {
        let mut runs = false;
        match &dispatch {
            Dispatch::Run(pod) => {
                let observed = self.deps.cache.get(&pod.uid());
                runs = observed.is_some_and(|observed| !observed.is_empty());
            }
            // no worker removes it
            Dispatch::Remove(uid)
                if self.admissions.is_waiting(uid) && !self.has_active_worker(uid) =>
            {
                self.deps.status_store.remove(uid);
            }
            _ => {}
        }
        let allocating = Some(dispatch.uid()).filter(|uid| self.admissions.is_allocating(uid));
        let facts = self.facts();
        let context = AdmissionContext {
            restored,
            runs,
            ..facts.context(&self.desired)
        };
        let admission = self.admissions.admit_dispatch(dispatch, context);
        self.execute(admission);
        if let Some(uid) = allocating.filter(|uid| !self.admissions.is_allocating(uid)) {
            self.deps.admission.allocations.release(uid);
        }
    }

    /// True if a previous pod with this UID, as static pods have, still has its worker.
    fn has_active_worker(&self, uid: &PodUid) -> bool {
        let entry = self.deps.status_store.get(uid);
        entry.is_some_and(|entry| entry.is_active())
    }

    /// Runs or rejects a pod that waited for its resources, or shows what it waits for.
    pub(super) fn allocation(&mut self, uid: PodUid, answer: ResourcesAllocated) {
        let admission = match answer {
            ResourcesAllocated::Done => self.admissions.allocated(&uid),
            ResourcesAllocated::Rejected(reason, message) => {
                let rejection = Rejection::new(&reason, message);
                self.admissions.not_allocated(&uid, rejection)
            }
            ResourcesAllocated::Waiting(message) => {
                if let Some(pod) = self.admissions.allocating(&uid) {
                    self.publish_waiting(pod, Reason::WaitingForResources, message);
                }
                return;
            }
        };
        match admission {
            Some(admission) => {
                self.execute(admission);
                // its resize waited for its admission
                if self.desired.is_resized(&uid) {
                    self.retry_resizes(RetryTrigger::PodsAdded);
                }
            }
            // the health of its devices changed
            None => self.dispatch(Dispatch::Sync(uid)),
        }
    }

    /// Runs the waiting pods whose victims have ended.
    pub(super) fn continue_preemptions(&mut self) {
        if !self.admissions.is_preempting() {
            return;
        }
        let (statuses, cache) = (&self.deps.status_store, &self.deps.cache);
        let has_ended = |uid: &PodUid| {
            let stopped =
                |entry: PodStatusEntry| entry.worker_state == PodWorkerState::TerminatedPod;
            statuses.get(uid).is_none_or(stopped)
                && !cache.get(uid).is_some_and(|observed| observed.is_alive())
        };
        let ended = self.admissions.end_victims(has_ended);
        let has_ended = !ended.is_empty();
        for victim in ended {
            self.report_end(victim);
        }
        let facts = self.facts();
        let context = facts.context(&self.desired);
        for admission in self.admissions.readmit(context) {
            self.execute(admission);
        }
        if has_ended {
            self.retry_resizes(RetryTrigger::PodTerminated);
        }
    }

    pub(super) fn facts(&self) -> AdmissionFacts {
        let deps = &self.deps.admission;
        let seen = deps.node.borrow().0.clone();
        AdmissionFacts {
            node: seen.unwrap_or_else(|| Arc::clone(&deps.initial_node)),
            policy: Arc::clone(&deps.admission_policy),
            scope: Arc::clone(&deps.allocations.scope.borrow()),
            // no condition is true before the node was read
            pressure: deps.pressure.borrow().0.unwrap_or_default(),
            shutting_down: deps.shutdown.borrow().shutting_down,
            strict_groups: self.strict_groups,
        }
    }

    fn execute(&self, admission: Admission) {
        match &admission.decided {
            Some((pod, Decision::Allocate)) => {
                self.deps.admission.allocations.allocate(pod);
            }
            Some((pod, Decision::RejectAfterResources(rejection))) => {
                let Rejection {
                    reason, message, ..
                } = rejection;
                self.deps.admission.allocations.reject(pod, reason, message);
            }
            Some((pod, Decision::Admit)) => self.record_decision(pod, "admit", Ok(())),
            Some((pod, Decision::Reject(rejection))) => self.report_rejection(pod, rejection),
            Some((pod, Decision::Preempt(plan))) => self.report_preemption(pod, plan),
            Some((pod, Decision::Wait)) => self.report_waiting(pod),
            None => {}
        }
        self.dispatch_all(admission.dispatches);
    }

    pub(super) fn record(&self, dispatch: &Dispatch) {
        let deps = &self.deps.admission;
        let checkpoint = deps.checkpoint.as_ref();
        let allocated = deps.resource_files.as_ref().map(|files| &files.allocated);
        if checkpoint.is_none() && allocated.is_none() {
            return;
        }
        match self.admissions.checkpoint_change(dispatch, &self.desired) {
            CheckpointChange::Record(admitted) => {
                allocated.inspect(|it| it.record(&admitted.pod.uid(), &admitted.allocated));
                checkpoint.inspect(|it| it.record(&admitted));
            }
            CheckpointChange::RecordResources(uid, resources) => {
                allocated.inspect(|it| it.record(&uid, &resources));
            }
            CheckpointChange::Forget(uid) => {
                allocated.inspect(|it| it.forget(&uid));
                checkpoint.inspect(|it| it.forget(&uid));
            }
            CheckpointChange::None => {}
        }
    }

    pub(super) fn record_decision(
        &self,
        pod: &SharedPod,
        name: &'static str,
        result: Result<(), &String>,
    ) {
        let key = RecordKey::new(RecordKind::Admission, name);
        let outcome = RecordOutcome::from_result(&result);
        let timelines = &self.deps.timelines;
        timelines.record_instant(&pod.uid(), key, outcome);
    }

    fn report_rejection(&self, pod: &SharedPod, rejection: &Rejection) {
        self.record_decision(pod, "admit", Err(&rejection.message));
        let rejections = &self.deps.metrics.sync_loop.admission_rejections;
        rejections.with_label_values(&[&rejection.reason]).inc();
        self.deps.admission.events.record(
            pod,
            None,
            EventType::Warning,
            rejection.event_reason(),
            &rejection.message,
        );
    }

    fn report_preemption(&self, pod: &SharedPod, plan: &PreemptionPlan) {
        self.report_victims(pod, plan);
        self.report_waiting(pod);
    }

    pub(super) fn report_victims(&self, pod: &SharedPod, plan: &PreemptionPlan) {
        tracing::info!(pod = %pod.full_name(), %plan, "preempting pods");
        for victim in plan.victims.iter().filter_map(|uid| self.desired.get(uid)) {
            let (kind, reason) = (EventType::Warning, Reason::Preempting);
            let events = &self.deps.admission.events;
            events.record(victim, None, kind, reason, PREEMPTED);
        }
    }

    fn report_waiting(&self, pod: &SharedPod) {
        self.record_decision(pod, "wait", Ok(()));
        let victims = self.admissions.victims().map(|uid| {
            let pod = self.desired.get(uid);
            pod.map_or_else(|| uid.to_string(), |pod| pod.full_name().to_string())
        });
        let victims: Vec<String> = victims.collect();
        let message = format!(
            "waiting for the end of preempted pods: {}",
            victims.join(", ")
        );
        self.publish_waiting(pod, Reason::Preempting, message);
    }

    /// Publishes a pod that has no worker yet, with its blocker.
    fn publish_waiting(&self, pod: &SharedPod, reason: Reason, message: String) {
        if self.has_active_worker(&pod.uid()) {
            return;
        }
        let status = PodStatus {
            phase: Some(Phase::Pending.as_str().to_owned()),
            ..PodStatus::default()
        };
        self.deps.status_store.publish(PodStatusEntry {
            status: Arc::new(status),
            blocker: Some(Blocker {
                reason,
                container: None,
                message,
                probe: None,
                since: self.deps.clock.now(),
                next_retry: None,
            }),
            ..PodStatusEntry::new(SharedPod::clone(pod))
        });
    }

    fn report_end(&self, victim: EndedVictim) {
        let EndedVictim { uid, signal, ended } = victim;
        if !ended {
            tracing::warn!(pod = %uid, "preempted pod has not ended in time; not waiting for it");
            return;
        }
        tracing::info!(pod = %uid, "preempted pod ended");
        if let Some(signal) = signal {
            let preemptions = &self.deps.metrics.sync_loop.preemptions;
            preemptions.with_label_values(&[&signal]).inc();
        }
    }
}

/// What the loop read for an admission.
pub(super) struct AdmissionFacts {
    node: Arc<Node>,
    policy: Arc<AdmissionPolicy>,
    scope: Arc<AllocationScope>,
    pressure: Pressure,
    shutting_down: bool,
    strict_groups: Option<bool>,
}

impl AdmissionFacts {
    pub(super) fn context<'a>(&'a self, desired: &'a DesiredPods) -> AdmissionContext<'a> {
        AdmissionContext {
            node: &self.node,
            policy: &self.policy,
            desired,
            strict_groups: self.strict_groups,
            pressure: self.pressure,
            shutting_down: self.shutting_down,
            restored: false,
            runs: false,
            scope: &self.scope,
        }
    }
}
