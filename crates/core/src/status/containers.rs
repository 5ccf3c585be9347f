//! Container statuses (upstream `convertToAPIContainerStatuses` and the probe manager's part).

use windlass_types::corev1::{
    Container, ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, PodStatus, Probe, VolumeMount, VolumeMountStatus,
};
use windlass_types::metav1::Time;
use windlass_types::{ContainerState, ObservedContainer, PodExt, ProbeKind, Reason, Timestamp};

use super::{StatusInput, whole_seconds};
use crate::actions::{is_sidecar, should_be_started};

/// Exit code of a container whose end nobody saw.
const LOST: i32 = 137;

/// The three lists of a pod status.
pub(super) struct Lists {
    /// In spec order.
    pub(super) init: Vec<ContainerStatus>,
    /// By name.
    pub(super) app: Vec<ContainerStatus>,
    /// By name.
    pub(super) ephemeral: Vec<ContainerStatus>,
}

/// Which list a container is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Init,
    App,
    Ephemeral,
}

pub(super) fn statuses(input: &StatusInput<'_>, previous: &PodStatus) -> Lists {
    let list = |kind, specs: &[Container], before: &Option<Vec<ContainerStatus>>| {
        let before = before.as_deref().unwrap_or_default();
        let one = |spec: &Container| {
            let old = before.iter().find(|s| s.name == spec.name);
            status(input, kind, spec, old)
        };
        specs.iter().map(one).collect::<Vec<_>>()
    };
    let pod = input.pod;
    let ephemeral: Vec<Container> = PodExt::spec(pod)
        .ephemeral_containers
        .iter()
        .flatten()
        .map(|e| Container {
            name: e.name.clone(),
            image: e.image.clone(),
            ..Container::default()
        })
        .collect();
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

fn status(
    input: &StatusInput<'_>,
    kind: Kind,
    spec: &Container,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    let latest = input.observed.latest(&spec.name);
    let mut status = match latest {
        Some(latest) => from_runtime(input, spec, latest, old),
        None => without_runtime(input, kind, spec, old),
    };
    let completed_init =
        kind == Kind::Init && latest.is_some_and(is_completed) && !is_sidecar(spec);
    if !completed_init
        && kind != Kind::Ephemeral
        && !input.terminal
        && input.pod.metadata.deletion_timestamp.is_none()
        && should_be_started(input.pod, spec, latest)
        && let Some((reason, message)) = waiting_reason(input, &spec.name)
    {
        if status
            .state
            .as_ref()
            .is_some_and(|s| s.terminated.is_some())
        {
            status.last_state = status.state.take();
        }
        status.state = Some(waiting(reason, Some(message)));
    }
    set_readiness(input, kind, spec, &mut status);
    status
}

fn is_completed(instance: &ObservedContainer) -> bool {
    instance.state == ContainerState::Exited && instance.exit_code == 0
}

/// Why the next start of a container has not happened. A delayed restart was not tried at all,
/// so it comes before what went wrong in an earlier try.
fn waiting_reason(input: &StatusInput<'_>, name: &str) -> Option<(Reason, String)> {
    if let Some(wait) = input.backing_off.iter().find(|b| b.name == name) {
        let pod = input.pod;
        let message = format!(
            "back-off {} restarting failed container={name} pod={}({})",
            go_duration(wait.delay.as_secs()),
            pod.full_name(),
            pod.uid()
        );
        return Some((wait.reason, message));
    }
    input.failures.get(name).cloned()
}

/// The status of a container the runtime knows.
fn from_runtime(
    input: &StatusInput<'_>,
    spec: &Container,
    latest: &ObservedContainer,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    let id = container_id(input, latest);
    let same = old.filter(|o| o.container_id.as_ref() == Some(&id));
    let old_running = old.is_some_and(|o| o.state.as_ref().is_some_and(|s| s.running.is_some()));
    let state = match latest.state {
        ContainerState::Running => running(latest),
        ContainerState::Exited => terminated(input, latest),
        ContainerState::Created => waiting(default_reason(input), None),
        // The end of a container that ran must not look like a container that never ran.
        ContainerState::Unknown if old_running => lost(
            "The runtime does not know the state of this container, which was running when last seen",
        ),
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
        Some(older) => Some(terminated(input, older)),
        None => old.and_then(|o| match &o.state {
            Some(state) if state.terminated.is_some() && same.is_none() => Some(state.clone()),
            _ => o.last_state.clone(),
        }),
    };
    let known = old.map_or(0, |o| o.restart_count);
    ContainerStatus {
        name: spec.name.clone(),
        restart_count: i32::try_from(latest.restart_count)
            .unwrap_or(i32::MAX)
            .max(known),
        image: latest.image.clone(),
        image_id: latest.image_id.clone(),
        container_id: Some(id),
        state: Some(state),
        last_state,
        allocated_resources: spec.resources.as_ref().and_then(|r| r.requests.clone()),
        resources: spec.resources.clone(),
        volume_mounts: volume_mounts(spec),
        ..ContainerStatus::default()
    }
}

/// The status of a container the runtime does not know: never created, or removed.
fn without_runtime(
    input: &StatusInput<'_>,
    kind: Kind,
    spec: &Container,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    let old_state = old.and_then(|o| o.state.as_ref());
    if let Some(old) = old.filter(|_| old_state.is_some_and(|s| s.terminated.is_some())) {
        return old.clone();
    }
    let mut status = ContainerStatus {
        name: spec.name.clone(),
        image: spec.image.clone().unwrap_or_default(),
        state: Some(waiting(default_reason(input), None)),
        restart_count: old.map_or(0, |o| o.restart_count),
        last_state: old.and_then(|o| o.last_state.clone()),
        volume_mounts: volume_mounts(spec),
        ..ContainerStatus::default()
    };
    let app_created = || {
        let apps = input.pod.containers();
        apps.iter()
            .any(|c| input.observed.latest(&c.name).is_some())
    };
    if kind == Kind::Init && !is_sidecar(spec) && app_created() {
        status.state = Some(ApiState {
            terminated: Some(ContainerStateTerminated {
                reason: Some(Reason::Completed.as_str().to_owned()),
                message: Some(
                    "The runtime no longer knows this init container; the pod got past it, so it \
                     completed"
                        .to_owned(),
                ),
                ..ContainerStateTerminated::default()
            }),
            ..ApiState::default()
        });
        return status;
    }
    let was_running = old_state.is_some_and(|s| s.running.is_some());
    let has_last = |s: &ContainerStatus| {
        let last = s.last_state.as_ref();
        last.is_some_and(|l| l.terminated.is_some())
    };
    if was_running && !has_last(&status) {
        // As the last state: the container waits, but it is not one that never ran.
        status.last_state = Some(lost(
            "The runtime no longer knows this container, which was running when last seen",
        ));
        if input.pod.metadata.deletion_timestamp.is_none() {
            status.restart_count += 1;
        }
    }
    status
}

/// `ready` and `started`, as upstream's probe manager fills them in.
fn set_readiness(
    input: &StatusInput<'_>,
    kind: Kind,
    spec: &Container,
    status: &mut ContainerStatus,
) {
    let state = status.state.as_ref();
    let running = state.is_some_and(|s| s.running.is_some());
    // what a probe of the spec has not said yet is no
    let says = |kind, probe: &Option<Probe>| {
        let latest = input.observed.latest(&spec.name);
        let verdict =
            latest.and_then(|latest| input.verdicts.verdict(kind, &spec.name, &latest.id));
        verdict.unwrap_or(probe.is_none())
    };
    let started = running && says(ProbeKind::Startup, &spec.startup_probe);
    let exit_code = state
        .and_then(|s| s.terminated.as_ref())
        .map(|t| t.exit_code);
    status.ready = match kind {
        Kind::Init if !is_sidecar(spec) => exit_code == Some(0),
        Kind::Ephemeral => false,
        Kind::Init | Kind::App => started && says(ProbeKind::Readiness, &spec.readiness_probe),
    };
    status.started = Some(started);
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

fn terminated(input: &StatusInput<'_>, instance: &ObservedContainer) -> ApiState {
    let reason = match (instance.reason.as_str(), instance.exit_code) {
        ("", 0) => Reason::Completed.as_str(),
        ("", _) => Reason::Error.as_str(),
        (text, _) => text,
    };
    ApiState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(container_id(input, instance)),
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

fn lost(message: &str) -> ApiState {
    ApiState {
        terminated: Some(ContainerStateTerminated {
            exit_code: LOST,
            reason: Some(Reason::ContainerStatusUnknown.as_str().to_owned()),
            message: Some(message.to_owned()),
            ..ContainerStateTerminated::default()
        }),
        ..ApiState::default()
    }
}

fn container_id(input: &StatusInput<'_>, instance: &ObservedContainer) -> String {
    format!("{}://{}", input.runtime_name, instance.id)
}

fn volume_mounts(spec: &Container) -> Option<Vec<VolumeMountStatus>> {
    let one = |m: &VolumeMount| VolumeMountStatus {
        name: m.name.clone(),
        mount_path: m.mount_path.clone(),
        read_only: m.read_only.filter(|r| *r),
        // Recursive read-only mounts are not supported yet, whatever the mount asks for.
        recursive_read_only: m.read_only.filter(|r| *r).map(|_| "Disabled".to_owned()),
        volume_status: None,
    };
    super::non_empty(spec.volume_mounts.iter().flatten().map(one).collect())
}

fn time(time: Timestamp) -> Time {
    Time(whole_seconds(time))
}

/// Whole seconds as Go prints a duration: `40s`, `1m20s`, `5m0s`.
pub(super) fn go_duration(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s}s"),
        (h, m, s) => format!("{h}h{m}m{s}s"),
    }
}

/// One container as `name:state#restarts`, `*` for ready, the last state in brackets.
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
