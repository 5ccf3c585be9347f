//! Preemption: a node with 4 CPUs on which pods request some of them.

use serde_json::json;
use windlass_actors::TerminatePod;
use windlass_types::{Phase, PodOp, PodSource, PodUpdate};

use super::*;

/// Grace period of all pods; upstream waits 1.5 times as long, at least 10 s.
const GRACE_SECONDS: i64 = 20;
const TICKS: usize = 30;

/// A pod from `uid cpu`; the UID of a critical one ends with `!`.
fn parse(text: &str) -> Pod {
    let (uid, cpu) = text.split_once(' ').unwrap_or((text, "0"));
    let priority = if uid.ends_with('!') { 2_000_000_000 } else { 0 };
    let pod = json!({
        "metadata": {"uid": uid, "name": uid, "namespace": "default"},
        "spec": {
            "priority": priority,
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
    });
    serde_json::from_value(pod).expect("a pod")
}

struct Scenario {
    admissions: AdmittedPodSet,
    desired: DesiredPods,
    node: Node,
    policy: AdmissionPolicy,
    /// The checkpoint after the last change.
    recorded: BTreeMap<PodUid, SharedPod>,
}

impl Scenario {
    fn new() -> Self {
        Self {
            admissions: AdmittedPodSet::default(),
            desired: DesiredPods::default(),
            node: node(10),
            policy: policy(),
            recorded: BTreeMap::new(),
        }
    }

    /// A node where `a` requests 3 CPUs and `b` the other one.
    fn full() -> Self {
        let mut full = Self::new();
        full.add("a 3", "admit run(a)");
        full.add("b 1", "admit run(b)");
        full
    }

    fn add(&mut self, pod: &str, expected: &str) {
        self.apply(PodOp::Add, parse(pod), expected);
    }

    fn remove(&mut self, uid: &str, expected: &str) {
        self.apply(PodOp::Remove, parse(uid), expected);
    }

    fn apply(&mut self, op: PodOp, pod: Pod, expected: &str) {
        let mut pods = vec![SharedPod::new(pod)];
        if op == PodOp::Restore {
            for pod in &mut pods {
                if let Some(cause) = take_override(pod) {
                    self.admissions.restore_override(pod.uid(), cause);
                }
            }
        }
        let source = PodSource::Api;
        let dispatches = self.desired.apply(PodUpdate { op, source, pods });
        let dispatches = dispatches.into_iter();
        let lines: Vec<String> = dispatches.map(|d| self.dispatch(d, op)).collect();
        assert_eq!(lines.join(" "), expected, "{op}");
    }

    fn dispatch(&mut self, dispatch: Dispatch, op: PodOp) -> String {
        let context = AdmissionContext {
            restored: op == PodOp::Restore,
            ..AdmissionContext::on(&self.node, &self.policy, &self.desired)
        };
        let admission = self.admissions.admit_dispatch(dispatch, context);
        self.record(&admission);
        admission.to_string()
    }

    fn record(&mut self, admission: &Admission) {
        for dispatch in &admission.dispatches {
            match self.admissions.checkpoint_change(dispatch, &self.desired) {
                CheckpointChange::Record(AdmittedPod { pod, .. }) => {
                    self.recorded.insert(pod.uid(), pod);
                }
                CheckpointChange::Forget(uid) => {
                    self.recorded.remove(&uid);
                }
                CheckpointChange::RecordResources(..) | CheckpointChange::None => {}
            }
        }
    }

    /// One tick, at which these pods have ended.
    fn tick(&mut self, ended: &str, expected: &str) {
        let has_ended = |uid: &PodUid| ended.split(' ').any(|name| name == uid.as_str());
        let victims = self.admissions.end_victims(has_ended);
        let mut words: Vec<String> = victims
            .iter()
            .map(|victim| match (&victim.signal, victim.ended) {
                (Some(signal), true) => format!("end({} {signal})", victim.uid),
                (None, true) => format!("end({})", victim.uid),
                (_, false) => format!("late({})", victim.uid),
            })
            .collect();
        let context = AdmissionContext::on(&self.node, &self.policy, &self.desired);
        let admissions = self.admissions.readmit(context);
        for admission in &admissions {
            self.record(admission);
        }
        words.extend(admissions.iter().map(Admission::to_string));
        assert_eq!(words.join(" "), expected, "ended: {ended}");
    }

    /// The same node after an agent restart: only the checkpoint is left.
    fn restarted(self) -> Self {
        let mut next = Self::new();
        next.recorded = self.recorded;
        next
    }

    fn restore(&mut self, uid: &str, expected: &str) {
        let pod = self.recorded.get(&uid.into()).expect("recorded");
        let pod = Pod::clone(pod);
        self.apply(PodOp::Restore, pod, expected);
    }
}

#[test]
fn critical_pod_waits_and_its_resources_stay_reserved() {
    let mut node = Scenario::full();
    node.add("k! 2", "preempt(a for cpu) kill(a Preempting)");
    // only what the preempted pod leaves is given away, and not before its end
    node.add("c 1", "wait");
    node.add("d 1", "reject(OutOfcpu) reject(d OutOfcpu)");
    node.add("e 0", "admit run(e)");
    node.apply(PodOp::Update, parse("k! 2"), "");
    node.tick("", "");
    node.tick("a", "end(a cpu) admit run(k!) admit run(c)");
    assert!(!node.admissions.is_preempting());
    node.add("f 1", "reject(OutOfcpu) reject(f OutOfcpu)");
}

#[test]
fn waiting_ends_for_a_pod_that_does_not_end() {
    let mut node = Scenario::full();
    node.add("k! 2", "preempt(a for cpu) kill(a Preempting)");
    for _ in 1..TICKS {
        node.tick("", "");
    }
    node.tick("", "late(a) admit run(k!)");
    node.tick("a", "");
}

#[test]
fn removed_critical_pod_gives_its_resources_back() {
    let mut node = Scenario::full();
    node.add("k! 3", "preempt(a for cpu) kill(a Preempting)");
    node.remove("k!", "remove(k!)");
    node.add("c 3", "wait");
    node.tick("a", "end(a cpu) admit run(c)");
    // deleted while it waits
    node.add("k! 3", "preempt(c for cpu) kill(c Preempting)");
    let mut deleted = parse("k! 3");
    deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    node.apply(PodOp::Delete, deleted, "delete(k!)");
    node.tick("c", "end(c cpu)");
    node.add("d 3", "admit run(d)");
}

#[test]
fn removed_victim_counts_until_it_has_ended() {
    let mut node = Scenario::full();
    node.add("k! 2", "preempt(a for cpu) kill(a Preempting)");
    node.remove("a", "remove(a)");
    node.tick("", "");
    node.tick("a", "end(a cpu) admit run(k!)");
    // the API server has its terminal phase
    node.add("l! 1", "admit run(l!)");
    node.add("m! 1", "preempt(b for cpu) kill(b Preempting)");
    let mut failed = parse("b 1");
    failed.status.get_or_insert_default().phase = Some("Failed".to_owned());
    node.apply(PodOp::Reconcile, failed, "terminate(b)");
    node.tick("", "end(b cpu) admit run(m!)");
}

#[test]
fn pods_are_preempted_once_and_only_if_needed() {
    let mut node = Scenario::full();
    node.add("k! 2", "preempt(a for cpu) kill(a Preempting)");
    node.add("l! 1", "wait");
    node.add("m! 1", "preempt(b for cpu) kill(b Preempting)");
    // a critical pod does not preempt another one
    let why = "reject(UnexpectedAdmissionError) reject(n! UnexpectedAdmissionError)";
    node.add("n! 1", why);
    node.tick("b", "end(b cpu)");
    node.tick("a", "end(a cpu) admit run(k!) admit run(l!) admit run(m!)");
}

#[test]
fn critical_pod_passes_waiting_pods() {
    let mut node = Scenario::full();
    node.add("k! 1", "preempt(b for cpu) kill(b Preempting)");
    node.remove("k!", "remove(k!)");
    node.add("c 1", "wait");
    node.add("l! 1", "wait");
    node.tick(
        "b",
        "end(b cpu) admit run(l!) reject(OutOfcpu) reject(c OutOfcpu)",
    );
}

#[test]
fn waiting_pod_is_rejected_by_a_node_shutdown() {
    let mut node = Scenario::full();
    node.add("k! 2", "preempt(a for cpu) kill(a Preempting)");
    let request = TerminatePod {
        grace: None,
        reason: "the node is shutting down".to_owned(),
        phase_override: PhaseOverride {
            phase: Phase::Failed,
            reason: "Terminated".to_owned(),
            message: String::new(),
            disruption: None,
        },
    };
    let kill = Dispatch::Kill("k!".into(), request.into());
    assert_eq!(node.dispatch(kill, PodOp::Update), "reject(k! Terminated)");
    node.tick("a", "end(a cpu)");
}

#[test]
fn agent_restart_continues_a_preemption() {
    let mut node = Scenario::full();
    node.add("k! 2", "preempt(a for cpu) kill(a Preempting)");
    // an update does not lose the termination
    node.apply(PodOp::Update, parse("a 3"), "run(a)");
    let mut node = node.restarted();
    node.restore("a", "reject(a Preempting) kill(a Preempting)");
    node.restore("b", "admit run(b)");
    let restored = node.admissions.overrides.get(&"a".into());
    let cause = restored.map(|termination| termination.cause.clone());
    assert_eq!(cause, Some(preempted()));
    node.apply(PodOp::Update, parse("a 3"), "run(a)");
    node.add("k! 2", "wait");
    node.tick("", "");
    node.tick("a", "end(a) admit run(k!)");
    assert!(!node.recorded.is_empty());
    // once more, before the API server has the status of the preempted pod
    let mut node = node.restarted();
    node.restore("a", "reject(a Preempting) kill(a Preempting)");
    node.tick("a", "end(a)");
}
