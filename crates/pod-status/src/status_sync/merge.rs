//! Merge of the local status into the API status, field by field.

use windlass_types::corev1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, PodCondition, PodStatus,
};
use windlass_types::metav1::Time;
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::view::PodWorkerState;
use windlass_types::{Pod, PodExt, Reason, Timestamp};

use super::LocalStatus;
use windlass_pod_lifecycle::actions::restarts_after_exit;
use windlass_pod_lifecycle::stop::{UNOBSERVED_EXIT_CODE, UNOBSERVED_EXIT_MESSAGE};
use windlass_types::Phase;

/// Condition types that only the node agent writes (upstream `PodConditionsByKubelet`).
const OWNED: [&str; 8] = [
    "PodReadyToStartContainers",
    "Initialized",
    READY,
    CONTAINERS_READY,
    SCHEDULED,
    "PodResizePending",
    "PodResizeInProgress",
    ALL_RESTARTING,
];
/// How the types of the conditions of a resize begin.
const RESIZE: &str = "PodResize";
const READY: &str = "Ready";
const CONTAINERS_READY: &str = "ContainersReady";
const SCHEDULED: &str = "PodScheduled";
const ALL_RESTARTING: &str = "AllContainersRestarting";
/// Written by several controllers; that of the agent has the reason `BY_KUBELET`.
const DISRUPTION_TARGET: &str = "DisruptionTarget";
const BY_KUBELET: &str = "TerminationByKubelet";

/// Conflict of the local status with the API status, which prevents its patch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("container {container} has exited without a restart and cannot be {state} again")]
pub struct StatusConflict {
    /// Name of the container.
    pub container: String,
    /// Its local state.
    pub state: &'static str,
}

/// Merges the local status into the API status. `now` is the time of changes without their own
/// time.
pub(crate) fn merge_status(
    api: &PodStatus,
    local: &LocalStatus,
    now: Timestamp,
) -> Result<PodStatus, StatusConflict> {
    let ended = local.worker == PodWorkerState::TerminatedPod;
    let pod = &*local.pod;
    let mut status = (*local.status).clone();
    carry_containers(&mut status, api, pod, ended)?;
    if ended && was_rejected(&status, api) {
        status.container_statuses = None;
        status.init_container_statuses = None;
    } else if ended {
        end_containers(&mut status, pod);
        end_phase(&mut status, pod);
    }
    carry_fields(&mut status, api, local, now);
    if local.pod.is_restored() {
        carry_sizes(&mut status, api);
    }

    let settled = Phase::is_terminal_in(api) && !mutated(Mutation::TerminalPhaseRegresses);
    let too_early = !ended && !mutated(Mutation::TerminalPhaseTooEarly);
    let withheld = !settled && Phase::is_terminal_in(&status) && too_early;
    let ends_now = !settled && Phase::is_terminal_in(&status) && !withheld;
    carry_phase(&mut status, api, settled, withheld);
    status.conditions = Some(conditions(&status, api, ends_now, now));
    Ok(status)
}

/// Keeps restart counts, last states and final exits.
fn carry_containers(
    status: &mut PodStatus,
    api: &PodStatus,
    pod: &Pod,
    ended: bool,
) -> Result<(), StatusConflict> {
    let any_restart = any_may_restart(pod);
    for (mine, theirs, specs, reruns) in [
        (
            &mut status.init_container_statuses,
            &api.init_container_statuses,
            pod.init_containers(),
            // a new sandbox reruns them; the API server accepts only their next exit
            true,
        ),
        (
            &mut status.container_statuses,
            &api.container_statuses,
            pod.containers(),
            false,
        ),
        (
            &mut status.ephemeral_container_statuses,
            &api.ephemeral_container_statuses,
            &[],
            false,
        ),
    ] {
        let Some(list) = mine else {
            // a rejected pod keeps the API status
            mine.clone_from(theirs);
            continue;
        };
        for container in list {
            let name = &container.name;
            let Some(old) = theirs.iter().flatten().find(|c| c.name == *name) else {
                continue;
            };
            if let Some(state) = final_state(old, specs, pod)
                && !any_restart
                && terminated(&container.state).is_none()
            {
                if reruns && !ended {
                    container.clone_from(old);
                    continue;
                }
                if !ended {
                    let running = container
                        .state
                        .as_ref()
                        .is_some_and(|s| s.running.is_some());
                    return Err(StatusConflict {
                        container: name.clone(),
                        state: if running { "running" } else { "waiting" },
                    });
                }
                container.state = Some(state.clone());
            }
            carry_container(container, old);
        }
    }
    Ok(())
}

fn carry_container(container: &mut ContainerStatus, old: &ContainerStatus) {
    if !mutated(Mutation::RestartCountFromRemains) {
        container.restart_count = container.restart_count.max(old.restart_count);
    }
    if terminated(&container.last_state).is_some() {
        return;
    }
    // the runtime no longer has the previous instance
    if terminated(&old.state).is_some() && terminated(&container.state).is_none() {
        container.last_state.clone_from(&old.state);
    } else if terminated(&old.last_state).is_some() {
        container.last_state.clone_from(&old.last_state);
    }
}

