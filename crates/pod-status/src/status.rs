//! Generation of a pod's status (upstream `generateAPIPodStatus`) and its blocker.
//!
//! The status is computed from the desired and observed pod, the errors of the last sync and the
//! previous status. [`status_sync`](crate::status_sync) withholds a terminal phase until the pod
//! is terminated. Fields of other writers (their conditions, resource claims, nominated node) are
//! copied.

mod blocker;
mod conditions;
mod containers;
mod exit_reason;
mod fields;
mod phase;
pub mod pod_sizes;
mod readiness;
mod reset;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;

use windlass_types::corev1::{ContainerStatus, HostIP, PodIP, PodStatus};
use windlass_types::metav1::Time;
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::{
    ObservedPod, Phase, PhaseOverride, Pod, PodExt, PodProbeResults, Reason, Timestamp,
};

use windlass_node_rules::admission::REJECTION_PREFIX;
use windlass_pod_inputs::node_facts::by_family;
use windlass_pod_inputs::resources::qos_class;
use windlass_pod_lifecycle::actions::DelayedRestart;
use windlass_pod_lifecycle::stop::with_unobserved_exits;

pub use pod_sizes::{PodSizes, ResizeInProgress};

pub use blocker::{BlockerInput, blocker, last_probe_failure, waiting_for};

/// Errors of the last sync by container name; `""` for the whole pod.
pub type Failures = BTreeMap<String, (Reason, String)>;

/// Input of [`generate_status`].
#[derive(Clone, Copy, Debug)]
pub struct StatusInput<'a> {
    /// The desired pod.
    pub pod: &'a Pod,
    /// The observed pod.
    pub observed: &'a ObservedPod,
    /// Errors of the last sync.
    pub failures: &'a Failures,
    /// Restarts in back-off, from the last [`windlass_pod_lifecycle::actions::PodActions`].
    pub backing_off: &'a [DelayedRestart],
    /// Probe results.
    pub probe_results: &'a PodProbeResults,
    /// The previous status; by default the one in the pod.
    pub previous: Option<&'a PodStatus>,
    /// IPs of the node, the primary family first.
    pub host_ips: &'a [IpAddr],
    /// Feature gate `ContainerStopSignals`: reports stop signals.
    pub stop_signals: bool,
    /// Sizes of the pod besides those of its containers.
    pub sizes: PodSizes<'a>,
    /// Scheme of container IDs, for example `containerd`.
    pub runtime_name: &'a str,
    /// All containers have stopped and none is restarted.
    pub terminal: bool,
    /// A decided phase (deadline, eviction, admission).
    pub phase_override: Option<&'a PhaseOverride>,
    /// The current time.
    pub now: Timestamp,
}

/// Generates the status of a pod.
pub fn generate_status(input: StatusInput<'_>) -> PodStatus {
    // nothing of a terminated pod runs, whatever was observed last
    let runs = input.observed.running().next().is_some();
    let ended = (input.terminal && runs).then(|| with_unobserved_exits(input.observed));
    let input = StatusInput {
        observed: ended.as_ref().unwrap_or(input.observed),
        ..input
    };
    let pod = input.pod;
    let empty = PodStatus::default();
    let api = pod.status.as_ref().unwrap_or(&empty);
    let previous = input.previous.unwrap_or(api);

    let lists = containers::statuses(&input, previous);
    let all: Vec<&ContainerStatus> = lists.init.iter().chain(&lists.app).collect();
    let (phase, reason, message) = phase_and_reason(&input, previous, api, &all);
    let never_ran = input.observed.sandboxes.is_empty() && input.observed.containers.is_empty();
    if never_ran
        && is_rejected(phase, message.as_deref())
        && all.iter().all(|c| c.container_id.is_none())
    {
        return rejected_status(&input, previous, reason, message);
    }
    let mut status = PodStatus {
        phase: Some(phase.as_str().to_owned()),
        reason,
        message,
        conditions: None,
        container_statuses: Some(lists.app),
        init_container_statuses: non_empty(lists.init),
        ephemeral_container_statuses: non_empty(lists.ephemeral),
        qos_class: Some(qos_class(pod).as_str().to_owned()),
        start_time: Some(start_time(&input, previous)),
        observed_generation: pod.metadata.generation,
        resource_claim_statuses: api.resource_claim_statuses.clone(),
        extended_resource_claim_status: api.extended_resource_claim_status.clone(),
        nominated_node_name: api.nominated_node_name.clone(),
        ..PodStatus::default()
    };
    set_ips(&mut status, &input, previous);
    pod_sizes::set(&mut status, &input, previous);
    status.conditions = Some(conditions::conditions(&input, &status, previous, phase));
    status
}

/// True for a pod rejected by admission; after an agent restart its message shows it.
fn is_rejected(phase: Phase, message: Option<&str>) -> bool {
    phase == Phase::Failed && message.is_some_and(|text| text.starts_with(REJECTION_PREFIX))
}

