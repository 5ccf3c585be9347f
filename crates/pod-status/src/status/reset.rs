//! Status during a restart of all containers (KEP-5532, gate
//! `RestartAllContainersOnContainerExits`, on by default).

use windlass_types::corev1::{
    ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, PodStatus,
};
use windlass_types::{Pod, PodExt, Reason};

use super::StatusInput;
use super::conditions::ALL_RESTARTING;
use windlass_pod_lifecycle::actions::restarts_all_containers;
use windlass_pod_lifecycle::stop::UNOBSERVED_EXIT_CODE;

const MESSAGE: &str = "The container is removed because RestartAllContainers in place";

/// True if a restart rule of the pod may restart all containers (upstream
/// `AllContainersCouldRestart`).
pub(super) fn is_possible(pod: &Pod) -> bool {
    let all = pod.init_containers().iter().chain(pod.containers());
    all.flat_map(|c| c.restart_policy_rules.iter().flatten())
        .any(|rule| rule.action == "RestartAllContainers")
}

/// True while missing containers were removed for the restart. After the removal of the container
/// that causes it, only the previous condition shows it.
pub(super) fn is_in_progress(input: &StatusInput<'_>, previous: &PodStatus) -> bool {
    let mut before = previous.conditions.iter().flatten();
    before.any(|c| c.type_ == ALL_RESTARTING && c.status == "True")
        || restarts_all_containers(input.pod, input.observed)
}

/// Sets the status of a container that was removed for the restart.
pub(super) fn removed(status: &mut ContainerStatus, old: &ContainerStatus) {
    status.state = Some(ContainerState {
        waiting: Some(waiting()),
        ..ContainerState::default()
    });
    status.last_state = Some(ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: UNOBSERVED_EXIT_CODE,
            reason: Some(Reason::RestartingAllContainers.as_str().to_owned()),
            message: Some(MESSAGE.to_owned()),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    });
    status.restart_count = old.restart_count.saturating_add(1);
}

/// True if the status waits for the restart of all containers.
pub(super) fn is_waiting(status: &ContainerStatus) -> bool {
    let waiting = status.state.as_ref().and_then(|s| s.waiting.as_ref());
    waiting.and_then(|w| w.reason.as_deref()) == Some(Reason::RestartingAllContainers.as_str())
}

/// True if the restart of all containers removed the container.
pub(super) fn is_removed_by_reset(end: &ContainerStateTerminated) -> bool {
    end.reason.as_deref() == Some(Reason::RestartingAllContainers.as_str())
}

/// Returns the waiting state of a removed container.
pub(super) fn waiting() -> ContainerStateWaiting {
    ContainerStateWaiting {
        reason: Some(Reason::RestartingAllContainers.as_str().to_owned()),
        message: Some(MESSAGE.to_owned()),
    }
}
