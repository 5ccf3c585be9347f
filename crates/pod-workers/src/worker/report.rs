//! From what a worker knows to its pod's entry on the board: status, blocker, start phases.

use std::sync::Arc;
use std::time::Duration;

use windlass_actors::{PodWorkerState, ProbeTargets, RuntimeState};
use windlass_cri::HungCall;
use windlass_metrics::Metrics;
use windlass_pod_lifecycle::actions::DelayedRestart;
use windlass_pod_lifecycle::deadline::{Deadline, DeadlineInput, deadline};
use windlass_pod_lifecycle::pod_worker::State;
use windlass_pod_status::status::{BlockerInput, Failures, StatusInput, blocker, generate_status};
use windlass_pod_status::timeline::start_outcome;
use windlass_runtime_config::unsupported::unsupported_fields;
use windlass_status::PodStatusEntry;
use windlass_types::corev1::PodStatus;
use windlass_types::view::{Blocker, StartTimings};
use windlass_types::{
    ObservedPod, PhaseOverride, Pod, PodExt, PodUid, Reason, SharedPod, Timestamp, names,
};

use super::WorkerDeps;
use super::ends::count_ends;
use super::jobs::SyncReport;

/// What a sync means for the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncSummary {
    /// When to look again at the latest.
    pub retry_at: Option<Timestamp>,
    /// Nothing of the pod will run again.
    pub terminal: bool,
}

/// A pod's results so far.
#[derive(Debug)]
pub struct Report {
    pod: Option<SharedPod>,
    warnings: Vec<String>,
    observed: Arc<ObservedPod>,
    failures: Failures,
    backing_off: Vec<DelayedRestart>,
    status: Arc<PodStatus>,
    /// The status is the one that came with the pod.
    repeated: bool,
    blocker: Option<Blocker>,
    timings: StartTimings,
    stopping: Option<Blocker>,
    notes: Vec<String>,
    phase_override: Option<PhaseOverride>,
    next_sync: Option<Timestamp>,
    synced_once: bool,
    /// The pod was ready or over: its start is told to have ended.
    started: bool,
    /// The runtime was asked about the pod; before that a status would be a guess.
    looked: bool,
    created_at: Timestamp,
}

