//! All probes of one kind: their targets, due times and results.
//!
//! Messages and the time are inputs, attempts are the output; nothing here waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use windlass_actors::{ProbeChange, ProbeResults, ProbeTargets, ProbeUpdate};
use windlass_checks::Checks;
use windlass_cri::RuntimeService;
use windlass_hung_operations::{HungAttempt, HungOperations, Operation, OperationKind};
use windlass_mailboxes::SlotSender;
use windlass_metrics::{Metrics, ProbeLabels, ProbeResult, ProbeSeries};
use windlass_pod_lifecycle::probe::{ProbeOutcome, ProbeSpec, ProbeState, schedule};
use windlass_pod_lifecycle::probe_targets::{
    InitialResult, ProbePlan, ProbeTarget, ProbeTargetState, ProbeTargetsInput, initial_result,
    probe_plan, probe_targets, started_before_agent,
};
use windlass_store::ProbeResultFile;
use windlass_types::view::EventType;
use windlass_types::{
    Clock, ContainerId, ContainerProbe, ContainerProbeResult, ContainerState, EventRecorder,
    ObservedContainer, PodExt, PodUid, ProbeKind, Reason, SharedPod, Timestamp, later,
};

use crate::io::{Completion, ProbeAttempt};
use crate::timers::{ProbeId, ProbeTimers};

/// Maximum length of an event message, because events repeat.
const MAX_EVENT_BYTES: usize = 1024;

/// Dependencies of a [`crate::ProbeManager`].
#[derive(Clone, Debug)]
pub struct ProbeDeps {
    /// Runs commands in containers.
    pub runtime: Arc<dyn RuntimeService>,
    /// Runs network probes.
    pub checks: Arc<dyn Checks>,
    /// Recorder of events.
    pub events: Arc<dyn EventRecorder>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: Metrics,
    /// Receiver of the results.
    pub results: ProbeResults,
    /// State file of the results; `None` in simulations without a disk.
    pub file: Option<ProbeResultFile>,
    /// Receiver of changed results.
    pub updates: SlotSender<PodUid, ProbeUpdate>,
    /// Lists probes whose attempts time out.
    pub hung: HungOperations,
}

/// The current time on the monotonic and the wall clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    instant: Instant,
    wall: Timestamp,
}

impl Now {
    /// Reads both clocks.
    pub(crate) fn read(clock: &dyn Clock) -> Self {
        Self {
            instant: Instant::now(),
            wall: clock.now(),
        }
    }

    fn until(self, at: Timestamp) -> Duration {
        Duration::try_from(at.duration_since(self.wall)).unwrap_or(Duration::ZERO)
    }
}

/// State of the current attempt of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptState {
    None,
    /// The attempt runs.
    Running,
    /// The attempt timed out, but its runtime call has not returned.
    Abandoned,
}

/// The probe of one container instance.
#[derive(Debug)]
struct Probe {
    uid: PodUid,
    pod: SharedPod,
    container: String,
    instance: ContainerId,
    spec: Arc<ProbeSpec>,
    problem: Option<Arc<str>>,
    state: ProbeState,
    active: bool,
    attempt: AttemptState,
    /// Due time in the timers.
    due: Option<Instant>,
    /// Due time of the last attempt, or of the next one.
    tick: Timestamp,
    /// No attempt starts before.
    earliest: Instant,
    series: ProbeSeries,
    /// Set from an attempt that timed out until one that did not.
    hung: Option<HungAttempt>,
}

/// Targets of a pod, as reported by its worker.
#[derive(Clone, Copy)]
struct PodTargets<'a> {
    uid: &'a PodUid,
    pod: &'a SharedPod,
    input: ProbeTargetsInput<'a>,
    now: Now,
}

/// All probes of one kind.
#[derive(Debug)]
pub(crate) struct ProbeSet {
    kind: ProbeKind,
    deps: ProbeDeps,
    agent_start: Timestamp,
    /// The probes of each reported pod by container.
    pods: BTreeMap<PodUid, BTreeMap<String, ProbeId>>,
    probes: BTreeMap<ProbeId, Probe>,
    next_id: u64,
    timers: ProbeTimers,
    /// Results that are not persisted yet.
    unpersisted: Vec<(ProbeId, bool)>,
}

impl ProbeSet {
    /// Creates an empty set for an agent that starts now.
    pub(crate) fn new(kind: ProbeKind, deps: ProbeDeps) -> Self {
        let agent_start = deps.clock.now();
        Self {
            kind,
            deps,
            agent_start,
            pods: BTreeMap::new(),
            probes: BTreeMap::new(),
            next_id: 0,
            timers: ProbeTimers::default(),
            unpersisted: Vec::new(),
        }
    }

