//! All probes of one kind: whom they ask, when they are due, what they have come to.
//!
//! Messages and the time go in, questions come out; nothing here waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use windlass_actors::{ProbeChange, ProbeResults, ProbeTargets, ProbeUpdate, SlotSender};
use windlass_checks::Checks;
use windlass_pod_lifecycle::probe::{ProbeOutcome, ProbeSpec, ProbeState, schedule};
use windlass_pod_lifecycle::probe_targets::{
    Belief, ProbePlan, ProbeTarget, ProbeTargetsInput, Standing, first_belief, outlived_an_agent,
    probe_plan, probe_targets,
};
use windlass_cri::RuntimeService;
use windlass_metrics::{Metrics, ProbeLabels, ProbeResult, ProbeSeries};
use windlass_store::ProbeResultFile;
use windlass_types::view::EventType;
use windlass_types::{
    Clock, ContainerId, ContainerState, ContainerProbeResult, EventRecorder, ObservedContainer, PodExt,
    PodUid, ProbeKind, Reason, SharedPod, Timestamp, later,
};

use crate::io::{Answer, Question};
use crate::wheel::{ProbeId, Wheel};

/// Longest text of an event, in bytes. A probe may say ten times as much, and says it again and
/// again.
const EVENT_TEXT: usize = 1024;

/// What a manager works with.
#[derive(Clone, Debug)]
pub struct ProbeDeps {
    /// Runs commands in containers.
    pub runtime: Arc<dyn RuntimeService>,
    /// Asks containers over the network.
    pub checks: Arc<dyn Checks>,
    /// Where users read of failures.
    pub events: Arc<dyn EventRecorder>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: Metrics,
    /// Where verdicts go.
    pub results: ProbeResults,
    /// Where verdicts survive the agent; `None` in simulations without a disk.
    pub file: Option<ProbeResultFile>,
    /// Who is told of changed verdicts.
    pub updates: SlotSender<PodUid, ProbeUpdate>,
}

/// The present, on both clocks: one for timers, one for what containers did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    instant: Instant,
    wall: Timestamp,
}

impl Now {
    /// The present.
    pub(crate) fn of(clock: &dyn Clock) -> Self {
        Self {
            instant: Instant::now(),
            wall: clock.now(),
        }
    }

    fn until(self, at: Timestamp) -> Duration {
        Duration::try_from(at.duration_since(self.wall)).unwrap_or(Duration::ZERO)
    }
}

/// Whether a question is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flight {
    None,
    /// Its answer is waited for.
    Asked,
    /// Nobody waits for the answer, but the runtime may still be at it.
    GivenUp,
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
    /// It is to be asked at present.
    asked: bool,
    flight: Flight,
    /// Where the wheel has it.
    due: Option<Instant>,
    /// When the last question was due, or the next one is.
    tick: Timestamp,
    /// Nothing is asked before, whoever wishes it.
    earliest: Instant,
    series: ProbeSeries,
}

/// What a worker says of its pod, and when.
#[derive(Clone, Copy)]
struct Sight<'a> {
    uid: &'a PodUid,
    pod: &'a SharedPod,
    input: ProbeTargetsInput<'a>,
    now: Now,
}

/// See the module page.
#[derive(Debug)]
pub(crate) struct Probes {
    kind: ProbeKind,
    deps: ProbeDeps,
    agent_start: Timestamp,
    /// The probes of each pod that was told of, by container.
    pods: BTreeMap<PodUid, BTreeMap<String, ProbeId>>,
    probes: BTreeMap<ProbeId, Probe>,
    next_id: u64,
    wheel: Wheel,
    /// Verdicts that are not on the disk yet.
    unwritten: Vec<(ProbeId, bool)>,
}

impl Probes {
    /// Of an agent that starts now.
    pub(crate) fn new(kind: ProbeKind, deps: ProbeDeps) -> Self {
        let agent_start = deps.clock.now();
        Self {
            kind,
            deps,
            agent_start,
            pods: BTreeMap::new(),
            probes: BTreeMap::new(),
            next_id: 0,
            wheel: Wheel::default(),
            unwritten: Vec::new(),
        }
    }

