//! Builds the pod's status entry: status, blocker, start timings.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use windlass_actors::{PodWorkerState, ProbeTargets, RuntimeState};
use windlass_cri::HungCall;
use windlass_metrics::Metrics;
use windlass_pod_lifecycle::actions::DelayedRestart;
use windlass_pod_lifecycle::deadline::{DeadlineInput, is_past_deadline};
use windlass_pod_lifecycle::pod_worker::State;
use windlass_pod_status::status::{
    BlockerInput, Failures, PodSizes, StatusInput, blocker, generate_status,
};
use windlass_pod_status::timeline::start_outcome;
use windlass_runtime_config::unsupported::unsupported_fields;
use windlass_status::PodStatusEntry;
use windlass_types::corev1::PodStatus;
use windlass_types::view::{Blocker, StartTimings};
use windlass_types::{
    AllocatedResources, ContainerId, ObservedContainer, ObservedPod, Phase, PhaseOverride, Pod,
    PodExt, PodUid, Reason, SharedPod, Timestamp, names,
};

use super::WorkerDeps;
use super::ends::count_ends;
use super::jobs::SyncReport;
use super::resize::ResizeReport;

/// Result of a sync for the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncSummary {
    /// Time of the next sync at the latest.
    pub retry_at: Option<Timestamp>,
    /// The pod is in a terminal phase.
    pub terminal: bool,
}

/// Results of a pod so far.
#[derive(Debug)]
pub struct Report {
    pod: Option<SharedPod>,
    warnings: Vec<String>,
    observed: Arc<ObservedPod>,
    failures: Failures,
    backing_off: Vec<DelayedRestart>,
    status: Arc<PodStatus>,
    /// The status is that of the pod object.
    repeated: bool,
    blocker: Option<Blocker>,
    timings: StartTimings,
    stopping: Option<Blocker>,
    /// Containers that the agent stopped: an OOM kill before does not explain their exit.
    stopped: BTreeSet<ContainerId>,
    issues: Vec<String>,
    /// Why the pod is terminated; empty if all containers have exited.
    kill_reason: String,
    resize: ResizeReport,
    phase_override: Option<PhaseOverride>,
    next_sync: Option<Timestamp>,
    synced_once: bool,
    /// The end of the start was recorded: the pod was ready or terminal.
    started: bool,
    /// The pod was observed.
    is_observed: bool,
    created_at: Timestamp,
}

impl Report {
    /// Creates the report of a pod before its first sync; `None` for an orphaned pod, which has no
    /// entry.
    pub fn new(pod: Option<SharedPod>, now: Timestamp, metrics: &Metrics) -> Self {
        let mut this = Self {
            pod: None,
            warnings: Vec::new(),
            observed: Arc::default(),
            failures: Failures::new(),
            backing_off: Vec::new(),
            status: Arc::default(),
            repeated: true,
            blocker: None,
            timings: StartTimings::default(),
            stopping: None,
            stopped: BTreeSet::new(),
            issues: Vec::new(),
            kill_reason: String::new(),
            resize: ResizeReport::default(),
            phase_override: None,
            next_sync: None,
            synced_once: false,
            started: false,
            is_observed: false,
            created_at: now,
        };
        if let Some(pod) = pod {
            this.timings.seen = Some(seen(&pod).unwrap_or(now));
            this.resize = ResizeReport::from_previous_run(&pod, metrics);
            this.desired(pod);
        }
        this
    }

    /// Handles a changed desired pod. Newly allocated sizes are published immediately.
    pub(crate) fn updated(&mut self, pod: SharedPod, deps: &WorkerDeps) {
        let before = self.pod.replace(SharedPod::clone(&pod));
        self.desired(SharedPod::clone(&pod));
        let Some(before) = before else { return };
        let is_resized = self.resize.updated(&before, &pod, deps) && self.synced_once;
        // the checkpoint has an older status than the API server
        let is_confirmed = before.is_restored() && !pod.is_restored() && self.is_observed;
        if is_resized || is_confirmed {
            self.renew_status(&pod, deps, false, deps.clock.now());
        }
    }

