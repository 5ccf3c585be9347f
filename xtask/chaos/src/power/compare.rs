//! Comparison of the pods that are expected with those of the API server after a power cut.

use std::collections::BTreeSet;

use crate::ledger::Promise;

use super::history::PodState;

/// A pod that is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// Name in the API server.
    pub(crate) name: String,
    pub(crate) promise: Promise,
}

/// IDs of all containers: those before a cut are of instances that the cut ended.
pub(crate) fn container_ids(pods: &[PodState]) -> BTreeSet<String> {
    let all = pods.iter().flat_map(|pod| &pod.containers);
    all.map(|container| container.id.clone()).collect()
}

/// Returns what is not as expected, one line for each pod; nothing if the pods have converged.
/// `before` are the containers of earlier boots.
pub(crate) fn unmet(
    expected: &[Expected],
    pods: &[PodState],
    before: &BTreeSet<String>,
) -> Vec<String> {
    let mut lines = Vec::new();
    for Expected { name, promise } in expected {
        let line = match pods.iter().find(|pod| pod.name == *name) {
            None => Some("is not in the API server".to_owned()),
            Some(pod) => unmet_of(pod, *promise, before),
        };
        lines.extend(line.map(|line| format!("{name} {line}")));
    }
    let is_expected = |pod: &&PodState| expected.iter().any(|it| it.name == pod.name);
    let removed = pods.iter().filter(|pod| !is_expected(pod));
    lines.extend(removed.map(|pod| format!("{} is still in the API server", pod.name)));
    lines
}

fn unmet_of(pod: &PodState, promise: Promise, before: &BTreeSet<String>) -> Option<String> {
    let mut app = pod.app_containers();
    let is_new = |id: &str| !id.is_empty() && !before.contains(id);
    match promise {
        Promise::Steady if pod.phase != "Running" => Some(format!("is {}", pod.phase)),
        Promise::Steady if !pod.ready => Some("is not ready".to_owned()),
        Promise::Steady => app
            .find(|container| !is_new(&container.id))
            .map(|container| format!("has the status of an earlier boot for {}", container.name)),
        Promise::CrashLoop => app
            .find(|container| container.waiting != "CrashLoopBackOff" && !is_new(&container.id))
            .map(|container| format!("has {} neither in back-off nor restarted", container.name)),
        Promise::Task if !matches!(pod.phase.as_str(), "Succeeded" | "Failed") => {
            Some(format!("is {} and not ended", pod.phase))
        }
        Promise::Task | Promise::None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Container;
    use super::*;

    /// Name, phase, ready, container ID, reason of waiting.
    fn pod((name, phase, ready, id, waiting): (&str, &str, bool, &str, &str)) -> PodState {
        PodState {
            name: name.to_owned(),
            phase: phase.to_owned(),
            ready,
            containers: vec![Container {
                name: "main".to_owned(),
                id: id.to_owned(),
                waiting: waiting.to_owned(),
                ..Container::default()
            }],
            ..PodState::default()
        }
    }

    #[test]
    fn pods_that_have_not_converged_are_named() {
        let before: BTreeSet<String> = ["old".to_owned()].into();
        let check = |promise, seen: &[(&str, &str, bool, &str, &str)], expected: &[&str]| {
            let wanted = Expected {
                name: "a".to_owned(),
                promise,
            };
            let pods: Vec<PodState> = seen.iter().copied().map(pod).collect();
            assert_eq!(unmet(&[wanted], &pods, &before), expected, "{seen:?}");
        };
        use Promise::{CrashLoop, Steady, Task};
        check(Steady, &[], &["a is not in the API server"]);
        check(Steady, &[("a", "Running", true, "new", "")], &[]);
        check(
            Steady,
            &[("a", "Running", true, "old", "")],
            &["a has the status of an earlier boot for main"],
        );
        check(
            Steady,
            &[("a", "Running", true, "", "ContainerCreating")],
            &["a has the status of an earlier boot for main"],
        );
        check(
            Steady,
            &[("a", "Running", false, "new", "")],
            &["a is not ready"],
        );
        check(
            Steady,
            &[("a", "Failed", false, "new", "")],
            &["a is Failed"],
        );
        check(
            CrashLoop,
            &[("a", "Running", false, "old", "CrashLoopBackOff")],
            &[],
        );
        check(CrashLoop, &[("a", "Running", false, "new", "")], &[]);
        check(
            CrashLoop,
            &[("a", "Running", false, "old", "")],
            &["a has main neither in back-off nor restarted"],
        );
        check(Task, &[("a", "Succeeded", false, "old", "")], &[]);
        check(Task, &[("a", "Failed", false, "old", "")], &[]);
        check(
            Task,
            &[("a", "Running", true, "new", "")],
            &["a is Running and not ended"],
        );
        check(
            Steady,
            &[
                ("a", "Running", true, "new", ""),
                ("b", "Running", true, "new", ""),
            ],
            &["b is still in the API server"],
        );
    }

    #[test]
    fn containers_of_all_pods_are_of_earlier_boots() {
        let pods = [pod(("a", "", true, "x", "")), pod(("b", "", true, "y", ""))];
        let ids: Vec<String> = container_ids(&pods).into_iter().collect();
        assert_eq!(ids, ["x", "y"]);
    }
}
