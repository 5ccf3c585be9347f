//! Container statuses (upstream `convertToAPIContainerStatuses` and `UpdatePodStatus`).

use windlass_types::corev1::{
    Container, ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, PodStatus,
};
use windlass_types::metav1::Time;
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::{ContainerState, ObservedContainer, PodExt, Reason, Timestamp};

use super::exit_reason::exit_reason;
use super::readiness::set_readiness;
use super::{StatusInput, fields, reset, whole_seconds};
use windlass_pod_lifecycle::actions::{
    as_container, ephemeral_containers, restarts_all_containers, should_be_started,
};
use windlass_pod_lifecycle::stop::{UNOBSERVED_EXIT_CODE, UNOBSERVED_EXIT_MESSAGE};
use windlass_types::pod::is_sidecar;
use windlass_units::duration::go_duration;

/// Upstream's message for a removed container that ran.
const REMOVED_MESSAGE: &str = "The container could not be located when the pod was deleted.  \
                               The container used to be Running";
/// Upstream's message for a removed init container of an initialized pod.
const INITIALIZED_MESSAGE: &str = "Unable to get init container status from container runtime \
                                   and pod has been initialized, treat it as exited normally";

/// The three lists of a pod status.
pub(super) struct Lists {
    /// In spec order.
    pub(super) init: Vec<ContainerStatus>,
    /// By name.
    pub(super) app: Vec<ContainerStatus>,
    /// By name.
    pub(super) ephemeral: Vec<ContainerStatus>,
}

/// List of a container.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Init,
    App,
    Ephemeral,
}

pub(super) fn statuses(input: &StatusInput<'_>, previous: &PodStatus) -> Lists {
    let removing = reset::is_in_progress(input, previous);
    let list = |kind, specs: &[Container], before: &Option<Vec<ContainerStatus>>| {
        let before = before.as_deref().unwrap_or_default();
        let one = |spec: &Container| {
            let old = before.iter().find(|s| s.name == spec.name);
            status(input, kind, spec, old, removing)
        };
        specs.iter().map(one).collect::<Vec<_>>()
    };
    let pod = input.pod;
    let ephemeral = ephemeral_containers(pod).iter().map(as_container);
    let ephemeral: Vec<Container> = ephemeral.collect();
    let mut lists = Lists {
        init: list(
            Kind::Init,
            pod.init_containers(),
            &previous.init_container_statuses,
        ),
        app: list(Kind::App, pod.containers(), &previous.container_statuses),
        ephemeral: list(
            Kind::Ephemeral,
            &ephemeral,
            &previous.ephemeral_container_statuses,
        ),
    };
    lists.app.sort_by(|a, b| a.name.cmp(&b.name));
    lists.ephemeral.sort_by(|a, b| a.name.cmp(&b.name));
    lists
}

/// Returns the status of a container. `removing`: a restart of all containers removes missing ones.
fn status(
    input: &StatusInput<'_>,
    kind: Kind,
    spec: &Container,
    old: Option<&ContainerStatus>,
    removing: bool,
) -> ContainerStatus {
    let latest = input.observed.latest(&spec.name);
    let mut status = match latest {
        Some(latest) => from_runtime(input, spec, latest, old, removing),
        None => without_runtime(input, kind, spec, old, removing),
    };
    let ended = status
        .state
        .as_ref()
        .is_some_and(|s| s.terminated.is_some());
    // completed init containers and exited ephemeral containers are not restarted
    let over = match kind {
        Kind::Init => latest.is_some_and(is_completed) && !is_sidecar(spec),
        Kind::App => false,
        Kind::Ephemeral => ended,
    };
    if !over
        && !input.terminal
        && input.pod.metadata.deletion_timestamp.is_none()
        && should_be_started(input.pod, spec, latest)
        && let Some((reason, message)) = waiting_reason(input, &spec.name)
    {
        if ended {
            status.last_state = status.state.take();
        }
        status.state = Some(waiting(reason, Some(message)));
    }
    set_readiness(input, kind, spec, old, &mut status);
    status
}

fn is_completed(instance: &ObservedContainer) -> bool {
    instance.state == ContainerState::Exited && instance.exit_code == 0
}

/// Returns the reason why a container has not started; a back-off precedes the error of the last
/// attempt.
fn waiting_reason(input: &StatusInput<'_>, name: &str) -> Option<(Reason, String)> {
    if let Some(wait) = input.backing_off.iter().find(|b| b.name == name) {
        let pod = input.pod;
        let message = format!(
            "back-off {} restarting failed container={name} pod={}({})",
            go_duration(wait.delay),
            pod.full_name(),
            pod.uid()
        );
        return Some((wait.reason, message));
    }
    input.failures.get(name).cloned()
}

