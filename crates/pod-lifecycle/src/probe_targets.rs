//! Which containers of a pod are to be probed, and what is believed of them before they answer.
//!
//! App containers and sidecars have probes, ordinary init containers and ephemeral ones do not. A
//! probe is about one instance: the newest one, while it runs.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use windlass_types::corev1::{Container, ContainerStatus, ExecAction, Probe};
use windlass_types::view::PodWorkerState;
use windlass_types::{
    ContainerId, ContainerState, ObservedContainer, ObservedPod, Pod, PodExt, PodProbeResults,
    ProbeKind, Timestamp,
};

use crate::probe::{ProbeSpec, probe_spec};
use windlass_types::pod::is_sidecar;

/// A container that ran this long before the agent is not new: nobody says that it is not ready
/// before it was asked (upstream `kubeletRestartGracePeriod`).
const BEFORE_THE_AGENT: Duration = Duration::from_secs(10);

/// The pod whose probes are asked for.
#[derive(Clone, Copy, Debug)]
pub struct ProbeTargetsInput<'a> {
    /// Which probes.
    pub kind: ProbeKind,
    /// The pod as asked.
    pub pod: &'a Pod,
    /// The pod as found.
    pub observed: &'a ObservedPod,
    /// What its probes found so far.
    pub probe_results: &'a PodProbeResults,
    /// How far its worker is.
    pub phase: PodWorkerState,
}

/// A container with a probe of the kind asked for.
#[derive(Clone, Copy, Debug)]
pub struct ProbeTarget<'a> {
    /// Its spec.
    pub container: &'a Container,
    /// Its newest instance, if it ever had one.
    pub instance: Option<&'a ObservedContainer>,
    /// What is to become of the probe at present.
    pub state: ProbeTargetState,
}

/// What is to become of a probe at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeTargetState {
    /// The instance is to be asked.
    Active,
    /// The instance runs, and its startup probe has not succeeded yet.
    AwaitingStartup,
    /// No instance runs.
    NotRunning,
    /// The pod is being stopped, and this kind of probe with it.
    Stopped,
}

impl ProbeTargetState {
    fn as_str(self) -> &'static str {
        match self {
            Self::Active => "asked",
            Self::AwaitingStartup => "gated",
            Self::NotRunning => "resting",
            Self::Stopped => "stopped",
        }
    }
}

impl fmt::Display for ProbeTarget<'_> {
    /// `name:standing(instance)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.container.name, self.state.as_str())?;
        match self.instance {
            Some(instance) => write!(f, "({})", instance.id),
            None => Ok(()),
        }
    }
}

fn probe_of(kind: ProbeKind, container: &Container) -> Option<&Probe> {
    match kind {
        ProbeKind::Liveness => container.liveness_probe.as_ref(),
        ProbeKind::Readiness => container.readiness_probe.as_ref(),
        ProbeKind::Startup => container.startup_probe.as_ref(),
    }
}

/// A probe with its timing, and why it cannot be put at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePlan {
    /// The probe.
    pub spec: ProbeSpec,
    /// What it refers to that is not there, in upstream's words. It is asked for on time all the
    /// same, and each time it is an error.
    pub problem: Option<String>,
}

/// The probe of this kind that a container has, `None` if it has none. `pod_ip` is the address
/// that is asked where the probe names none.
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
            // with a command in its place there is nothing to look up
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

/// Every container of the pod with a probe of this kind; none once the pod has stopped.
pub fn probe_targets(input: ProbeTargetsInput<'_>) -> Vec<ProbeTarget<'_>> {
    if input.phase == PodWorkerState::TerminatedPod {
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
    // what is being stopped is not restarted, but its readiness is still of interest
    if input.phase != PodWorkerState::SyncPod && input.kind != ProbeKind::Readiness {
        return ProbeTargetState::Stopped;
    }
    let Some(instance) = instance.filter(|it| it.state == ContainerState::Running) else {
        return ProbeTargetState::NotRunning;
    };
    let gate = container.startup_probe.as_ref();
    let waits = input.kind != ProbeKind::Startup && gate.is_some();
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

/// What is believed of an instance before its first answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialResult {
    /// There is a verdict on this very instance.
    Restored(bool),
    /// A new one has to say first that it is ready.
    NotReady,
    /// It had started before this agent knew of it, as the API server has it.
    Started,
    /// Nothing is known, and nothing is said.
    Unknown,
}

impl fmt::Display for InitialResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Restored(true) => "kept(ok)",
            Self::Restored(false) => "kept(failed)",
            Self::NotReady => "not ready",
            Self::Started => "started",
            Self::Unknown => "open",
        })
    }
}

/// What is believed of an instance before its first answer. `agent_start` is when this agent
/// started.
pub fn initial_result(
    input: &ProbeTargetsInput<'_>,
    instance: &ObservedContainer,
    agent_start: Timestamp,
) -> InitialResult {
    let verdict = input
        .probe_results
        .result(input.kind, &instance.name, &instance.id);
    if let Some(ok) = verdict {
        return InitialResult::Restored(ok);
    }
    match input.kind {
        ProbeKind::Liveness => InitialResult::Unknown,
        ProbeKind::Startup if is_reported_started(input.pod, instance) => InitialResult::Started,
        ProbeKind::Startup => InitialResult::Unknown,
        ProbeKind::Readiness if is_older(instance, agent_start, BEFORE_THE_AGENT) => InitialResult::Unknown,
        ProbeKind::Readiness => InitialResult::NotReady,
    }
}

/// True if the instance ran before the agent did: many are asked for the first time then, and
/// their questions are spread.
pub fn started_before_agent(instance: &ObservedContainer, agent_start: Timestamp) -> bool {
    is_older(instance, agent_start, Duration::ZERO)
}

fn is_older(instance: &ObservedContainer, than: Timestamp, by: Duration) -> bool {
    let limit = than.saturating_sub(by).unwrap_or(Timestamp::MIN);
    instance.started_at.is_some_and(|at| at < limit)
}

/// True if the pod's status, as the API server has it, calls this very instance started.
fn is_reported_started(pod: &Pod, instance: &ObservedContainer) -> bool {
    let Some(status) = &pod.status else {
        return false;
    };
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let mut statuses = lists.into_iter().flatten().flatten();
    statuses
        .any(|s| s.name == instance.name && s.started == Some(true) && is_about(s, &instance.id))
}

/// The API writes a container's ID with the name of its runtime, `containerd://…`.
fn is_about(status: &ContainerStatus, id: &ContainerId) -> bool {
    let text = status.container_id.as_deref().unwrap_or_default();
    text.split_once("://").map_or(text, |(_, id)| id) == id.as_str()
}

#[cfg(test)]
mod tests;