/// Returns the state of a container that exited without a restart.
fn final_state<'a>(
    old: &'a ContainerStatus,
    specs: &[Container],
    pod: &Pod,
) -> Option<&'a ContainerState> {
    let code = terminated(&old.state)?.exit_code;
    let spec = specs.iter().find(|spec| spec.name == old.name)?;
    (!restarts_after_exit(pod, spec, code))
        .then_some(old.state.as_ref())
        .flatten()
}

/// True if a restart rule may restart all containers.
fn any_may_restart(pod: &Pod) -> bool {
    let all = pod.init_containers().iter().chain(pod.containers());
    all.flat_map(|c| c.restart_policy_rules.iter().flatten())
        .any(|rule| rule.action == "RestartAllContainers")
}

/// Marks containers without an observed exit as failed (upstream `TerminatePod`), except those that
/// were never started.
fn end_containers(status: &mut PodStatus, pod: &Pod) {
    let lost = || {
        Some(ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code: UNOBSERVED_EXIT_CODE,
                reason: Some(Reason::ContainerStatusUnknown.as_str().to_owned()),
                message: Some(UNOBSERVED_EXIT_MESSAGE.to_owned()),
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        })
    };
    let unseen = |c: &&mut ContainerStatus| terminated(&c.state).is_none();
    if initialized(status, pod) {
        let apps = status.container_statuses.iter_mut().flatten();
        apps.filter(unseen).for_each(|c| c.state = lost());
    }
    let inits = status
        .init_container_statuses
        .as_deref()
        .unwrap_or_default();
    let reached = inits.iter().rposition(reached).unwrap_or(0) + 1;
    let inits = status.init_container_statuses.iter_mut().flatten();
    inits
        .take(reached)
        .filter(unseen)
        .for_each(|c| c.state = lost());
}

/// Sets a terminal phase, which the API server requires for the deletion; not for a static pod,
/// which may return with its manifest.
fn end_phase(status: &mut PodStatus, pod: &Pod) {
    let ends = !pod.is_static() && !mutated(Mutation::NoTerminalPhase);
    if !Phase::is_terminal_in(status) && ends {
        status.phase = Some(Phase::Failed.as_str().to_owned());
    }
}

/// True for a pod that was rejected before it had containers.
fn was_rejected(status: &PodStatus, api: &PodStatus) -> bool {
    fn all(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
        let lists = [&status.init_container_statuses, &status.container_statuses];
        lists.into_iter().flatten().flatten()
    }
    status
        .reason
        .as_ref()
        .is_some_and(|reason| !reason.is_empty())
        && all(api).next().is_none()
        && !all(status).any(|c| reached(c) || c.container_id.is_some())
}

/// True if app containers have started or could have started.
fn initialized(status: &PodStatus, pod: &Pod) -> bool {
    let completed = |state| terminated(state).is_some_and(|t| t.exit_code == 0);
    let last = status.init_container_statuses.iter().flatten().next_back();
    pod.init_containers().is_empty()
        || status.container_statuses.iter().flatten().any(reached)
        || last.is_some_and(|c| completed(&c.last_state) || completed(&c.state))
}

fn reached(container: &ContainerStatus) -> bool {
    let waits = |state: &ContainerState| state.running.is_none() && state.terminated.is_none();
    terminated(&container.last_state).is_some() || !container.state.as_ref().is_none_or(waits)
}

/// Keeps fields of other writers, and fields that are written once.
fn carry_fields(status: &mut PodStatus, api: &PodStatus, local: &LocalStatus, now: Timestamp) {
    status
        .resource_claim_statuses
        .clone_from(&api.resource_claim_statuses);
    status
        .extended_resource_claim_status
        .clone_from(&api.extended_resource_claim_status);
    status
        .node_allocatable_resource_claim_statuses
        .clone_from(&api.node_allocatable_resource_claim_statuses);
    status
        .nominated_node_name
        .clone_from(&api.nominated_node_name);
    prefer(&mut status.qos_class, &api.qos_class);
    prefer(&mut status.start_time, &api.start_time);
    status.start_time.get_or_insert(Time(now));
    status.observed_generation = status.observed_generation.max(api.observed_generation);
    if status.resources.is_none() {
        status.resources.clone_from(&api.resources);
    }
    if status.allocated_resources.is_none() {
        status
            .allocated_resources
            .clone_from(&api.allocated_resources);
    }
    if status.host_ip.is_none() {
        status.host_ip.clone_from(&api.host_ip);
        status.host_ips.clone_from(&api.host_ips);
    }
    // a terminating pod keeps its address
    let stops = local.worker != PodWorkerState::SyncPod || Phase::is_terminal_in(status);
    if status.pod_ip.is_none() && (stops || Phase::is_terminal_in(api)) {
        status.pod_ip.clone_from(&api.pod_ip);
        status.pod_ips.clone_from(&api.pod_ips);
    }
}