/// Returns the status of a container in the runtime.
fn from_runtime(
    input: &StatusInput<'_>,
    spec: &Container,
    latest: &ObservedContainer,
    old: Option<&ContainerStatus>,
    removing: bool,
) -> ContainerStatus {
    let id = container_id(input, latest);
    let same = old.filter(|o| o.container_id.as_ref() == Some(&id));
    let other_ended = old.filter(|o| same.is_none() && is_terminated(&o.state));
    let old_running = old.filter(|o| o.state.as_ref().is_some_and(|s| s.running.is_some()));
    let known = old.map_or(0, |o| o.restart_count);
    let mut restarts = i32::try_from(latest.restart_count).unwrap_or(i32::MAX);
    let known = match mutated(Mutation::RestartCountFromRemains) {
        true => {
            restarts = i32::try_from(input.observed.instances(&spec.name).count()).unwrap_or(0) - 1;
            0
        }
        false => known,
    };
    let state = match latest.state {
        ContainerState::Running => {
            // the runtime may have lost the previous instances and their count
            if other_ended.is_some() && restarts <= known {
                restarts = known.saturating_add(1);
            }
            running(latest)
        }
        ContainerState::Exited => terminated(input, latest, old),
        ContainerState::Created => {
            // not a restart yet: after a kill of the agent it is removed, and no other status has
            // its count
            restarts = restarts.saturating_sub(1).max(0);
            waiting(default_reason(input), None)
        }
        // the exit of a container must not look like a container that never ran
        ContainerState::Unknown if old_running.is_some() => {
            restarts = restarts.max(known.saturating_add(1));
            let reason = match removing {
                true => Reason::RestartingAllContainers,
                false => Reason::ContainerStatusUnknown,
            };
            unobserved_exit(reason, UNOBSERVED_EXIT_MESSAGE)
        }
        ContainerState::Unknown => same
            .and_then(|o| o.state.clone())
            .filter(|s| s.terminated.is_some())
            .unwrap_or_else(|| waiting(default_reason(input), None)),
    };
    let older = input
        .observed
        .instances(&spec.name)
        .skip(1)
        .find(|i| i.state == ContainerState::Exited);
    let last_state = match older {
        Some(older) => Some(terminated(input, older, old)),
        None => match other_ended {
            Some(ended) => ended.state.clone(),
            None => old.and_then(|o| o.last_state.clone()),
        },
    };
    ContainerStatus {
        name: spec.name.clone(),
        restart_count: restarts.max(known),
        image: latest.image.clone(),
        image_id: latest.image_id.clone(),
        container_id: Some(id),
        state: Some(state),
        last_state,
        allocated_resources: fields::allocated(spec),
        resources: Some(fields::resources(
            spec,
            latest,
            same,
            input.sizes.in_progress.is_some(),
        )),
        stop_signal: fields::stop_signal(latest).filter(|_| input.stop_signals),
        user: fields::user(latest),
        volume_mounts: fields::volume_mounts(spec, Some(latest)),
        ..ContainerStatus::default()
    }
}

/// Returns the status of a container that was never created, or removed.
fn without_runtime(
    input: &StatusInput<'_>,
    kind: Kind,
    spec: &Container,
    old: Option<&ContainerStatus>,
    removing: bool,
) -> ContainerStatus {
    let mut status = ContainerStatus {
        name: spec.name.clone(),
        image: spec.image.clone().unwrap_or_default(),
        state: Some(waiting(default_reason(input), None)),
        restart_count: old.map_or(0, |o| o.restart_count),
        last_state: old.and_then(|o| o.last_state.clone()),
        volume_mounts: fields::volume_mounts(spec, None),
        ..ContainerStatus::default()
    };
    let Some(old) = old else {
        if kind == Kind::Init {
            assume_completed(input, spec, &mut status);
        }
        return status;
    };
    let was_running = old.state.as_ref().is_some_and(|s| s.running.is_some());
    let had_ended = is_terminated(&old.state);
    if removing && kind != Kind::Ephemeral && (was_running || had_ended) {
        reset::removed(&mut status, old);
        return status;
    }
    if had_ended && !mutated(Mutation::TerminalPhaseRegresses) {
        return old.clone();
    }
    if reset::is_waiting(old) {
        status.state.clone_from(&old.state);
        return status;
    }
    if kind == Kind::Ephemeral && was_running {
        // it runs once
        return ContainerStatus {
            state: Some(unobserved_exit(
                Reason::ContainerStatusUnknown,
                REMOVED_MESSAGE,
            )),
            ..old.clone()
        };
    }
    if kind == Kind::Init && assume_completed(input, spec, &mut status) {
        return status;
    }
    if was_running && !is_terminated(&status.last_state) {
        // as the last state, because the container waits for its next run
        status.last_state = Some(unobserved_exit(
            Reason::ContainerStatusUnknown,
            REMOVED_MESSAGE,
        ));
        if input.pod.metadata.deletion_timestamp.is_none() {
            status.restart_count = status.restart_count.saturating_add(1);
        }
    }
    status
}