    /// Returns the time of the next wake-up.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        self.timers.next_wake()
    }

    /// Updates the probes of a pod.
    pub(crate) fn targets(&mut self, uid: &PodUid, targets: &ProbeTargets, now: Now) {
        let results = self.deps.results.get(uid);
        let pod_targets = PodTargets {
            uid,
            pod: &targets.pod,
            input: ProbeTargetsInput {
                kind: self.kind,
                pod: &targets.pod,
                observed: &targets.observed,
                probe_results: &results,
                worker_state: targets.state,
            },
            now,
        };
        let mut before = self.pods.remove(uid).unwrap_or_default();
        let mut after = BTreeMap::new();
        for target in probe_targets(pod_targets.input) {
            tracing::trace!(pod = %uid, kind = %self.kind, %target, "probe target");
            let container = target.container;
            let Some(instance) = target.instance else {
                continue;
            };
            let Some(plan) = probe_plan(self.kind, &targets.pod, container, targets.pod_ip) else {
                continue;
            };
            let known = before.remove(&container.name);
            let id = match known.filter(|id| self.is_about(*id, &instance.id)) {
                Some(id) => {
                    self.update(id, &target, plan, pod_targets);
                    id
                }
                None => self.begin(&target, instance, plan, known, pod_targets),
            };
            after.insert(container.name.clone(), id);
        }
        for id in before.into_values() {
            self.remove(id);
        }
        self.pods.insert(uid.clone(), after);
    }

    /// Removes a pod and its results.
    pub(crate) fn forget(&mut self, uid: &PodUid) {
        for id in self.pods.remove(uid).unwrap_or_default().into_values() {
            self.remove(id);
        }
        self.forget_results(uid, None);
    }

    /// Removes restored results of pods that no worker has reported.
    pub(crate) fn forget_unclaimed(&mut self) {
        for uid in self.deps.results.all().into_keys() {
            if !self.pods.contains_key(&uid) {
                self.forget(&uid);
            }
        }
    }

    /// Starts and returns the due attempts.
    pub(crate) fn due(&mut self, now: Now) -> Vec<ProbeAttempt> {
        let due = self.timers.take_due(now.instant).into_iter();
        due.filter_map(|id| {
            let probe = self.probes.get_mut(&id)?;
            probe.due = None;
            probe.attempt = AttemptState::Running;
            Some(ProbeAttempt {
                id,
                container: probe.instance.clone(),
                spec: Arc::clone(&probe.spec),
                problem: probe.problem.clone(),
            })
        })
        .collect()
    }

    /// Handles a completion.
    pub(crate) fn completed(&mut self, completion: Completion, now: Now) {
        match completion {
            Completion::Finished(id, outcome, took) => {
                self.record_hang(id, took, now);
                self.record_outcome(id, &outcome, took);
                self.end_attempt(id, now);
            }
            Completion::Abandoned(id, outcome, took) => {
                self.record_hang(id, took, now);
                self.record_outcome(id, &outcome, took);
                if let Some(probe) = self.probes.get_mut(&id) {
                    probe.attempt = AttemptState::Abandoned;
                }
            }
            Completion::Returned(id) => self.end_attempt(id, now),
            Completion::Persisted(results) => {
                for (id, ok) in results {
                    self.publish_persisted(id, ok);
                }
            }
        }
    }

    fn is_about(&self, id: ProbeId, instance: &ContainerId) -> bool {
        let probe = self.probes.get(&id);
        probe.is_some_and(|probe| probe.instance == *instance)
    }

    /// Adds the probe of a new container instance, which replaces the probe `before`.
    fn begin(
        &mut self,
        target: &ProbeTarget<'_>,
        instance: &ObservedContainer,
        plan: ProbePlan,
        before: Option<ProbeId>,
        pod_targets: PodTargets<'_>,
    ) -> ProbeId {
        let (uid, kind, name) = (pod_targets.uid, self.kind, &instance.name);
        let initial = initial_result(&pod_targets.input, instance, self.agent_start);
        tracing::debug!(pod = %uid, %kind, container = name, id = %instance.id, %initial, "probe");
        let result = self.set_initial_result(uid, instance, initial);
        let series = match before.and_then(|id| self.remove(id)) {
            Some(probe) => probe.series,
            None => self.deps.metrics.probes.series(ProbeLabels {
                probe_type: kind.as_str(),
                container: name.clone(),
                pod: pod_targets.pod.name().to_owned(),
                namespace: pod_targets.pod.namespace().to_owned(),
                pod_uid: uid.to_string(),
            }),
        };
        let probe = Probe {
            uid: uid.clone(),
            pod: Arc::clone(pod_targets.pod),
            container: name.clone(),
            instance: instance.id.clone(),
            state: ProbeState::restored(kind, &plan.spec, result),
            spec: Arc::new(plan.spec),
            problem: plan.problem.map(Arc::from),
            active: false,
            attempt: AttemptState::None,
            due: None,
            tick: pod_targets.now.wall,
            earliest: pod_targets.now.instant,
            series,
            hung: None,
        };
        let id = ProbeId(self.next_id);
        self.next_id += 1;
        self.probes.insert(id, probe);
        self.set_active(id, target, pod_targets);
        id
    }

    /// Sets the initial result of an instance.
    fn set_initial_result(
        &mut self,
        uid: &PodUid,
        instance: &ObservedContainer,
        initial: InitialResult,
    ) -> Option<bool> {
        match initial {
            InitialResult::Restored(ok) => Some(ok),
            InitialResult::Started => {
                self.record(uid, &instance.name, &instance.id, true);
                self.publish(uid, &instance.name, true);
                Some(true)
            }
            InitialResult::NotReady => {
                // no reader took it for ready
                self.record(uid, &instance.name, &instance.id, false);
                Some(false)
            }
            InitialResult::Unknown => {
                self.forget_results(uid, Some(&instance.name));
                // liveness starts as success
                (self.kind == ProbeKind::Liveness).then_some(true)
            }
        }
    }

    fn update(
        &mut self,
        id: ProbeId,
        target: &ProbeTarget<'_>,
        plan: ProbePlan,
        pod_targets: PodTargets<'_>,
    ) {
        let Some(probe) = self.probes.get_mut(&id) else {
            return;
        };
        probe.pod = Arc::clone(pod_targets.pod);
        if *probe.spec != plan.spec {
            probe.spec = Arc::new(plan.spec);
        }
        if probe.problem.as_deref() != plan.problem.as_deref() {
            probe.problem = plan.problem.map(Arc::from);
        }
        if probe.active {
            self.probe_now(id, pod_targets.now);
        }
        self.set_active(id, target, pod_targets);
        let exited = target.instance.map(|instance| instance.state) == Some(ContainerState::Exited);
        if exited && self.kind == ProbeKind::Readiness {
            self.set_exited(id);
        }
    }

    /// Makes a readiness probe without success due now, because its pod changed.
    fn probe_now(&mut self, id: ProbeId, now: Now) {
        let Some(probe) = self.probes.get_mut(&id) else {
            return;
        };
        let unready = self.kind == ProbeKind::Readiness && probe.state.result() != Some(true);
        if unready && probe.attempt == AttemptState::None && probe.earliest <= now.instant {
            probe.tick = now.wall;
            self.timers.set(id, &mut probe.due, now.instant);
        }
    }

    /// Sets an exited container to not ready, without a notification.
    fn set_exited(&mut self, id: ProbeId) {
        let Some(probe) = self.probes.get_mut(&id) else {
            return;
        };
        if probe.state.result() == Some(false) {
            return;
        }
        probe.state = ProbeState::restored(self.kind, &probe.spec, Some(false));
        let (uid, name) = (probe.uid.clone(), probe.container.clone());
        let instance = probe.instance.clone();
        self.record(&uid, &name, &instance, false);
    }

    /// Activates or deactivates the schedule of a probe.
    fn set_active(&mut self, id: ProbeId, target: &ProbeTarget<'_>, pod_targets: PodTargets<'_>) {
        let Some(probe) = self.probes.get_mut(&id) else {
            return;
        };
        let active = target.state == ProbeTargetState::Active && !probe.state.is_on_hold();
        let before = std::mem::replace(&mut probe.active, active);
        if before && !active {
            probe.hung = None;
            self.timers.clear(id, &mut probe.due);
        }
        if before || !active {
            return;
        }
        let began = target.instance.and_then(|instance| instance.started_at);
        let spread = target
            .instance
            .filter(|instance| started_before_agent(instance, self.agent_start))
            .map(|_| schedule::spread(&probe.spec, self.kind, pod_targets.uid, &probe.container))
            // only containers found at agent start get jitter
            .filter(|_| pod_targets.now.wall < later(self.agent_start, probe.spec.period));
        let now = pod_targets.now;
        probe.tick = schedule::first(&probe.spec, began.unwrap_or(now.wall), spread, now.wall);
        probe.earliest = now.instant + now.until(probe.tick);
        if probe.attempt == AttemptState::None {
            self.timers.set(id, &mut probe.due, probe.earliest);
        }
    }

    /// Lists a probe whose attempt timed out, until an attempt ends in time.
    fn record_hang(&mut self, id: ProbeId, took: Duration, now: Now) {
        let kind = self.kind;
        let Some(probe) = self.probes.get_mut(&id).filter(|probe| probe.active) else {
            return;
        };
        if took < probe.spec.timeout {
            probe.hung = None;
        } else if probe.hung.is_none() {
            let name = format!("{kind} probe of container {}", probe.container);
            let operation = Operation::of_pod(OperationKind::Probe, &probe.uid, name);
            let since = now.wall.checked_sub(took).unwrap_or(now.wall);
            probe.hung = Some(self.deps.hung.begin(operation, since));
        }
    }

    fn record_outcome(&mut self, id: ProbeId, outcome: &ProbeOutcome, took: Duration) {
        let Some(probe) = self.probes.get_mut(&id).filter(|probe| probe.active) else {
            return;
        };
        let result = match outcome.counts() {
            Some(true) => ProbeResult::Successful,
            Some(false) => ProbeResult::Failed,
            None => ProbeResult::Unknown,
        };
        probe.series.observe(result, took.as_secs_f64());
        if let Some(mut text) = outcome.event_message(self.kind) {
            cut(&mut text, MAX_EVENT_BYTES);
            tracing::debug!(pod = %probe.uid, container = probe.container, text, "probe");
            let reason = match outcome {
                ProbeOutcome::Warning(_) => Reason::ProbeWarning,
                _ => Reason::Unhealthy,
            };
            let target = ContainerProbe {
                container: &probe.container,
                kind: self.kind,
            };
            let events = &self.deps.events;
            events.record_probe(&probe.pod, target, EventType::Warning, reason, &text);
        }
        if let Some(ok) = probe.state.record(outcome) {
            self.change_result(id, ok);
        }
    }

    /// Persists a changed result before its publication, so that a killed agent reverts nothing.
    fn change_result(&mut self, id: ProbeId, ok: bool) {
        let Some(probe) = self.probes.get(&id) else {
            return;
        };
        let Some(file) = self.deps.file.clone() else {
            return self.publish_persisted(id, ok);
        };
        let result = ContainerProbeResult {
            id: probe.instance.clone(),
            success: ok,
        };
        file.record(self.kind, &probe.uid, &probe.container, result);
        self.unpersisted.push((id, ok));
    }

    /// Takes the results to be persisted; [`Completion::Persisted`] confirms them.
    pub(crate) fn take_unpersisted(&mut self) -> Vec<(ProbeId, bool)> {
        std::mem::take(&mut self.unpersisted)
    }

    /// Publishes a persisted result, unless it changed meanwhile.
    fn publish_persisted(&mut self, id: ProbeId, ok: bool) {
        let Some(probe) = self.probes.get(&id) else {
            return;
        };
        if probe.state.result() != Some(ok) {
            return;
        }
        let (uid, name) = (probe.uid.clone(), probe.container.clone());
        let result = ContainerProbeResult {
            id: probe.instance.clone(),
            success: ok,
        };
        if self.deps.results.record(self.kind, &uid, &name, result) {
            self.publish(&uid, &name, ok);
        }
    }

    /// Ends the attempt of a probe and schedules the next one.
    fn end_attempt(&mut self, id: ProbeId, now: Now) {
        let Some(probe) = self.probes.get_mut(&id) else {
            return;
        };
        probe.attempt = AttemptState::None;
        if probe.active && !probe.state.is_on_hold() {
            probe.tick = schedule::next(&probe.spec, probe.tick, now.wall);
            let at = now.instant + now.until(probe.tick);
            self.timers.set(id, &mut probe.due, at);
        }
    }

    fn remove(&mut self, id: ProbeId) -> Option<Probe> {
        let mut probe = self.probes.remove(&id)?;
        self.timers.clear(id, &mut probe.due);
        Some(probe)
    }

    /// Records a result without a notification.
    fn record(&self, uid: &PodUid, container: &str, instance: &ContainerId, ok: bool) {
        let result = ContainerProbeResult {
            id: instance.clone(),
            success: ok,
        };
        if let Some(file) = &self.deps.file {
            file.record(self.kind, uid, container, result.clone());
        }
        self.deps.results.record(self.kind, uid, container, result);
    }

    fn forget_results(&self, uid: &PodUid, container: Option<&str>) {
        self.deps.results.forget(self.kind, uid, container);
        if let Some(file) = &self.deps.file {
            file.forget(self.kind, uid, container);
        }
    }

    fn publish(&self, uid: &PodUid, container: &str, ok: bool) {
        let change = ProbeChange {
            kind: self.kind,
            container: container.to_owned(),
            success: ok,
        };
        let changes = vec![change];
        self.deps.updates.put(uid.clone(), ProbeUpdate { changes });
    }
}

/// Truncates a text to a number of bytes, at a character boundary.
fn cut(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn long_text_is_cut_at_character_boundary() {
        let of = |text: &str, bytes| {
            let mut text = text.to_owned();
            cut(&mut text, bytes);
            text
        };
        assert_eq!(of("probe", 5), "probe");
        assert_eq!(of("probe failed", 5), "probe");
        assert_eq!(of("größe", 3), "gr");
    }
}
