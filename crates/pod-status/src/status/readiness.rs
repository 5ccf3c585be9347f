//! `ready` and `started` of a container (upstream's probe manager, `UpdatePodStatus`).

use windlass_types::ProbeKind;
use windlass_types::corev1::{Container, ContainerStatus, Probe};

use super::StatusInput;
use super::containers::Kind;
use windlass_types::pod::is_sidecar;

/// Fills in `ready` and `started`; `old` is the status of the container that was reported before.
///
/// A probe that has come to no verdict on an instance counts as failed, unless that very instance
/// was said to be ready (started) before: an agent that starts again makes nobody unready
/// (upstream with the gate `ChangeContainerStatusOnKubeletRestart` off, its default). An ordinary
/// init container is ready once it has completed; an ephemeral one never is.
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
    let says = |kind, probe: &Option<Probe>, before: Option<bool>| {
        let verdict = latest.and_then(|l| input.probe_results.result(kind, &spec.name, &l.id));
        verdict.unwrap_or(probe.is_none() || before == Some(true))
    };
    let started = running
        && says(
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
            && says(
                ProbeKind::Readiness,
                &spec.readiness_probe,
                same.map(|s| s.ready),
            )
    };
    status.started = Some(started);
}
