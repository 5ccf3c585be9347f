//! Invariants of the status for any pod, observation and probe results.

use super::*;

/// A pod with observations and probe results over time.
fn any_history() -> impl Strategy<Value = (ProbedPod, Vec<Observation>)> {
    (
        any_probed_pod(),
        proptest::collection::vec(any_observation(), 1..6),
    )
}

/// A pod with probes and restart rules.
#[derive(Clone, Debug)]
struct ProbedPod {
    text: String,
    probes: Vec<(usize, bool, bool)>,
    rule: Option<usize>,
    gated: bool,
    fixed: bool,
}

fn any_probed_pod() -> impl Strategy<Value = ProbedPod> {
    let probes = proptest::collection::vec((0..5_usize, any::<bool>(), any::<bool>()), 0..4);
    let rule = proptest::option::weighted(0.3, 0..5_usize);
    (any_pod(), probes, rule, any::<bool>(), any::<bool>()).prop_map(
        |(text, probes, rule, gated, fixed)| ProbedPod {
            text,
            probes,
            rule,
            gated,
            fixed,
        },
    )
}

#[derive(Clone, Debug)]
struct Observation {
    found: String,
    probe_results: Vec<(bool, usize, bool)>,
    gate: bool,
    over: bool,
}

fn any_observation() -> impl Strategy<Value = Observation> {
    let probe_results = proptest::collection::vec((any::<bool>(), 0..5_usize, any::<bool>()), 0..6);
    (
        any_found(),
        probe_results,
        any::<bool>(),
        proptest::bool::weighted(0.1),
    )
        .prop_map(|(found, probe_results, gate, over)| Observation {
            found,
            probe_results,
            gate,
            over,
        })
}

const NAMES: [&str; 5] = ["i", "j", "s", "a", "b"];

impl ProbedPod {
    fn at(&self, observation: &Observation) -> Case {
        let mut case = Case::new(&self.text, &observation.found);
        for (index, readiness, startup) in &self.probes {
            let Some(spec) = case.find_spec(NAMES[*index]) else {
                continue;
            };
            spec.readiness_probe = readiness.then(Probe::default);
            spec.startup_probe = startup.then(Probe::default);
        }
        if let Some(index) = self.rule
            && case.find_spec(NAMES[index]).is_some()
        {
            case.rule(NAMES[index], "RestartAllContainers", "In", &[1]);
        }
        if self.gated {
            let gate = PodReadinessGate {
                condition_type: "lb".into(),
            };
            case.pod.spec.get_or_insert_default().readiness_gates = Some(vec![gate]);
            case.pod.status.get_or_insert_default().conditions = Some(vec![PodCondition {
                type_: "lb".into(),
                status: if observation.gate { "True" } else { "False" }.into(),
                ..PodCondition::default()
            }]);
        }
        if self.fixed {
            let mark = ("kubernetes.io/config.source".to_owned(), "file".to_owned());
            case.pod.metadata.annotations = Some([mark].into());
        }
        for (readiness, index, ok) in &observation.probe_results {
            let kind = match readiness {
                true => ProbeKind::Readiness,
                false => ProbeKind::Startup,
            };
            if case.observed.latest(NAMES[*index]).is_some() {
                case.probed(kind, NAMES[*index], *ok);
            }
        }
        case.terminal = observation.over;
        case
    }
}

fn is_true(status: &PodStatus, type_: &str) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|c| c.type_ == type_ && c.status == "True")
}

fn all(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let lists = [&status.init_container_statuses, &status.container_statuses];
    lists.into_iter().flatten().flatten()
}

/// Asserts the invariants of a status.
fn assert_sound(case: &Case, status: &PodStatus) {
    let line = status_line(status);
    if is_true(status, "Ready") {
        assert!(is_true(status, "ContainersReady"), "{line}");
        assert!(is_true(status, "Initialized"), "{line}");
    }
    let phase = Phase::from_status(status);
    let phase = phase.expect("a phase");
    if phase.is_terminal() {
        assert!(!is_true(status, "Ready"), "{line}");
        assert!(!is_true(status, "ContainersReady"), "{line}");
    }
    for container in all(status) {
        let state = container.state.as_ref().expect("a state");
        let states = [
            state.running.is_some(),
            state.waiting.is_some(),
            state.terminated.is_some(),
        ];
        assert_eq!(states.iter().filter(|s| **s).count(), 1, "{line}");
        let init = case.pod.init_containers().iter();
        let ordinary = init
            .filter(|c| c.restart_policy.is_none())
            .any(|c| c.name == container.name);
        if container.ready && !ordinary {
            assert!(container.started == Some(true), "{line}");
            assert!(state.running.is_some(), "{line}");
        }
    }
    let spec = PodExt::spec(&case.pod);
    let expected = spec.containers.len() + spec.init_containers.as_ref().map_or(0, Vec::len);
    assert_eq!(all(status).count(), expected, "{line}");
}

/// Asserts the invariants of two consecutive statuses.
fn assert_continues(old: &PodStatus, new: &PodStatus) {
    let lines = || format!("{} -> {}", status_line(old), status_line(new));
    for (new, old) in all(new).zip(all(old)) {
        assert_eq!(new.name, old.name);
        assert!(new.restart_count >= old.restart_count, "{}", lines());
        let ended = |c: &ContainerStatus| {
            c.last_state
                .as_ref()
                .is_some_and(|s| s.terminated.is_some())
        };
        assert!(!ended(old) || ended(new), "{}", lines());
    }
    let phase = |s: &PodStatus| Phase::from_status(s);
    if phase(old).is_some_and(Phase::is_terminal) {
        assert_eq!(phase(new), phase(old), "{}", lines());
    }
    assert_eq!(old.start_time, new.start_time);
    if is_true(old, "Initialized") {
        assert!(is_true(new, "Initialized"), "{}", lines());
    }
    for new in new.conditions.iter().flatten() {
        let mut before = old.conditions.iter().flatten();
        let Some(old) = before.find(|c| c.type_ == new.type_) else {
            continue;
        };
        if old.status == new.status {
            assert_eq!(old.last_transition_time, new.last_transition_time);
        } else if new.type_ != "lb" {
            assert!(old.last_transition_time < new.last_transition_time);
        }
    }
}

proptest! {
    #[test]
    fn status_generation_is_idempotent(
        pod in any_probed_pod(),
        observation in any_observation(),
    ) {
        let first = pod.at(&observation).status();
        let again = pod.at(&observation).with(|c| c.previous = Some(first.clone()));
        prop_assert_eq!(again.status_at(9000), first);
    }

    #[test]
    fn restart_count_and_terminal_phase_never_revert(
        (pod, observations) in any_history(),
    ) {
        let mut previous: Option<PodStatus> = None;
        for (i, observation) in observations.iter().enumerate() {
            let case = pod.at(observation).with(|c| c.previous = previous.take());
            let status = case.status_at(5000 + 10 * i as i64);
            assert_sound(&case, &status);
            if let Some(old) = &case.previous {
                assert_continues(old, &status);
            }
            let again = pod.at(observation).with(|c| c.previous = Some(status.clone()));
            prop_assert_eq!(again.status_at(9000), status.clone());
            // the blocker of any history is at most one line
            let _ = case.blocker();
            previous = Some(status);
        }
    }
}