    /// Handles a new or changed desired pod.
    pub fn desired(&mut self, pod: SharedPod) {
        let warnings = unsupported_fields(&pod);
        if warnings != self.warnings && !warnings.is_empty() {
            tracing::warn!(
                pod = %pod.full_name(),
                fields = warnings.join("; "),
                "pod uses fields that are not supported by this version"
            );
        }
        self.warnings = warnings;
        self.pod = Some(pod);
    }

    /// Records the start slot of the first sync.
    pub fn dispatched(&mut self, at: Timestamp, metrics: &Metrics) {
        if self.timings.dispatched.is_none() {
            self.timings.dispatched = Some(at);
            if let Some(waited) = seconds_between(self.timings.seen, at) {
                metrics.workers.start_duration.observe(waited);
            }
        }
    }

    /// Records an observation.
    pub fn observed(&mut self, observed: Arc<ObservedPod>) {
        self.observed = observed;
        self.is_observed = true;
        let (stopped, containers) = (&mut self.stopped, &self.observed.containers);
        stopped.retain(|id| containers.iter().any(|it| it.id == *id));
        let is_stopped = |it: &ObservedContainer| stopped.contains(&it.id);
        if containers.iter().any(is_stopped) {
            let containers = Arc::make_mut(&mut self.observed).containers.iter_mut();
            containers
                .filter(|it| is_stopped(it))
                .for_each(|it| it.oom_kills = None);
        }
    }

    /// Records that running containers are stopped.
    fn stopped(&mut self, is_stopped: impl Fn(&ContainerId) -> bool) {
        let running = self.observed.running().map(|it| &it.id);
        let stopped = running.filter(|id| is_stopped(id)).cloned();
        self.stopped.extend(stopped);
    }

    /// Records the observation at the start of a sync and updates the status, as upstream: an
    /// exited container may be removed when the sync ends.
    pub(crate) fn observed_before_sync(&mut self, observed: Arc<ObservedPod>, deps: &WorkerDeps) {
        self.observed(observed);
        if let Some(pod) = self.pod.clone().filter(|_| self.synced_once) {
            self.renew_status(&pod, deps, false, deps.clock.now());
        }
    }

    /// Records a cause of the termination. The first one stays, unless only a later one has a phase
    /// override.
    pub fn decided(&mut self, reason: String, phase_override: Option<PhaseOverride>) {
        let overrides = self.phase_override.is_none() && phase_override.is_some();
        if overrides || self.kill_reason.is_empty() {
            self.kill_reason = reason;
        }
        self.phase_override = self.phase_override.take().or(phase_override);
    }

    /// Records the termination of the pod.
    pub fn terminating(&mut self, grace: Duration, now: Timestamp) {
        let (grace, reason) = (grace.as_secs(), &self.kill_reason);
        let message = if reason.is_empty() {
            format!("all containers have exited; terminating the pod (grace period {grace} s)")
        } else {
            format!("{reason}; terminating the pod (grace period {grace} s)")
        };
        self.stopped(|_| true);
        let since = self.stopping.as_ref().map_or(now, |blocker| blocker.since);
        self.stopping = Some(Blocker {
            reason: Reason::Terminating,
            container: None,
            message,
            probe: None,
            since,
            next_retry: None,
        });
    }

