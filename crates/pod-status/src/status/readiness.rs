//! `ready` and `started` of a container (upstream `UpdatePodStatus` of the probe manager).

use windlass_types::ProbeKind;
use windlass_types::corev1::{Container, ContainerStatus, Probe};
use windlass_types::mutation::{Mutation, mutated};

use super::StatusInput;
use super::containers::Kind;
use windlass_types::pod::is_sidecar;

/// Sets `ready` and `started`; `old` is the previous status of the container.
///
/// A probe without a result counts as failed, unless `old` reports this instance as ready
/// (started), so that an agent restart keeps pods ready (upstream with
/// `ChangeContainerStatusOnKubeletRestart` off). A completed init container is ready; an ephemeral
/// container never is.
pub(super) fn set_readiness(
    input: &StatusInput<'_>,
    kind: Kind,
    spec: &Container,
    old: Option<&ContainerStatus>,
    status: &mut ContainerStatus,
) {
    if kind == Kind::Ephemeral {
        (status.ready, status.started) = (false, None);
        return;
    }
    let state = status.state.as_ref();
    let running = state.is_some_and(|s| s.running.is_some());
    let latest = input.observed.latest(&spec.name);
    let same = old.filter(|o| o.container_id.is_some() && o.container_id == status.container_id);
    let succeeded = |kind, probe: &Option<Probe>, before: Option<bool>| {
        let result = latest.and_then(|l| input.probe_results.result(kind, &spec.name, &l.id));
        let before = before == Some(true) && !mutated(Mutation::NotReadyAfterRestart);
        let unprobed = probe.is_none() || mutated(Mutation::ReadyWithoutProbe);
        result.unwrap_or(unprobed || before)
    };
    let started = running
        && succeeded(
            ProbeKind::Startup,
            &spec.startup_probe,
            same.and_then(|s| s.started),
        );
    let ended_with = state
        .and_then(|s| s.terminated.as_ref())
        .map(|t| t.exit_code);
    status.ready = if kind == Kind::Init && !is_sidecar(spec) {
        ended_with == Some(0)
    } else {
        started
            && succeeded(
                ProbeKind::Readiness,
                &spec.readiness_probe,
                same.map(|s| s.ready),
            )
    };
    status.started = Some(started);
}