impl Report {
    /// A report of a pod nothing is known of yet; `None` for an orphan, which has no entry.
    pub fn new(pod: Option<SharedPod>, now: Timestamp) -> Self {
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
            notes: Vec::new(),
            phase_override: None,
            next_sync: None,
            synced_once: false,
            started: false,
            looked: false,
            created_at: now,
        };
        if let Some(pod) = pod {
            this.timings.seen = Some(seen(&pod).unwrap_or(now));
            this.desired(pod);
        }
        this
    }

    /// The pod as asked is new or changed.
    pub fn desired(&mut self, pod: SharedPod) {
        let warnings = unsupported_fields(&pod);
        if warnings != self.warnings && !warnings.is_empty() {
            tracing::warn!(
                pod = %pod.full_name(),
                fields = warnings.join("; "),
                "the pod uses fields that this version does not act on"
            );
        }
        self.warnings = warnings;
        self.pod = Some(pod);
    }

    /// The first sync got its start slot.
    pub fn dispatched(&mut self, at: Timestamp, metrics: &Metrics) {
        if self.timings.dispatched.is_none() {
            self.timings.dispatched = Some(at);
            if let Some(waited) = seconds_between(self.timings.seen, at) {
                metrics.workers.start_duration.observe(waited);
            }
        }
    }

    /// The pod was read without a sync.
    pub fn observed(&mut self, observed: Arc<ObservedPod>) {
        self.observed = observed;
        self.looked = true;
    }

    /// A sync found the pod like this and goes on from there. What it found is told before what it
    /// makes of it, as upstream does: a container that ended, or asked for a restart of all of them,
    /// may be gone when the sync is through.
    pub fn found(&mut self, observed: Arc<ObservedPod>, deps: &WorkerDeps) {
        self.observed(observed);
        if let Some(pod) = self.pod.clone().filter(|_| self.synced_once) {
            self.renew_status(&pod, deps, false, deps.clock.now());
        }
    }

    /// A phase was decided for the pod; the first decision stands.
    pub fn decided(&mut self, phase_override: Option<PhaseOverride>) {
        self.phase_override = self.phase_override.take().or(phase_override);
    }

    /// The pod is being stopped.
    pub fn terminating(&mut self, reason: &str, grace: Duration, now: Timestamp) {
        let grace = grace.as_secs();
        let message = if reason.is_empty() {
            format!("all containers are done; stopping what is left (grace period {grace} s)")
        } else {
            format!("{reason}; stopping it (grace period {grace} s)")
        };
        let since = self.stopping.as_ref().map_or(now, |blocker| blocker.since);
        self.stopping = Some(Blocker {
            reason: Reason::Terminating,
            container: None,
            message,
            since,
            next_retry: None,
        });
    }

    /// Takes in what came of a sync.
    pub fn synced(&mut self, report: SyncReport, deps: &WorkerDeps, now: Timestamp) -> SyncSummary {
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
            self.backing_off = outcome.actions.backing_off;
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
        if let Some(notes) = report.notes {
            self.notes = notes;
        }
        let Some(pod) = self.pod.clone() else {
            return SyncSummary {
                retry_at: wake_at,
                terminal: false,
            };
        };
        self.renew_status(&pod, deps, false, now);
        self.note_running(deps, now);
        let phase = self.status.phase.as_deref();
        // a pod with a pending failure is tried again, whatever its containers say
        let terminal = matches!(phase, Some("Succeeded" | "Failed")) && self.failures.is_empty();
        SyncSummary {
            retry_at: wake_at,
            terminal,
        }
    }

    /// Before anybody looked the last known status stands: a container that was running is not
    /// lost because it was not seen yet.
    fn renew_status(&mut self, pod: &Pod, deps: &WorkerDeps, terminal: bool, now: Timestamp) {
        let known = pod.status.as_ref().filter(|status| status.phase.is_some());
        let known = known.filter(|_| !self.looked && !terminal);
        let status = known.cloned();
        let status = status.unwrap_or_else(|| self.generate(pod, deps, terminal, now));
        // what the status that came with the pod tells of ended before, and so did what is found with
        // a pod that had none
        if known.is_none() && self.status.phase.is_some() {
            count_ends(&self.status, &status, &deps.metrics);
        }
        self.status = Arc::new(status);
        self.repeated = known.is_some();
    }

    fn generate(&self, pod: &Pod, deps: &WorkerDeps, terminal: bool, now: Timestamp) -> PodStatus {
        let previous = (!self.repeated).then_some(&*self.status);
        let probe_results = deps.probes.results.get(&pod.uid());
        generate_status(StatusInput {
            backing_off: &self.backing_off,
            previous,
            terminal,
            phase_override: self.phase_override.as_ref(),
            now,
            ..deps.status_input(pod, &self.observed, &probe_results, &self.failures)
        })
    }

    /// Phases are those of the first start: what a restart does later is not the pod's start.
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

    fn note_running(&mut self, deps: &WorkerDeps, now: Timestamp) {
        if self.timings.running.is_some() || self.status.phase.as_deref() != Some("Running") {
            return;
        }
        self.timings.running = Some(now);
        // a pod that was adopted did not start now
        if self.timings.containers_started.is_some()
            && let Some(took) = seconds_between(self.timings.seen, now)
        {
            deps.metrics.workers.pod_start_duration.observe(took);
        }
    }

    /// What of the pod can be probed at present; `None` before anybody looked.
    pub fn probe_targets(&self, state: PodWorkerState) -> Option<ProbeTargets> {
        let pod = self.pod.clone().filter(|_| self.looked)?;
        let ip = self.status.pod_ip.as_deref();
        Some(ProbeTargets {
            pod,
            observed: Arc::clone(&self.observed),
            pod_ip: ip.and_then(|ip| ip.parse().ok()),
            state,
        })
    }

    /// How the pod stands to its deadline.
    pub fn deadline(&self, now: Timestamp) -> Deadline {
        let Some(pod) = self.pod.as_deref().filter(|_| self.phase_override.is_none()) else {
            return Deadline::None;
        };
        deadline(DeadlineInput {
            pod,
            status: &self.status,
            observed: &self.observed,
            now,
        })
    }

    /// The status that was published last.
    pub fn status(&self) -> Arc<PodStatus> {
        Arc::clone(&self.status)
    }

    /// The observation that the status was made from; `None` before the first sync.
    pub fn known(&self) -> Option<Arc<ObservedPod>> {
        self.synced_once.then(|| Arc::clone(&self.observed))
    }

    /// Verdicts of probes changed.
    pub fn probed(&mut self, deps: &WorkerDeps) {
        if let Some(pod) = self.pod.clone().filter(|_| self.looked) {
            self.renew_status(&pod, deps, false, deps.clock.now());
        }
    }

    /// Puts the entry on the board.
    pub fn publish(&mut self, phase: State, runtime: &RuntimeState, deps: &WorkerDeps) {
        let Some(pod) = self.pod.clone() else { return };
        let now = deps.clock.now();
        let worker_state = worker_state(phase);
        if let Some(end) = start_outcome(&self.status).filter(|_| !self.started) {
            self.started = true;
            // what runs or ran without a start of ours was there before
            match end.is_ok() && self.timings.containers_started.is_none() {
                true => deps.timelines.skip_start_trace(&pod.uid()),
                false => deps.timelines.started(&pod.uid(), end),
            }
        }
        if worker_state != PodWorkerState::SyncPod || !self.synced_once {
            // only now can nothing of the pod run any more
            let terminal = worker_state == PodWorkerState::TerminatedPod;
            self.renew_status(&pod, deps, terminal, now);
        }
        self.blocker = self.find_blocker(&pod, worker_state, runtime, deps, now);
        deps.board.publish(PodStatusEntry {
            pod,
            status: Arc::clone(&self.status),
            worker_state,
            looked: self.looked || worker_state == PodWorkerState::TerminatedPod,
            released: phase == State::TerminatedPod { released: true },
            blocker: self.blocker.clone(),
            events: Vec::new(),
            timings: self.timings.clone(),
            issues: self.notes.clone(),
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
        // what hangs is the reason for whatever else could be told, but of a pod that has stopped
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
                since,
                next_retry,
            })
        };
        // of a pod that has stopped, or never ran, nothing waits
        let waits = phase != PodWorkerState::TerminatedPod;
        if let Some(error) = runtime.runtime_error.as_ref().filter(|_| waits) {
            let next = now.saturating_add(Duration::from_secs(5)).ok();
            return wait(Reason::RuntimeNotReady, error.clone(), next);
        }
        if waits && !self.synced_once && self.timings.dispatched.is_none() {
            let capacity = deps.start_limiter.capacity();
            let message = format!("waiting for its turn: {capacity} pods start at a time");
            let mut blocker = wait(Reason::WaitingForStartSlot, message, None)?;
            blocker.since = blocker.since.min(self.created_at);
            return Some(blocker);
        }
        let events = deps.board.events(&pod.uid());
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

