//! A pod whose containers are restarted all together: what of it shows in the status
//! (KEP-5532, gate `RestartAllContainersOnContainerExits`, on by default).

use windlass_types::corev1::{
    ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, PodStatus,
};
use windlass_types::{Pod, PodExt, Reason};

use super::StatusInput;
use super::conditions::ALL_RESTARTING;
use windlass_pod_lifecycle::actions::restarts_all_containers;
use windlass_pod_lifecycle::stop::UNSEEN_EXIT_CODE;

const MESSAGE: &str = "The container is removed because RestartAllContainers in place";

/// True if some exit code makes a rule of the pod restart all its containers (upstream
/// `AllContainersCouldRestart`).
pub(super) fn could_happen(pod: &Pod) -> bool {
    let all = pod.init_containers().iter().chain(pod.containers());
    all.flat_map(|c| c.restart_policy_rules.iter().flatten())
        .any(|rule| rule.action == "RestartAllContainers")
}

/// True while containers that are missing have been removed for it. The container that asked goes
/// last; once it is gone, only the condition reported before tells.
pub(super) fn underway(input: &StatusInput<'_>, previous: &PodStatus) -> bool {
    let mut before = previous.conditions.iter().flatten();
    before.any(|c| c.type_ == ALL_RESTARTING && c.status == "True")
        || restarts_all_containers(input.pod, input.observed)
}

/// Makes the status of a container that the runtime no longer has say why. `old` is what was said
/// of it before: one that waited had not run, and stays as it is.
pub(super) fn removed(status: &mut ContainerStatus, old: &ContainerStatus) {
    status.state = Some(ContainerState {
        waiting: Some(waiting()),
        ..ContainerState::default()
    });
    status.last_state = Some(ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: UNSEEN_EXIT_CODE,
            reason: Some(Reason::RestartingAllContainers.as_str().to_owned()),
            message: Some(MESSAGE.to_owned()),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    });
    status.restart_count = old.restart_count.saturating_add(1);
}

/// True if the container was said to wait for its restart with the others.
pub(super) fn waits(status: &ContainerStatus) -> bool {
    let waiting = status.state.as_ref().and_then(|s| s.waiting.as_ref());
    waiting.and_then(|w| w.reason.as_deref()) == Some(Reason::RestartingAllContainers.as_str())
}

/// True if the end was not the container's own.
pub(super) fn ended_by_it(end: &ContainerStateTerminated) -> bool {
    end.reason.as_deref() == Some(Reason::RestartingAllContainers.as_str())
}

/// The waiting state of a container that was removed.
pub(super) fn waiting() -> ContainerStateWaiting {
    ContainerStateWaiting {
        reason: Some(Reason::RestartingAllContainers.as_str().to_owned()),
        message: Some(MESSAGE.to_owned()),
    }
}
