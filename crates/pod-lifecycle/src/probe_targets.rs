//! The containers of a pod to probe, and their initial results.
//!
//! App containers and sidecars have probes; other init containers and ephemeral containers do not.
//! A probe concerns one instance: the newest, while it runs.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use windlass_types::corev1::{Container, ContainerStatus, ExecAction};
use windlass_types::view::PodWorkerState;
use windlass_types::{
    ContainerId, ContainerState, ObservedContainer, ObservedPod, Pod, PodExt, PodProbeResults,
    ProbeKind, Timestamp,
};

use crate::probe::{ProbeSpec, probe_of, probe_spec};
use windlass_types::pod::is_sidecar;

/// Minimum age of an instance at agent start for an unknown initial readiness (upstream
/// `kubeletRestartGracePeriod`).
const RESTART_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// Input of [`probe_targets`].
#[derive(Clone, Copy, Debug)]
pub struct ProbeTargetsInput<'a> {
    /// Kind of the probes.
    pub kind: ProbeKind,
    /// The desired pod.
    pub pod: &'a Pod,
    /// The observed pod.
    pub observed: &'a ObservedPod,
    /// Current probe results of the pod.
    pub probe_results: &'a PodProbeResults,
    /// State of its worker.
    pub worker_state: PodWorkerState,
}

/// A container with a probe of the kind.
#[derive(Clone, Copy, Debug)]
pub struct ProbeTarget<'a> {
    /// Its spec.
    pub container: &'a Container,
    /// Its newest instance, if any.
    pub instance: Option<&'a ObservedContainer>,
    /// State of the probe.
    pub state: ProbeTargetState,
}

windlass_types::text_enum! {
    /// State of a probe target.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProbeTargetState {
        /// The instance is probed.
        Active = "active",
        /// The instance runs; its startup probe has not succeeded.
        AwaitingStartup = "awaiting-startup",
        /// No instance runs.
        NotRunning = "not-running",
        /// The pod terminates, which stops probes of this kind.
        Stopped = "stopped",
    }
}

impl fmt::Display for ProbeTarget<'_> {
    /// `name:state(instance)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.container.name, self.state.as_str())?;
        match self.instance {
            Some(instance) => write!(f, "({})", instance.id),
            None => Ok(()),
        }
    }
}

/// A probe, and why no attempt is possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePlan {
    /// The probe.
    pub spec: ProbeSpec,
    /// An unresolved name, with upstream's message; each attempt is an error.
    pub problem: Option<String>,
}

/// Returns the probe of this kind of a container. `pod_ip` is the default host.
pub fn probe_plan(
    kind: ProbeKind,
    pod: &Pod,
    container: &Container,
    pod_ip: Option<IpAddr>,
) -> Option<ProbePlan> {
    match probe_spec(kind, pod, container, pod_ip)? {
        Ok(spec) => Some(ProbePlan {
            spec,
            problem: None,
        }),
        Err(problem) => {
            // an exec handler has no names to resolve
            let mut timed = container.clone();
            let probes = [
                &mut timed.liveness_probe,
                &mut timed.readiness_probe,
                &mut timed.startup_probe,
            ];
            for probe in probes.into_iter().flatten() {
                probe.exec = Some(ExecAction::default());
            }
            let spec = probe_spec(kind, pod, &timed, pod_ip)?.ok()?;
            Some(ProbePlan {
                spec,
                problem: Some(problem),
            })
        }
    }
}