/// The words of the event, and how often it was asked.
fn hung_blocker(call: &HungCall) -> Blocker {
    let attempts = match call.attempts {
        0 | 1 => String::new(),
        attempts => format!(" (asked {attempts} times)"),
    };
    Blocker {
        reason: Reason::RuntimeCallHung,
        container: None,
        message: format!("{call}{attempts}"),
        since: call.since,
        // it is being asked all the time
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

/// Shows a pod that waits until another of its name has stopped.
pub(crate) fn publish_waiting(pod: &SharedPod, behind: &PodUid, deps: &WorkerDeps) {
    let now = deps.clock.now();
    let status = PodStatus {
        phase: Some("Pending".to_owned()),
        ..PodStatus::default()
    };
    deps.board.publish(PodStatusEntry {
        status: Arc::new(status),
        blocker: Some(Blocker {
            reason: Reason::WaitingForPodTermination,
            container: None,
            message: format!("the pod of the same name with UID {behind} is still being stopped"),
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

/// When the merger saw the pod first.
fn seen(pod: &Pod) -> Option<Timestamp> {
    pod.annotation(names::ANN_CONFIG_SEEN)?.parse().ok()
}

fn seconds_between(from: Option<Timestamp>, to: Timestamp) -> Option<f64> {
    Some(to.duration_since(from?).as_secs_f64().max(0.0))
}
