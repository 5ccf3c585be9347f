//! Tables of pods that wait for their allocation.

use windlass_node_rules::admission::Rejection;
use windlass_types::Phase;

use super::*;

struct Case {
    admissions: AdmittedPodSet,
    desired: DesiredPods,
    node: Node,
    policy: AdmissionPolicy,
    pressure: Pressure,
}

impl Case {
    /// A node for two pods, on which every pod needs an allocation.
    fn new() -> Self {
        Self {
            admissions: AdmittedPodSet::default(),
            desired: DesiredPods::default(),
            node: node(2),
            policy: policy(),
            pressure: Pressure::default(),
        }
    }

    fn check(&mut self, dispatch: Dispatch, runs: bool, expected: &str) {
        let scope = AllocationScope {
            every_pod: true,
            ..AllocationScope::default()
        };
        let context = AdmissionContext {
            runs,
            scope: &scope,
            pressure: self.pressure,
            ..AdmissionContext::on(&self.node, &self.policy, &self.desired)
        };
        let admission = self.admissions.admit_dispatch(dispatch, context);
        assert_eq!(admission.to_string(), expected);
    }

    fn allocated(&mut self, uid: &str, expected: &str) {
        let admission = self.admissions.allocated(&uid.into());
        let line = admission.map(|admission| admission.to_string());
        assert_eq!(line.unwrap_or_default(), expected);
    }
}

fn kill(uid: &str) -> Dispatch {
    let request = windlass_actors::TerminatePod {
        grace: None,
        reason: String::new(),
        phase_override: PhaseOverride {
            phase: Phase::Failed,
            reason: "Evicted".to_owned(),
            message: String::new(),
            disruption: None,
        },
    };
    Dispatch::Kill(uid.into(), request.into())
}

#[test]
fn pod_runs_when_it_has_its_resources() {
    let mut case = Case::new();
    case.check(pod("a", false), false, "allocate");
    case.check(pod("a", false), false, "");
    assert!(case.admissions.is_waiting(&"a".into()));
    assert!(!case.admissions.is_admitted(&"a".into()));
    // a waiting pod counts
    case.check(pod("b", true), false, "allocate");
    case.check(pod("c", false), false, "allocate-reject(OutOfpods)");
    case.check(pod("d", false), true, "allocate");
    case.allocated("a", "admit run(a)");
    case.allocated("a", "");
    case.check(pod("a", false), false, "run(a)");
    case.check(Dispatch::Remove("a".into()), false, "remove(a)");
}

#[test]
fn pod_that_will_be_rejected_does_not_count() {
    let mut case = Case::new();
    case.check(pod("a", true), false, "allocate");
    case.check(pod("b", false), false, "allocate");
    case.check(pod("c", false), false, "allocate-reject(OutOfpods)");
    // an update changes neither
    case.check(pod("c", false), false, "");
    case.check(Dispatch::Remove("b".into()), false, "remove(b)");
    case.check(pod("d", false), false, "allocate");
    let rejection = Rejection::new("OutOfpods", "no");
    let rejected = case.admissions.not_allocated(&"c".into(), rejection);
    let line = rejected.expect("an admission").to_string();
    assert_eq!(line, "reject(OutOfpods) reject(c OutOfpods)");
    // it turned out to run, and counts
    case.check(pod("e", false), false, "allocate-reject(OutOfpods)");
    case.allocated("e", "admit run(e)");
    case.check(Dispatch::Remove("d".into()), false, "remove(d)");
    case.check(pod("f", false), false, "allocate-reject(OutOfpods)");
}

#[test]
fn checks_before_the_managers_reject_at_once() {
    let mut case = Case::new();
    case.pressure.disk = true;
    case.check(pod("a", false), false, "reject(Evicted) reject(a Evicted)");
}

#[test]
fn waiting_pod_can_be_rejected_deleted_removed_or_killed() {
    let mut case = Case::new();
    case.check(pod("a", false), false, "allocate");
    let rejection = Rejection::new("TopologyAffinityError", "no");
    let rejected = case
        .admissions
        .not_allocated(&"a".into(), rejection.clone());
    let line = rejected.expect("an admission").to_string();
    assert_eq!(
        line,
        "reject(TopologyAffinityError) reject(a TopologyAffinityError)"
    );
    assert!(
        case.admissions
            .not_allocated(&"a".into(), rejection)
            .is_none()
    );
    case.check(pod("a", false), false, "run(a)");
    case.check(pod("b", false), false, "allocate");
    case.check(Dispatch::Remove("b".into()), false, "remove(b)");
    case.check(pod("c", false), false, "allocate");
    case.check(kill("c"), false, "reject(c Evicted)");
    case.check(pod("d", false), false, "allocate");
    let Dispatch::Run(shared) = pod("d", false) else {
        return;
    };
    case.check(Dispatch::Delete(shared), false, "delete(d)");
    // nothing of them counts
    case.check(pod("e", false), false, "allocate");
    case.check(pod("f", false), false, "allocate");
}
