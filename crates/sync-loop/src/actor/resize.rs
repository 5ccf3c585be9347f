//! Resizes in the loop: what queues and retries them, and what follows from a decision.

use windlass_node_rules::resize::{
    PendingReason, PendingResize, ResizeDecision, required_features, resize_changes,
};
use windlass_pod_status::status::pod_sizes::resize_event;
use windlass_status::RequestedSizes;
use windlass_types::view::EventType;
use windlass_types::{AllocatedResources, PodExt, PodOp, PodUid, Reason, SharedPod, Timestamp};

use super::SyncLoop;
use crate::dispatch::Dispatch;
use crate::resizes::RetryTrigger;

impl SyncLoop {
    /// Queues the resizes that an update of this pod requests, from its previous version.
    pub(super) fn queue_resize(
        &mut self,
        op: PodOp,
        uid: &PodUid,
        before: Option<&SharedPod>,
    ) -> Option<RetryTrigger> {
        let live = self.desired.live(uid)?;
        if op == PodOp::Reconcile {
            let freed = self.admissions.count_again(self.desired.get(uid)?);
            return freed.then_some(RetryTrigger::PodResized);
        }
        // a resize of the checkpoint waits for the API server
        let confirmed = before.is_some_and(|before| before.is_restored() && !live.is_restored());
        let changed = |before: &&SharedPod| {
            AllocatedResources::from_pod(before) != AllocatedResources::from_pod(live)
        };
        let changed_from = before.filter(changed);
        if before.is_some() && changed_from.is_none() && !confirmed {
            return None;
        }
        if let Some(before) = changed_from {
            self.check_features(before, live);
            let policy = self.deps.admission.admission_policy.resize;
            for change in resize_changes(before, live, policy) {
                let labels = [change.resource, change.requirement, change.operation];
                let requested = &self.deps.metrics.sync_loop.requested_resizes;
                requested.with_label_values(&labels).inc();
            }
        }
        let updated = changed_from.map(|_| RetryTrigger::PodUpdated);
        if !self.desired.is_resized(uid) {
            self.resizes.remove(uid);
            return updated;
        }
        self.resizes.push(uid.clone());
        updated.or(Some(RetryTrigger::PodsAdded))
    }

    /// Reports changed sizes that require features of another node.
    fn check_features(&self, before: &SharedPod, live: &SharedPod) {
        let deps = &self.deps.admission;
        let Some(declared) = &deps.admission_policy.declared_features else {
            return;
        };
        let mut missing = required_features(before, live);
        missing.retain(|name| !declared.contains(*name));
        if missing.is_empty() {
            return;
        }
        let list = missing.join(", ");
        let message = format!("Pod requires node features that are not available: {list}");
        let reason = Reason::FailedNodeDeclaredFeaturesCheck;
        let (events, kind) = (&deps.events, EventType::Warning);
        events.record(live, None, kind, reason, &message);
    }

    /// Retries the queued resizes.
    pub(super) fn retry_resizes(&mut self, trigger: RetryTrigger) {
        let ready = self.desired.sources_ready(&self.deps.sources);
        for uid in self.resizes.begin(&self.desired, ready) {
            self.resize(&uid, trigger);
        }
        self.publish_resizes();
    }

    /// Counts a sync tick for the periodic retry.
    pub(super) fn tick_resizes(&mut self) {
        if self.resizes.tick() {
            self.retry_resizes(RetryTrigger::Periodic);
        }
    }