/// Reports a removed init container as completed if an app container was created.
fn assume_completed(
    input: &StatusInput<'_>,
    spec: &Container,
    status: &mut ContainerStatus,
) -> bool {
    let apps = input.pod.containers();
    let past = || {
        apps.iter()
            .any(|c| input.observed.latest(&c.name).is_some())
    };
    // a restart of all containers removes init containers too
    let removing = restarts_all_containers(input.pod, input.observed);
    if is_sidecar(spec) || !past() || removing {
        return false;
    }
    status.state = Some(ApiState {
        terminated: Some(ContainerStateTerminated {
            reason: Some(Reason::Completed.as_str().to_owned()),
            message: Some(INITIALIZED_MESSAGE.to_owned()),
            ..ContainerStateTerminated::default()
        }),
        ..ApiState::default()
    });
    true
}

fn is_terminated(state: &Option<ApiState>) -> bool {
    state.as_ref().is_some_and(|s| s.terminated.is_some())
}

fn default_reason(input: &StatusInput<'_>) -> Reason {
    if input.pod.init_containers().is_empty() {
        Reason::ContainerCreating
    } else {
        Reason::PodInitializing
    }
}

fn waiting(reason: Reason, message: Option<String>) -> ApiState {
    ApiState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(reason.as_str().to_owned()),
            message: message.filter(|m| !m.is_empty()),
        }),
        ..ApiState::default()
    }
}

fn running(instance: &ObservedContainer) -> ApiState {
    ApiState {
        running: Some(ContainerStateRunning {
            started_at: instance.started_at.map(time),
        }),
        ..ApiState::default()
    }
}

/// Returns the end of an instance. `old` is the previous status of the container.
fn terminated(
    input: &StatusInput<'_>,
    instance: &ObservedContainer,
    old: Option<&ContainerStatus>,
) -> ApiState {
    let id = container_id(input, instance);
    let states = old
        .into_iter()
        .flat_map(|old| [&old.state, &old.last_state]);
    let mut ends = states
        .flatten()
        .filter_map(|state| state.terminated.as_ref());
    let known = ends.find(|end| end.container_id.as_ref() == Some(&id));
    let reason = exit_reason(instance, known);
    ApiState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(id),
            exit_code: instance.exit_code,
            started_at: instance.started_at.map(time),
            finished_at: instance.finished_at.map(time),
            reason: Some(reason.to_owned()),
            message: Some(instance.message.clone()).filter(|m| !m.is_empty()),
            signal: None,
        }),
        ..ApiState::default()
    }
}

fn unobserved_exit(reason: Reason, message: &str) -> ApiState {
    ApiState {
        terminated: Some(ContainerStateTerminated {
            exit_code: UNOBSERVED_EXIT_CODE,
            reason: Some(reason.as_str().to_owned()),
            message: Some(message.to_owned()),
            ..ContainerStateTerminated::default()
        }),
        ..ApiState::default()
    }
}

fn container_id(input: &StatusInput<'_>, instance: &ObservedContainer) -> String {
    format!("{}://{}", input.runtime_name, instance.id)
}

fn time(time: Timestamp) -> Time {
    Time(whole_seconds(time))
}

/// Formats a container as `name:state<last state>#restarts`, `*` for ready.
pub(super) fn line(status: &ContainerStatus) -> String {
    let state = |state: &Option<ApiState>| match state {
        Some(s) if s.running.is_some() => "running".to_owned(),
        Some(ApiState {
            terminated: Some(t),
            ..
        }) => format!(
            "{}={}",
            t.reason.as_deref().unwrap_or("terminated"),
            t.exit_code
        ),
        Some(ApiState {
            waiting: Some(w), ..
        }) => w.reason.clone().unwrap_or_else(|| "waiting".to_owned()),
        _ => String::new(),
    };
    let last = match state(&status.last_state) {
        last if last.is_empty() => last,
        last => format!("<{last}>"),
    };
    format!(
        "{}:{}{last}#{}{}",
        status.name,
        state(&status.state),
        status.restart_count,
        if status.ready { "*" } else { "" }
    )
}