    /// Handles the result of a sync.
    pub(crate) fn synced(
        &mut self,
        report: SyncReport,
        deps: &WorkerDeps,
        now: Timestamp,
    ) -> SyncSummary {
        self.synced_once = true;
        self.failures.clear();
        let mut retry_at = None;
        let mut resync_at = None;
        if let Some(outcome) = report.outcome {
            for failure in outcome.failures {
                let container = failure.container.unwrap_or_default();
                self.failures
                    .entry(container)
                    .or_insert((failure.reason, failure.message));
            }
            retry_at = outcome.retry_at;
            resync_at = outcome.resync_at;
            let actions = outcome.actions;
            self.stopped(|id| {
                let mut killed = actions.containers_to_kill.iter().map(|it| &it.id);
                actions.kill_pod || killed.any(|killed| killed == id)
            });
            self.backing_off = actions.backing_off;
            if let (Some(pod), Some((synced, result))) = (&self.pod, outcome.resized)
                && !outcome.cancelled
                && has_same_sizes(pod, &synced)
            {
                self.resize.resized(pod, result, deps);
            }
            self.take_timings(outcome.timings);
        }
        match report.observed {
            Ok(observed) => self.observed(observed),
            Err(error) => {
                retry_at = now.saturating_add(Duration::from_secs(1)).ok();
                let failure = (Reason::FailedSync, error.message);
                self.failures.entry(String::new()).or_insert(failure);
            }
        }
        self.next_sync = retry_at;
        let wake_at = retry_at.into_iter().chain(resync_at).min();
        if let Some(issues) = report.issues {
            self.issues = issues;
        }
        let Some(pod) = self.pod.clone() else {
            return SyncSummary {
                retry_at: wake_at,
                terminal: false,
            };
        };
        self.renew_status(&pod, deps, false, now);
        self.record_running(deps, now);
        // a pod with a pending failure is retried, whatever its containers' states
        let terminal = Phase::is_terminal_in(&self.status) && self.failures.is_empty();
        SyncSummary {
            retry_at: wake_at,
            terminal,
        }
    }

    /// Updates the status. Before the first observation the last known status is kept, so that
    /// running containers are not reported as lost.
    fn renew_status(&mut self, pod: &Pod, deps: &WorkerDeps, terminal: bool, now: Timestamp) {
        let known = pod.status.as_ref().filter(|status| status.phase.is_some());
        let known = known.filter(|_| !self.is_observed && !terminal);
        let status = known.cloned();
        let status = status.unwrap_or_else(|| self.generate(pod, deps, terminal, now));
        // terminations in the pod's initial status or first observation happened before
        if known.is_none() && self.status.phase.is_some() {
            count_ends(&self.status, &status, &deps.metrics);
        }
        self.status = Arc::new(status);
        self.repeated = known.is_some();
    }

    fn generate(&self, pod: &Pod, deps: &WorkerDeps, terminal: bool, now: Timestamp) -> PodStatus {
        let previous = (!self.repeated).then_some(&*self.status);
        let probe_results = deps.probes.results.get(&pod.uid());
        let cgroup = deps.runtime.cgroup_resources(&pod.uid());
        let sizes = PodSizes {
            in_progress: self.resize.in_progress(),
            cgroup: cgroup.as_ref(),
            ..PodSizes::default()
        };
        let mut status = generate_status(StatusInput {
            backing_off: &self.backing_off,
            previous,
            terminal,
            phase_override: self.phase_override.as_ref(),
            now,
            ..deps.status_input(pod, &self.observed, &probe_results, &self.failures, sizes)
        });
        deps.runtime.add_device_health(pod, &mut status);
        if let Some(claims) = &deps.claims {
            claims.add_health(pod, &mut status);
        }
        status
    }

    /// Records timings of the first start only.
    fn take_timings(&mut self, newer: StartTimings) {
        if self.timings.running.is_some() {
            return;
        }
        let mine = &mut self.timings;
        mine.pulling += newer.pulling;
        for (slot, value) in [
            (&mut mine.sandbox_ready, newer.sandbox_ready),
            (&mut mine.images_ready, newer.images_ready),
            (&mut mine.init_done, newer.init_done),
            (&mut mine.containers_started, newer.containers_started),
        ] {
            *slot = slot.take().or(value);
        }
    }

    fn record_running(&mut self, deps: &WorkerDeps, now: Timestamp) {
        if self.timings.running.is_some() || self.status.phase.as_deref() != Some("Running") {
            return;
        }
        self.timings.running = Some(now);
        // an adopted pod did not start now
        if self.timings.containers_started.is_some()
            && let Some(took) = seconds_between(self.timings.seen, now)
        {
            deps.metrics.workers.pod_start_duration.observe(took);
        }
    }

