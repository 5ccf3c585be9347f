//! The phase of a pod, from the states of its containers (upstream `getPhase`).

use windlass_types::corev1::{
    Container, ContainerState as ApiState, ContainerStateTerminated, ContainerStatus,
};
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::{ContainerState, Phase, PodExt};

use super::{StatusInput, reset};
use windlass_pod_lifecycle::actions::{restarts_after_exit, restarts_all_containers};
use windlass_types::pod::is_sidecar;

enum Progress<'a> {
    Running,
    /// Not running; the end of its last run.
    Stopped(&'a ContainerStateTerminated),
    /// Never ran.
    Waiting,
}

fn progress(status: &ContainerStatus) -> Progress<'_> {
    fn end(state: &Option<ApiState>) -> Option<&ContainerStateTerminated> {
        state.as_ref()?.terminated.as_ref()
    }
    match &status.state {
        Some(state) if state.running.is_some() => Progress::Running,
        state => match end(state).or_else(|| end(&status.last_state)) {
            Some(end) => Progress::Stopped(end),
            None => Progress::Waiting,
        },
    }
}

pub(super) fn phase(input: &StatusInput<'_>, statuses: &[&ContainerStatus]) -> Phase {
    let pod = input.pod;
    let find = |name: &str| statuses.iter().find(|s| s.name == name);
    // a restart of all containers includes any exit
    let all_restart = restarts_all_containers(pod, input.observed);
    let restarts = |spec: &Container, end: &ContainerStateTerminated| {
        all_restart
            || reset::is_removed_by_reset(end)
            || restarts_after_exit(pod, spec, end.exit_code)
    };
    let mut init_pending = false;
    let mut waiting = false;
    let mut running = false;
    for spec in pod.init_containers() {
        let Some(status) = find(&spec.name) else {
            init_pending = true;
            continue;
        };
        match (progress(status), is_sidecar(spec)) {
            (Progress::Running, false) => init_pending = true,
            (Progress::Running, true) => {
                running = true;
                init_pending |= status.started != Some(true) && !has_initialized(input);
            }
            // the exit of a sidecar does not affect the phase
            (Progress::Stopped(_), true) => {}
            (Progress::Stopped(end), false) => {
                if end.exit_code != 0 && !restarts(spec, end) {
                    return Phase::Failed;
                }
            }
            (Progress::Waiting, true) => waiting = true,
            (Progress::Waiting, false) => init_pending = true,
        }
    }
    let (mut stopped, mut succeeded, mut restartable) = (0, 0, 0);
    for spec in pod.containers() {
        match find(&spec.name).map_or(Progress::Waiting, |s| progress(s)) {
            Progress::Running => running = true,
            Progress::Waiting => waiting = true,
            Progress::Stopped(end) => {
                stopped += 1;
                succeeded += usize::from(end.exit_code == 0);
                restartable += usize::from(restarts(spec, end));
            }
        }
    }
    // containers of a stopped pod do not restart; a static pod may return with its manifest
    let forced = input.terminal && !pod.is_static() && !mutated(Mutation::NoTerminalPhase);
    if init_pending || waiting {
        return if forced {
            Phase::Failed
        } else {
            Phase::Pending
        };
    }
    if running {
        return Phase::Running;
    }
    if stopped == 0 {
        return Phase::Pending;
    }
    if restartable > 0 && !forced {
        return Phase::Running;
    }
    if stopped == succeeded {
        Phase::Succeeded
    } else {
        Phase::Failed
    }
}

/// True if an app container has started in the newest sandbox; then a sidecar restart does not make
/// the pod pending.
pub(super) fn has_initialized(input: &StatusInput<'_>) -> bool {
    let Some(sandbox) = input.observed.newest_sandbox() else {
        return false;
    };
    input.pod.containers().iter().any(|c| {
        input.observed.instances(&c.name).any(|i| {
            i.sandbox_id == sandbox.id
                && (i.started_at.is_some() || i.state == ContainerState::Running)
        })
    })
}