/// Returns the status of a rejected pod, without containers, addresses and conditions of the agent
/// (upstream `rejectPod`).
fn rejected_status(
    input: &StatusInput<'_>,
    previous: &PodStatus,
    reason: Option<String>,
    message: Option<String>,
) -> PodStatus {
    PodStatus {
        phase: Some(Phase::Failed.as_str().to_owned()),
        reason,
        message,
        conditions: non_empty(conditions::foreign(input)),
        qos_class: Some(qos_class(input.pod).as_str().to_owned()),
        start_time: Some(start_time(input, previous)),
        observed_generation: input.pod.metadata.generation,
        ..PodStatus::default()
    }
}

/// Returns the start time, which is set once.
fn start_time(input: &StatusInput<'_>, previous: &PodStatus) -> Time {
    let api = input.pod.status.as_ref();
    previous
        .start_time
        .clone()
        .or_else(|| api?.start_time.clone())
        .unwrap_or_else(|| Time(whole_seconds(input.now)))
}

/// Returns phase, reason and message. A terminal phase does not change.
fn phase_and_reason(
    input: &StatusInput<'_>,
    previous: &PodStatus,
    api: &PodStatus,
    all: &[&ContainerStatus],
) -> (Phase, Option<String>, Option<String>) {
    let old = Phase::from_status(previous);
    if succeeded_when_terminated(input, api, all) {
        return (Phase::Succeeded, None, None);
    }
    let settled = settled_phase(previous, api);
    if settled.is_none()
        && let Some(phase_override) = input.phase_override
    {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        return (
            phase_override.phase,
            text(&phase_override.reason),
            text(&phase_override.message),
        );
    }
    let phase = settled.unwrap_or_else(|| phase::phase(input, all));
    if old != Some(phase) {
        return (phase, None, None);
    }
    let or_api = |mine: &Option<String>, apis: &Option<String>| {
        let filled = |t: &&String| !t.is_empty();
        mine.as_ref().filter(filled).or(apis.as_ref()).cloned()
    };
    (
        phase,
        or_api(&previous.reason, &api.reason),
        or_api(&previous.message, &api.message),
    )
}

/// True if all containers of a pod that the node terminated (preemption, eviction, shutdown) exited
/// with 0. As upstream, exit codes then decide the phase; only `DisruptionTarget` remains.
fn succeeded_when_terminated(
    input: &StatusInput<'_>,
    api: &PodStatus,
    all: &[&ContainerStatus],
) -> bool {
    let disrupted = input.phase_override.is_some_and(|o| o.disruption.is_some());
    input.terminal
        && disrupted
        && !Phase::is_terminal_in(api)
        && phase::phase(input, all) == Phase::Succeeded
}

/// Returns the terminal phase that was reached before; no override changes it.
fn settled_phase(previous: &PodStatus, api: &PodStatus) -> Option<Phase> {
    let mut phases = [api, previous].into_iter().filter_map(Phase::from_status);
    let settles = |phase: &Phase| phase.is_terminal() && !mutated(Mutation::TerminalPhaseRegresses);
    phases.find(settles)
}

/// Sets host and pod IPs: at most one per family, the node's primary family first. A pod keeps its
/// IPs without a sandbox. A host network pod keeps its first node IPs; a second family may be
/// added.
fn set_ips(status: &mut PodStatus, input: &StatusInput<'_>, previous: &PodStatus) {
    let hosts = by_family(input.host_ips, input.host_ips);
    status.host_ip = hosts.first().map(IpAddr::to_string);
    status.host_ips = non_empty(
        hosts
            .iter()
            .map(|ip| HostIP { ip: ip.to_string() })
            .collect(),
    );
    let before: Vec<IpAddr> = previous
        .pod_ips
        .iter()
        .flatten()
        .filter_map(|p| p.ip.parse().ok())
        .collect();
    let mut ips = if input.pod.host_network() {
        if before.is_empty() {
            hosts.clone()
        } else {
            before
        }
    } else if input.observed.ips.is_empty() && !input.observed.sandboxes.iter().any(|s| s.ready) {
        before
    } else {
        by_family(&input.observed.ips, input.host_ips)
    };
    if input.pod.host_network()
        && let ([only], [_, second]) = (ips.as_slice(), hosts.as_slice())
        && only.is_ipv4() != second.is_ipv4()
    {
        ips.push(*second);
    }
    status.pod_ip = ips.first().map(IpAddr::to_string);
    status.pod_ips = non_empty(ips.iter().map(|ip| PodIP { ip: ip.to_string() }).collect());
}

/// Formats a status as one line: phase, true conditions, containers.
pub fn status_line(status: &PodStatus) -> String {
    let mut words = vec![status.phase.clone().unwrap_or_default()];
    if let Some(reason) = &status.reason {
        words.push(format!("({reason})"));
    }
    let truth: Vec<&str> = status
        .conditions
        .iter()
        .flatten()
        .filter(|c| c.status == "True")
        .map(|c| c.type_.as_str())
        .collect();
    words.push(format!("[{}]", truth.join(" ")));
    let lists = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    for container in lists.into_iter().flatten().flatten() {
        words.push(containers::line(container));
    }
    words.join(" ")
}

/// Truncates to the whole seconds of the API, so that generated and published statuses are equal.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn non_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