    /// Current probe targets; `None` before the first observation.
    pub fn probe_targets(&self, state: PodWorkerState) -> Option<ProbeTargets> {
        let pod = self.pod.clone().filter(|_| self.is_observed)?;
        let ip = self.status.pod_ip.as_deref();
        Some(ProbeTargets {
            pod,
            observed: Arc::clone(&self.observed),
            pod_ip: ip.and_then(|ip| ip.parse().ok()),
            state,
        })
    }

    /// True if the pod must fail because its deadline has passed; false once it has a phase
    /// override.
    pub fn is_past_deadline(&self, now: Timestamp) -> bool {
        let pod = self.pod.as_deref();
        let pod = pod.filter(|_| self.phase_override.is_none());
        pod.is_some_and(|pod| {
            is_past_deadline(DeadlineInput {
                pod,
                status: &self.status,
                observed: &self.observed,
                now,
            })
        })
    }

    /// Last published status.
    pub fn status(&self) -> Arc<PodStatus> {
        Arc::clone(&self.status)
    }

    /// Observation of that status; `None` before the first sync.
    pub fn known(&self) -> Option<Arc<ObservedPod>> {
        self.synced_once.then(|| Arc::clone(&self.observed))
    }

    /// Updates the status after a change of probe results.
    pub fn probed(&mut self, deps: &WorkerDeps) {
        if let Some(pod) = self.pod.clone().filter(|_| self.is_observed) {
            self.renew_status(&pod, deps, false, deps.clock.now());
        }
    }

    /// Publishes the status entry.
    pub fn publish(&mut self, phase: State, runtime: &RuntimeState, deps: &WorkerDeps) {
        let Some(pod) = self.pod.clone() else { return };
        let now = deps.clock.now();
        let worker_state = worker_state(phase);
        if let Some(end) = start_outcome(&self.status).filter(|_| !self.started) {
            self.started = true;
            // containers not started in this agent run were adopted
            match end.is_ok() && self.timings.containers_started.is_none() {
                true => deps.timelines.skip_start_trace(&pod.uid()),
                false => deps.timelines.started(&pod.uid(), end),
            }
        }
        if worker_state != PodWorkerState::SyncPod || !self.synced_once {
            // only now no container can run any more
            let terminal = worker_state == PodWorkerState::TerminatedPod;
            self.renew_status(&pod, deps, terminal, now);
        }
        self.blocker = self.find_blocker(&pod, worker_state, runtime, deps, now);
        deps.status_store.publish(PodStatusEntry {
            pod: SharedPod::clone(&pod),
            status: Arc::clone(&self.status),
            has_worker: true,
            worker_state,
            observed: self.is_observed || worker_state == PodWorkerState::TerminatedPod,
            released: phase == State::TerminatedPod { released: true },
            blocker: self.blocker.clone(),
            events: Vec::new(),
            timings: self.timings.clone(),
            issues: kept_objects_issue(deps, &pod)
                .into_iter()
                .chain(self.issues.iter().cloned())
                .collect(),
            unsupported_fields: self.warnings.clone(),
        });
    }