/// Keeps the sizes and the state of a resize: a pod of the checkpoint has older ones than the API
/// server.
fn carry_sizes(status: &mut PodStatus, api: &PodStatus) {
    status.resources.clone_from(&api.resources);
    for (mine, theirs) in [
        (
            &mut status.init_container_statuses,
            &api.init_container_statuses,
        ),
        (&mut status.container_statuses, &api.container_statuses),
    ] {
        for container in mine.iter_mut().flatten() {
            let mut theirs = theirs.iter().flatten();
            if let Some(known) = theirs.find(|it| it.name == container.name) {
                container.resources.clone_from(&known.resources);
                container
                    .allocated_resources
                    .clone_from(&known.allocated_resources);
            }
        }
    }
    let of_resize = |condition: &PodCondition| condition.type_.starts_with(RESIZE);
    let known = api.conditions.iter().flatten();
    let known: Vec<_> = known.filter(|it| of_resize(it)).cloned().collect();
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| !of_resize(condition));
        conditions.extend(known);
    }
}

/// Keeps the first value.
fn prefer<T: Clone>(mine: &mut Option<T>, first: &Option<T>) {
    if first.is_some() {
        mine.clone_from(first);
    }
}

/// Keeps a terminal phase, and withholds one until the worker has terminated the pod.
fn carry_phase(status: &mut PodStatus, api: &PodStatus, settled: bool, withheld: bool) {
    if settled && status.phase == api.phase {
        status.reason = status.reason.take().or_else(|| api.reason.clone());
        status.message = status.message.take().or_else(|| api.message.clone());
    } else if settled || withheld {
        let pending = || Some("Pending".to_owned());
        status.phase = api.phase.clone().or_else(pending);
        status.reason.clone_from(&api.reason);
        status.message.clone_from(&api.message);
    }
}

/// Returns the conditions of other writers, then those of the agent. `ends_now`: this status
/// publishes the terminal phase.
fn conditions(
    status: &PodStatus,
    api: &PodStatus,
    ends_now: bool,
    now: Timestamp,
) -> Vec<PodCondition> {
    let before = api.conditions.as_deref().unwrap_or_default();
    let local_conditions = status.conditions.as_deref().unwrap_or_default();
    let owned = |c: &&PodCondition| OWNED.contains(&c.type_.as_str());
    let mut list: Vec<PodCondition> = before.iter().filter(|c| !owned(c)).cloned().collect();

    let disruption = local_conditions
        .iter()
        .find(|c| c.type_ == DISRUPTION_TARGET);
    if let Some(disruption) =
        disruption.filter(|c| ends_now && c.reason.as_deref() == Some(BY_KUBELET))
    {
        let mut mine = disruption.clone();
        // it becomes visible now
        mine.last_transition_time = Some(Time(now));
        list.retain(|c| c.type_ != DISRUPTION_TARGET);
        list.push(since(mine, before));
    }
    let mut ours: Vec<PodCondition> = local_conditions.iter().filter(owned).cloned().collect();
    // a rejected pod has no conditions of the agent, as upstream
    if !ours.is_empty() && !ours.iter().any(|c| c.type_ == SCHEDULED) {
        ours.extend(before.iter().find(|c| c.type_ == SCHEDULED).cloned());
    }
    for mut condition in ours {
        let terminal_reason = match Phase::from_status(status) {
            Some(Phase::Succeeded) => Some("PodCompleted"),
            Some(Phase::Failed) => Some("PodFailed"),
            _ => None,
        };
        if let Some(reason) = terminal_reason
            && [READY, CONTAINERS_READY, ALL_RESTARTING].contains(&condition.type_.as_str())
            && condition.status == "True"
        {
            condition.status = "False".to_owned();
            condition.reason = Some(reason.to_owned());
            condition.message = None;
            condition.last_transition_time = Some(Time(now));
        }
        condition.last_transition_time.get_or_insert(Time(now));
        list.push(since(condition, before));
    }
    list
}

/// Keeps the transition time of a condition with an unchanged status. Those of a resize are always
/// true; their time is that of their reason.
fn since(mut condition: PodCondition, before: &[PodCondition]) -> PodCondition {
    if condition.type_.starts_with(RESIZE) {
        return condition;
    }
    let same = |c: &&PodCondition| c.type_ == condition.type_ && c.status == condition.status;
    if let Some(time) = before.iter().find(same).map(|c| &c.last_transition_time) {
        prefer(&mut condition.last_transition_time, time);
    }
    condition
}

fn terminated(state: &Option<ContainerState>) -> Option<&ContainerStateTerminated> {
    state.as_ref()?.terminated.as_ref()
}