    fn resize(&mut self, uid: &PodUid, trigger: RetryTrigger) {
        let (Some(live), Some(allocated)) = (self.desired.live(uid), self.desired.get(uid)) else {
            return;
        };
        let (live, allocated) = (SharedPod::clone(live), SharedPod::clone(allocated));
        // the API server may have another spec, and what a previous agent run reported
        if self.admissions.is_waiting(uid) || live.is_restored() {
            return;
        }
        if live.metadata.deletion_timestamp.is_some() || !self.admissions.can_resize(uid) {
            self.resizes.remove(uid);
            return;
        }
        let facts = self.facts();
        let context = facts.context(&self.desired);
        let resize = self.admissions.resize(&live, &allocated, context);
        tracing::debug!(pod = %live.full_name(), decision = %resize.decision,
            trigger = trigger.as_str(), "resize");
        if let Some(plan) = &resize.preemption {
            self.report_victims(&live, plan);
        }
        self.dispatch_all(resize.dispatches);
        let pending = PendingResize::from_pod(&allocated);
        match resize.decision {
            ResizeDecision::Unchanged => self.resizes.remove(uid),
            ResizeDecision::Allocate => {
                let is_deferred =
                    |pending: PendingResize| pending.reason == PendingReason::Deferred;
                if pending.is_some_and(is_deferred) {
                    let accepted = &self.deps.metrics.sync_loop.deferred_accepted_resizes;
                    accepted.with_label_values(&[trigger.as_str()]).inc();
                }
                self.allocate(uid);
            }
            ResizeDecision::Deferred(rejection) => {
                let new = self.pending(&live, PendingReason::Deferred, rejection.message);
                self.defer(&live, pending, new, &rejection.reason);
            }
            ResizeDecision::Infeasible(infeasible) => {
                let families = &self.deps.metrics.sync_loop.infeasible_resizes;
                families.with_label_values(&[infeasible.detail]).inc();
                self.resizes.remove(uid);
                let new = self.pending(&live, PendingReason::Infeasible, infeasible.message);
                self.defer(&live, pending, new, PendingReason::Infeasible.as_str());
            }
        }
    }

    fn allocate(&mut self, uid: &PodUid) {
        self.resizes.remove(uid);
        let Some(pod) = self.desired.allocate(uid) else {
            return;
        };
        tracing::info!(pod = %pod.full_name(), "resize allocated");
        self.record_decision(&pod, "resize", Ok(()));
        let text = resize_event("Pod resize started", &pod, pod.metadata.generation, "");
        let (events, kind) = (&self.deps.admission.events, EventType::Normal);
        events.record(&pod, None, kind, Reason::ResizeStarted, &text);
        self.dispatch_all([Dispatch::Run(pod)]);
    }

    fn pending(&self, live: &SharedPod, reason: PendingReason, message: String) -> PendingResize {
        let now = self.deps.clock.now();
        PendingResize {
            reason,
            message,
            generation: live.metadata.generation,
            // as in a status
            since: Timestamp::from_second(now.as_second()).unwrap_or(now),
        }
    }

    /// Reports a resize that is not allocated, with an event if it is new.
    fn defer(
        &mut self,
        live: &SharedPod,
        before: Option<PendingResize>,
        pending: PendingResize,
        cause: &str,
    ) {
        let (pending, is_new) = pending.following(before.as_ref());
        if is_new {
            let message = &pending.message;
            tracing::info!(pod = %live.full_name(), cause, message, "resize not allocated");
            self.record_decision(live, "resize", Err(message));
            let reason = match pending.reason {
                PendingReason::Deferred => Reason::ResizeDeferred,
                PendingReason::Infeasible => Reason::ResizeInfeasible,
            };
            let title = format!("Pod resize {cause}");
            let text = resize_event(&title, live, pending.generation, message);
            let events = &self.deps.admission.events;
            events.record(live, None, EventType::Warning, reason, &text);
        }
        if let Some(pod) = self.desired.set_pending(&live.uid(), &pending) {
            self.dispatch_all([Dispatch::Run(pod)]);
        }
    }

    pub(super) fn dispatch_all(&self, dispatches: impl IntoIterator<Item = Dispatch>) {
        for dispatch in dispatches {
            self.record(&dispatch);
            self.dispatch(dispatch);
        }
    }

    /// Publishes the number of resizes that are not allocated, and what they request.
    pub(super) fn publish_resizes(&self) {
        let pending: Vec<_> = self.desired.pending_resizes().collect();
        for reason in [PendingReason::Deferred, PendingReason::Infeasible] {
            let count = pending.iter().filter(|(_, r)| *r == reason).count();
            let label = reason.as_str().to_ascii_lowercase();
            let gauges = &self.deps.metrics.sync_loop.pending_resizes;
            gauges.with_label_values(&[label]).set(count as f64);
        }
        let wait = std::time::Duration::from_secs(u64::from(self.resizes.seconds()));
        let next_retry = self.deps.clock.now().saturating_add(wait).ok();
        let requested = pending.iter().map(|(live, reason)| {
            let is_retried = *reason == PendingReason::Deferred;
            let sizes = RequestedSizes {
                resources: AllocatedResources::from_pod(live),
                next_retry: next_retry.filter(|_| is_retried),
            };
            (live.uid(), sizes)
        });
        self.deps
            .status_store
            .publish_requested(requested.collect());
    }
}