    fn find_blocker(
        &self,
        pod: &Pod,
        phase: PodWorkerState,
        runtime: &RuntimeState,
        deps: &WorkerDeps,
        now: Timestamp,
    ) -> Option<Blocker> {
        // a hung call causes the other problems, unless the pod has terminated
        let hung = deps.hung.for_pod(&pod.uid());
        if let Some(call) = hung
            .first()
            .filter(|_| phase != PodWorkerState::TerminatedPod)
        {
            return Some(hung_blocker(call));
        }
        if phase == PodWorkerState::TerminatingPod
            && let Some(stopping) = &self.stopping
        {
            return Some(stopping.clone());
        }
        let wait = |reason, message: String, next_retry| {
            let before = self
                .blocker
                .as_ref()
                .filter(|blocker| blocker.reason == reason);
            let since = before.map_or(now, |blocker| blocker.since);
            Some(Blocker {
                reason,
                container: None,
                message,
                probe: None,
                since,
                next_retry,
            })
        };
        // a terminated pod does not wait
        let waits = phase != PodWorkerState::TerminatedPod;
        if let Some(error) = runtime.runtime_error.as_ref().filter(|_| waits) {
            let next = now.saturating_add(Duration::from_secs(5)).ok();
            return wait(Reason::RuntimeNotReady, error.clone(), next);
        }
        if waits && !self.synced_once && self.timings.dispatched.is_none() {
            let capacity = deps.start_limiter.capacity();
            let message =
                format!("waiting for a start slot (limit: {capacity} concurrent pod starts)");
            let mut blocker = wait(Reason::WaitingForStartSlot, message, None)?;
            blocker.since = blocker.since.min(self.created_at);
            return Some(blocker);
        }
        let events = deps.status_store.events(&pod.uid());
        blocker(BlockerInput {
            pod,
            status: &self.status,
            failures: &self.failures,
            backing_off: &self.backing_off,
            events: &events,
            next_sync: self.next_sync,
            previous: self.blocker.as_ref(),
            now,
        })
    }
}

/// False if other sizes were allocated during the sync of `synced`.
fn has_same_sizes(pod: &SharedPod, synced: &SharedPod) -> bool {
    Arc::ptr_eq(pod, synced)
        || AllocatedResources::from_pod(pod) == AllocatedResources::from_pod(synced)
}

/// Blocker with the text of the event and the number of attempts.
fn hung_blocker(call: &HungCall) -> Blocker {
    let attempts = match call.attempts {
        0 | 1 => String::new(),
        attempts => format!(" ({attempts} attempts)"),
    };
    Blocker {
        reason: Reason::RuntimeCallHung,
        container: None,
        message: format!("{call}{attempts}"),
        probe: None,
        since: call.since,
        // the call is retried continuously
        next_retry: Some(call.since),
    }
}

/// The phase as others see it.
pub fn worker_state(phase: State) -> PodWorkerState {
    match phase {
        State::SyncPod => PodWorkerState::SyncPod,
        State::TerminatingPod { .. } => PodWorkerState::TerminatingPod,
        State::TerminatedPod { .. } => PodWorkerState::TerminatedPod,
    }
}

/// Publishes a pod that is blocked on the termination of another with the same full name.
pub(crate) fn publish_waiting(pod: &SharedPod, behind: &PodUid, deps: &WorkerDeps) {
    let now = deps.clock.now();
    let status = PodStatus {
        phase: Some("Pending".to_owned()),
        ..PodStatus::default()
    };
    deps.status_store.publish(PodStatusEntry {
        status: Arc::new(status),
        blocker: Some(Blocker {
            reason: Reason::WaitingForPodTermination,
            container: None,
            message: format!("waiting for the termination of pod {behind} with the same name"),
            probe: None,
            since: now,
            next_retry: None,
        }),
        timings: StartTimings {
            seen: seen(pod),
            ..StartTimings::default()
        },
        ..PodStatusEntry::new(Arc::clone(pod))
    });
}

/// Issue of a pod whose kept objects are in use.
fn kept_objects_issue(deps: &WorkerDeps, pod: &Pod) -> Option<String> {
    let since = deps.objects.kept_since(&pod.uid())?;
    Some(format!(
        "the API server is unreachable since the agent started; ConfigMaps, Secrets and tokens are \
         those that were kept on this node at {since}"
    ))
}

/// Time at which the pod was first received from its source.
fn seen(pod: &Pod) -> Option<Timestamp> {
    pod.annotation(names::ANN_CONFIG_SEEN)?.parse().ok()
}

fn seconds_between(from: Option<Timestamp>, to: Timestamp) -> Option<f64> {
    Some(to.duration_since(from?).as_secs_f64().max(0.0))
}

#[cfg(test)]
mod tests;
