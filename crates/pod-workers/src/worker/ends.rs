//! Counts container terminations, each once.

use windlass_metrics::Metrics;
use windlass_pod_lifecycle::actions::ContainerKind;
use windlass_types::corev1::{ContainerStateTerminated, ContainerStatus, PodStatus};

/// Counts the containers that are terminated in `new` but not in `old`. One that restarted and
/// terminated again in between is missed, as upstream.
pub(super) fn count_ends(old: &PodStatus, new: &PodStatus, metrics: &Metrics) {
    use ContainerKind::{App, Ephemeral, Init};
    for kind in [Init, App, Ephemeral] {
        let before = of_kind(old, kind);
        for status in of_kind(new, kind) {
            let known = before.iter().find(|it| it.name == status.name);
            if known.and_then(ended).is_some() {
                continue;
            }
            if let Some(end) = ended(status) {
                let code = end.exit_code.to_string();
                let reason = end.reason.as_deref().unwrap_or_default();
                let ends = &metrics.workers.terminated_containers;
                ends.with_label_values(&[kind.as_str(), &code, reason])
                    .inc();
            }
        }
    }
}

fn of_kind(status: &PodStatus, kind: ContainerKind) -> &[ContainerStatus] {
    let containers = match kind {
        ContainerKind::Init => &status.init_container_statuses,
        ContainerKind::App => &status.container_statuses,
        ContainerKind::Ephemeral => &status.ephemeral_container_statuses,
    };
    containers.as_deref().unwrap_or_default()
}

fn ended(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.state.as_ref()?.terminated.as_ref()
}

#[cfg(test)]
mod tests {
    use windlass_types::corev1::ContainerState;

    use super::*;

    fn container(name: &str, exit_code: Option<i32>) -> ContainerStatus {
        let terminated = exit_code.map(|exit_code| ContainerStateTerminated {
            exit_code,
            reason: Some("Error".into()),
            ..ContainerStateTerminated::default()
        });
        ContainerStatus {
            name: name.into(),
            state: Some(ContainerState {
                terminated,
                ..ContainerState::default()
            }),
            ..ContainerStatus::default()
        }
    }

    fn status(init: Option<i32>, app: Option<i32>) -> PodStatus {
        PodStatus {
            init_container_statuses: Some(vec![container("i", init)]),
            container_statuses: Some(vec![container("a", app), container("b", None)]),
            ..PodStatus::default()
        }
    }

    #[test]
    fn container_termination_is_counted_once() {
        let metrics = Metrics::new().expect("families");
        let counted = |kind, code| {
            let ends = &metrics.workers.terminated_containers;
            ends.with_label_values(&[kind, code, "Error"]).get() as u32
        };
        let none = PodStatus::default();
        let (runs, ended) = (status(Some(0), None), status(Some(0), Some(139)));
        let mut old = &none;
        for (new, init, app) in [
            (&runs, 1, 0),
            (&ended, 1, 1),
            (&ended, 1, 1),
            // restarted and terminated again
            (&runs, 1, 1),
            (&ended, 1, 2),
        ] {
            count_ends(old, new, &metrics);
            let seen = (counted("init_container", "0"), counted("container", "139"));
            assert_eq!(seen, (init, app));
            old = new;
        }
    }
}