    /// When somebody has to look next.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        self.wheel.next_wake()
    }

    /// Takes in what a worker says of its pod.
    pub(crate) fn targets(&mut self, uid: &PodUid, targets: &ProbeTargets, now: Now) {
        let verdicts = self.deps.results.of(uid);
        let sight = Sight {
            uid,
            pod: &targets.pod,
            input: ProbeTargetsInput {
                kind: self.kind,
                pod: &targets.pod,
                observed: &targets.observed,
                verdicts: &verdicts,
                phase: targets.state,
            },
            now,
        };
        let mut before = self.pods.remove(uid).unwrap_or_default();
        let mut after = BTreeMap::new();
        for target in probe_targets(sight.input) {
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
                    self.seen_again(id, &target, plan, sight);
                    id
                }
                None => self.begin(&target, instance, plan, known, sight),
            };
            after.insert(container.name.clone(), id);
        }
        for id in before.into_values() {
            self.remove(id);
        }
        self.pods.insert(uid.clone(), after);
    }

    /// The pod is released.
    pub(crate) fn forget(&mut self, uid: &PodUid) {
        for id in self.pods.remove(uid).unwrap_or_default().into_values() {
            self.remove(id);
        }
        self.forget_verdicts(uid, None);
    }

    /// Forgets what an earlier life of the agent found of pods that nobody told of since.
    pub(crate) fn forget_unclaimed(&mut self) {
        for uid in self.deps.results.all().into_keys() {
            if !self.pods.contains_key(&uid) {
                self.forget(&uid);
            }
        }
    }

    /// The questions that are due.
    pub(crate) fn due(&mut self, now: Now) -> Vec<Question> {
        let due = self.wheel.take_due(now.instant).into_iter();
        due.filter_map(|id| {
            let probe = self.probes.get_mut(&id)?;
            probe.due = None;
            probe.flight = Flight::Asked;
            Some(Question {
                id,
                container: probe.instance.clone(),
                spec: Arc::clone(&probe.spec),
                problem: probe.problem.clone(),
            })
        })
        .collect()
    }

    /// Takes in what came of a question.
    pub(crate) fn answered(&mut self, answer: Answer, now: Now) {
        match answer {
            Answer::Came(id, outcome, took) => {
                self.judged(id, &outcome, took);
                self.ended(id, now);
            }
            Answer::GivenUp(id, outcome, took) => {
                self.judged(id, &outcome, took);
                if let Some(probe) = self.probes.get_mut(&id) {
                    probe.flight = Flight::GivenUp;
                }
            }
            Answer::Returned(id) => self.ended(id, now),
            Answer::Recorded(verdicts) => {
                for (id, ok) in verdicts {
                    self.recorded(id, ok);
                }
            }
        }
    }

    fn is_about(&self, id: ProbeId, instance: &ContainerId) -> bool {
        let probe = self.probes.get(&id);
        probe.is_some_and(|probe| probe.instance == *instance)
    }

    /// Begins to probe an instance that was not known. What an earlier one, `before`, was found
    /// to be does not count for it.
    fn begin(
        &mut self,
        target: &ProbeTarget<'_>,
        instance: &ObservedContainer,
        plan: ProbePlan,
        before: Option<ProbeId>,
        sight: Sight<'_>,
    ) -> ProbeId {
        let (uid, kind, name) = (sight.uid, self.kind, &instance.name);
        let belief = first_belief(&sight.input, instance, self.agent_start);
        tracing::debug!(pod = %uid, %kind, container = name, id = %instance.id, %belief, "probe");
        let verdict = self.believe(uid, instance, belief);
        let series = match before.and_then(|id| self.remove(id)) {
            Some(probe) => probe.series,
            None => self.deps.metrics.probes.of(ProbeLabels {
                probe_type: kind.as_str(),
                container: name.clone(),
                pod: sight.pod.name().to_owned(),
                namespace: sight.pod.namespace().to_owned(),
                pod_uid: uid.to_string(),
            }),
        };
        let probe = Probe {
            uid: uid.clone(),
            pod: Arc::clone(sight.pod),
            container: name.clone(),
            instance: instance.id.clone(),
            state: ProbeState::restored(kind, &plan.spec, verdict),
            spec: Arc::new(plan.spec),
            problem: plan.problem.map(Arc::from),
            asked: false,
            flight: Flight::None,
            due: None,
            tick: sight.now.wall,
            earliest: sight.now.instant,
            series,
        };
        let id = ProbeId(self.next_id);
        self.next_id += 1;
        self.probes.insert(id, probe);
        self.place(id, target, sight);
        id
    }

    /// Makes what is believed of an instance before its first answer the verdict on it.
    fn believe(
        &mut self,
        uid: &PodUid,
        instance: &ObservedContainer,
        belief: Belief,
    ) -> Option<bool> {
        match belief {
            Belief::Kept(ok) => Some(ok),
            Belief::Started => {
                self.record(uid, &instance.name, &instance.id, true);
                self.tell(uid, &instance.name, true);
                Some(true)
            }
            Belief::NotReady => {
                // nobody took it for ready: nothing changes for anybody
                self.record(uid, &instance.name, &instance.id, false);
                Some(false)
            }
            Belief::Open => {
                self.forget_verdicts(uid, Some(&instance.name));
                // alive is what everything is until it is found not to be
                (self.kind == ProbeKind::Liveness).then_some(true)
            }
        }
    }

    fn seen_again(
        &mut self,
        id: ProbeId,
        target: &ProbeTarget<'_>,
        plan: ProbePlan,
        sight: Sight<'_>,
    ) {
        let Some(probe) = self.probes.get_mut(&id) else {
            return;
        };
        probe.pod = Arc::clone(sight.pod);
        if *probe.spec != plan.spec {
            probe.spec = Arc::new(plan.spec);
        }
        if probe.problem.as_deref() != plan.problem.as_deref() {
            probe.problem = plan.problem.map(Arc::from);
        }
        if probe.asked {
            self.hurry(id, sight.now);
        }
        self.place(id, target, sight);
        let ended = target.instance.map(|instance| instance.state) == Some(ContainerState::Exited);
        if ended && self.kind == ProbeKind::Readiness {
            self.is_over(id);
        }
    }

    /// What is not ready is asked as soon as something happens to its pod.
    fn hurry(&mut self, id: ProbeId, now: Now) {
        let Some(probe) = self.probes.get_mut(&id) else {
            return;
        };
        let unready = self.kind == ProbeKind::Readiness && probe.state.verdict() != Some(true);
        if unready && probe.flight == Flight::None && probe.earliest <= now.instant {
            probe.tick = now.wall;
            self.wheel.set(id, &mut probe.due, now.instant);
        }
    }

    /// What has ended is not ready; everybody knows of the end without being told of this.
    fn is_over(&mut self, id: ProbeId) {
        let Some(probe) = self.probes.get_mut(&id) else {
            return;
        };
        if probe.state.verdict() == Some(false) {
            return;
        }
        probe.state = ProbeState::restored(self.kind, &probe.spec, Some(false));
        let (uid, name) = (probe.uid.clone(), probe.container.clone());
        let instance = probe.instance.clone();
        self.record(&uid, &name, &instance, false);
    }

    /// Has the probe asked from now on, or no longer.
    fn place(&mut self, id: ProbeId, target: &ProbeTarget<'_>, sight: Sight<'_>) {
        let Some(probe) = self.probes.get_mut(&id) else {
            return;
        };
        let asked = target.standing == Standing::Asked && !probe.state.rests();
        let before = std::mem::replace(&mut probe.asked, asked);
        if before && !asked {
            self.wheel.clear(id, &mut probe.due);
        }
        if before || !asked {
            return;
        }
        let began = target.instance.and_then(|instance| instance.started_at);
        let spread = target
            .instance
            .filter(|instance| outlived_an_agent(instance, self.agent_start))
            .map(|_| schedule::spread(&probe.spec, self.kind, sight.uid, &probe.container))
            // what is found later is not one of many
            .filter(|_| sight.now.wall < later(self.agent_start, probe.spec.period));
        let now = sight.now;
        probe.tick = schedule::first(&probe.spec, began.unwrap_or(now.wall), spread, now.wall);
        probe.earliest = now.instant + now.until(probe.tick);
        if probe.flight == Flight::None {
            self.wheel.set(id, &mut probe.due, probe.earliest);
        }
    }

    fn judged(&mut self, id: ProbeId, outcome: &ProbeOutcome, took: Duration) {
        let Some(probe) = self.probes.get_mut(&id).filter(|probe| probe.asked) else {
            return;
        };
        let result = match outcome.counts() {
            Some(true) => ProbeResult::Successful,
            Some(false) => ProbeResult::Failed,
            None => ProbeResult::Unknown,
        };
        probe.series.observe(result, took.as_secs_f64());
        if let Some(mut text) = outcome.event_message(self.kind) {
            cut(&mut text, EVENT_TEXT);
            tracing::debug!(pod = %probe.uid, container = probe.container, text, "probe");
            let reason = match outcome {
                ProbeOutcome::Warning(_) => Reason::ProbeWarning,
                _ => Reason::Unhealthy,
            };
            let name = Some(probe.container.as_str());
            let events = &self.deps.events;
            events.record(&probe.pod, name, EventType::Warning, reason, &text);
        }
        if let Some(ok) = probe.state.record(outcome) {
            self.decided(id, ok);
        }
    }

    /// A verdict changed. It is on the disk before anybody hears of it: an agent that is killed in
    /// between takes nothing back.
    fn decided(&mut self, id: ProbeId, ok: bool) {
        let Some(probe) = self.probes.get(&id) else {
            return;
        };
        let Some(file) = self.deps.file.clone() else {
            return self.recorded(id, ok);
        };
        let verdict = ContainerProbeResult {
            id: probe.instance.clone(),
            success: ok,
        };
        file.record(self.kind, &probe.uid, &probe.container, verdict);
        self.unwritten.push((id, ok));
    }

    /// Verdicts that somebody has to see to the disk; [`Answer::Recorded`] says that they are.
    pub(crate) fn take_unwritten(&mut self) -> Vec<(ProbeId, bool)> {
        std::mem::take(&mut self.unwritten)
    }

    /// A verdict is on the disk: now it counts, if it still is the verdict.
    fn recorded(&mut self, id: ProbeId, ok: bool) {
        let Some(probe) = self.probes.get(&id) else {
            return;
        };
        if probe.state.verdict() != Some(ok) {
            return;
        }
        let (uid, name) = (probe.uid.clone(), probe.container.clone());
        let verdict = ContainerProbeResult {
            id: probe.instance.clone(),
            success: ok,
        };
        if self.deps.results.record(self.kind, &uid, &name, verdict) {
            self.tell(&uid, &name, ok);
        }
    }

    /// No question is under way any more.
    fn ended(&mut self, id: ProbeId, now: Now) {
        let Some(probe) = self.probes.get_mut(&id) else {
            return;
        };
        probe.flight = Flight::None;
        if probe.asked && !probe.state.rests() {
            probe.tick = schedule::next(&probe.spec, probe.tick, now.wall);
            let at = now.instant + now.until(probe.tick);
            self.wheel.set(id, &mut probe.due, at);
        }
    }

    fn remove(&mut self, id: ProbeId) -> Option<Probe> {
        let mut probe = self.probes.remove(&id)?;
        self.wheel.clear(id, &mut probe.due);
        Some(probe)
    }

    /// A verdict that changes nothing for anybody.
    fn record(&self, uid: &PodUid, container: &str, instance: &ContainerId, ok: bool) {
        let verdict = ContainerProbeResult {
            id: instance.clone(),
            success: ok,
        };
        if let Some(file) = &self.deps.file {
            file.record(self.kind, uid, container, verdict.clone());
        }
        self.deps.results.record(self.kind, uid, container, verdict);
    }

    fn forget_verdicts(&self, uid: &PodUid, container: Option<&str>) {
        self.deps.results.forget(self.kind, uid, container);
        if let Some(file) = &self.deps.file {
            file.forget(self.kind, uid, container);
        }
    }

    fn tell(&self, uid: &PodUid, container: &str, ok: bool) {
        let change = ProbeChange {
            kind: self.kind,
            container: container.to_owned(),
            success: ok,
        };
        let changes = vec![change];
        self.deps.updates.put(uid.clone(), ProbeUpdate { changes });
    }
}

/// Shortens a text to at most so many bytes, at a character's end.
fn cut(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_long_text_is_cut_at_the_end_of_a_character() {
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