/// Returns the containers of the pod with a probe of this kind; none in state TerminatedPod.
pub fn probe_targets(input: ProbeTargetsInput<'_>) -> Vec<ProbeTarget<'_>> {
    if input.worker_state == PodWorkerState::TerminatedPod {
        return Vec::new();
    }
    let sidecars = input.pod.init_containers().iter();
    let containers = sidecars
        .filter(|container| is_sidecar(container))
        .chain(input.pod.containers());
    containers
        .filter_map(|container| {
            probe_of(input.kind, container)?;
            let instance = input.observed.latest(&container.name);
            Some(ProbeTarget {
                container,
                instance,
                state: target_state(&input, container, instance),
            })
        })
        .collect()
}

fn target_state(
    input: &ProbeTargetsInput<'_>,
    container: &Container,
    instance: Option<&ObservedContainer>,
) -> ProbeTargetState {
    // a terminating pod is not restarted, but its readiness is still reported
    if input.worker_state != PodWorkerState::SyncPod && input.kind != ProbeKind::Readiness {
        return ProbeTargetState::Stopped;
    }
    let Some(instance) = instance.filter(|it| it.state == ContainerState::Running) else {
        return ProbeTargetState::NotRunning;
    };
    let waits = input.kind != ProbeKind::Startup && container.startup_probe.is_some();
    let started = || {
        let startup = input
            .probe_results
            .result(ProbeKind::Startup, &container.name, &instance.id);
        startup == Some(true)
    };
    match waits && !started() {
        true => ProbeTargetState::AwaitingStartup,
        false => ProbeTargetState::Active,
    }
}

/// Result of an instance before its first attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialResult {
    /// The stored result of this instance.
    Restored(bool),
    /// A new instance is not ready.
    NotReady,
    /// The status in the API reports the instance as started.
    Started,
    /// Unknown; nothing is reported.
    Unknown,
}

impl fmt::Display for InitialResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Restored(true) => "restored(success)",
            Self::Restored(false) => "restored(failure)",
            Self::NotReady => "not ready",
            Self::Started => "started",
            Self::Unknown => "unknown",
        })
    }
}

/// Returns the initial result of an instance. `agent_start` is the start of this agent run.
pub fn initial_result(
    input: &ProbeTargetsInput<'_>,
    instance: &ObservedContainer,
    agent_start: Timestamp,
) -> InitialResult {
    let stored = input
        .probe_results
        .result(input.kind, &instance.name, &instance.id);
    if let Some(success) = stored {
        return InitialResult::Restored(success);
    }
    match input.kind {
        ProbeKind::Liveness => InitialResult::Unknown,
        ProbeKind::Startup if is_reported(input.pod, instance, |s| s.started == Some(true)) => {
            InitialResult::Started
        }
        ProbeKind::Startup => InitialResult::Unknown,
        ProbeKind::Readiness if is_older(instance, agent_start, RESTART_GRACE_PERIOD) => {
            InitialResult::Unknown
        }
        // the previous agent run could not write its result: it stays ready
        ProbeKind::Readiness if is_reported(input.pod, instance, |s| s.ready) => {
            InitialResult::Unknown
        }
        ProbeKind::Readiness => InitialResult::NotReady,
    }
}

/// True if the instance started before the agent; the first attempts of those are spread.
pub fn started_before_agent(instance: &ObservedContainer, agent_start: Timestamp) -> bool {
    is_older(instance, agent_start, Duration::ZERO)
}

fn is_older(instance: &ObservedContainer, than: Timestamp, by: Duration) -> bool {
    let limit = than.saturating_sub(by).unwrap_or(Timestamp::MIN);
    instance.started_at.is_some_and(|at| at < limit)
}

/// True if the pod status in the API reports this instance as `is_so`.
fn is_reported(
    pod: &Pod,
    instance: &ObservedContainer,
    is_so: impl Fn(&ContainerStatus) -> bool,
) -> bool {
    let Some(status) = &pod.status else {
        return false;
    };
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let mut statuses = lists.into_iter().flatten().flatten();
    statuses.any(|s| s.name == instance.name && is_so(s) && is_about(s, &instance.id))
}

/// A container ID in the API has the runtime as its scheme: `containerd://…`.
fn is_about(status: &ContainerStatus, id: &ContainerId) -> bool {
    let text = status.container_id.as_deref().unwrap_or_default();
    text.split_once("://").map_or(text, |(_, id)| id) == id.as_str()
}

#[cfg(test)]
mod tests;
