//! Pod conditions of the agent, and copied conditions of other writers.

use windlass_types::corev1::{Container, ContainerStatus, PodCondition, PodStatus};
use windlass_types::metav1::Time;
use windlass_types::{PodExt, names};

use super::pod_sizes::RESIZE_IN_PROGRESS;
use super::{StatusInput, reset, settled_phase, whole_seconds};
use windlass_pod_lifecycle::actions::{SandboxDecision, restarts_all_containers, sandbox_decision};
use windlass_types::Phase;
use windlass_types::pod::is_sidecar;

/// Types computed here; other conditions are copied from the API.
const OWNED: [&str; 7] = [
    READY_TO_START,
    INITIALIZED,
    READY,
    CONTAINERS_READY,
    SCHEDULED,
    ALL_RESTARTING,
    RESIZE_IN_PROGRESS,
];
const READY_TO_START: &str = "PodReadyToStartContainers";
const INITIALIZED: &str = "Initialized";
const READY: &str = "Ready";
const CONTAINERS_READY: &str = "ContainersReady";
const SCHEDULED: &str = "PodScheduled";
pub(super) const ALL_RESTARTING: &str = "AllContainersRestarting";
/// Set by controllers and the agent; kept from either source.
const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// Its reason if the agent terminates the pod.
const BY_KUBELET: &str = "TerminationByKubelet";

/// Status, reason and message of a condition.
struct ConditionValue {
    value: bool,
    reason: &'static str,
    message: String,
}

impl ConditionValue {
    const YES: Self = Self {
        value: true,
        reason: "",
        message: String::new(),
    };

    fn no(reason: &'static str, message: String) -> Self {
        Self {
            value: false,
            reason,
            message,
        }
    }
}

pub(super) fn conditions(
    input: &StatusInput<'_>,
    status: &PodStatus,
    previous: &PodStatus,
    phase: Phase,
) -> Vec<PodCondition> {
    let pod = input.pod;
    let before: &[PodCondition] = previous.conditions.as_deref().unwrap_or_default();
    let mut list = foreign(input);
    if phase.is_terminal() {
        list.retain(|c| c.type_ != names::RESIZE_PENDING);
    }
    let disrupted = before.iter().find(|c| c.type_ == DISRUPTION_TARGET);
    if let Some(disrupted) = disrupted {
        list.retain(|c| c.type_ != DISRUPTION_TARGET);
        list.push(disrupted.clone());
    }
    if let Some(disrupted) = disrupted_here(input, previous, &list) {
        list.retain(|c| c.type_ != DISRUPTION_TARGET);
        list.push(disrupted);
    }

    if let Some(resize) = input.sizes.in_progress.filter(|_| !phase.is_terminal()) {
        list.push(resize.condition(input, before));
    }
    let containers_ready = containers_ready(input, status, phase);
    let ready = if containers_ready.value {
        readiness_gates(input, &list)
    } else {
        ConditionValue {
            message: containers_ready.message.clone(),
            ..containers_ready
        }
    };
    let sandbox = match sandbox_decision(pod, input.observed) {
        SandboxDecision::Keep(..) => ConditionValue::YES,
        SandboxDecision::Create { .. } => ConditionValue::no("", String::new()),
    };
    let mut owned = vec![
        (READY_TO_START, sandbox),
        (INITIALIZED, initialized(input, status, previous, phase)),
        (READY, ready),
        (CONTAINERS_READY, containers_ready),
        (SCHEDULED, ConditionValue::YES),
    ];
    if reset::is_possible(pod) {
        owned.push((ALL_RESTARTING, all_restarting(input, phase)));
    }
    for (type_, truth) in owned {
        let value = if truth.value { "True" } else { "False" };
        let since = before
            .iter()
            .find(|c| c.type_ == type_ && c.status == value)
            .and_then(|c| c.last_transition_time.clone());
        let text = |text: String| (!text.is_empty()).then_some(text);
        list.push(PodCondition {
            type_: type_.to_owned(),
            status: value.to_owned(),
            reason: text(truth.reason.to_owned()),
            message: text(truth.message),
            last_transition_time: since.or_else(|| Some(Time(whole_seconds(input.now)))),
            last_probe_time: None,
            // it concerns an event, not the generation of the spec
            observed_generation: pod.metadata.generation.filter(|_| type_ != ALL_RESTARTING),
        });
    }
    list
}

/// Returns the conditions of other writers.
pub(super) fn foreign(input: &StatusInput<'_>) -> Vec<PodCondition> {
    let status = input.pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    let conditions = conditions.unwrap_or_default().iter();
    conditions
        .filter(|c| !OWNED.contains(&c.type_.as_str()))
        .cloned()
        .collect()
}

/// Returns the condition `DisruptionTarget` of a pod that the agent terminates. It keeps the
/// transition time of an earlier one.
fn disrupted_here(
    input: &StatusInput<'_>,
    previous: &PodStatus,
    list: &[PodCondition],
) -> Option<PodCondition> {
    let message = input.phase_override?.disruption.as_ref()?;
    let empty = PodStatus::default();
    let api = input.pod.status.as_ref().unwrap_or(&empty);
    if settled_phase(previous, api).is_some() {
        return None;
    }
    let before = |c: &&PodCondition| c.type_ == DISRUPTION_TARGET && c.status == "True";
    let since = list.iter().find(before);
    let since = since.and_then(|c| c.last_transition_time.clone());
    Some(PodCondition {
        type_: DISRUPTION_TARGET.to_owned(),
        status: "True".to_owned(),
        reason: Some(BY_KUBELET.to_owned()),
        message: Some(message.clone()),
        last_transition_time: since.or_else(|| Some(Time(whole_seconds(input.now)))),
        last_probe_time: None,
        observed_generation: input.pod.metadata.generation,
    })
}

/// Evaluates the readiness of sidecars and app containers.
fn containers_ready(input: &StatusInput<'_>, status: &PodStatus, phase: Phase) -> ConditionValue {
    match phase {
        Phase::Succeeded => return ConditionValue::no("PodCompleted", String::new()),
        Phase::Failed => return ConditionValue::no("PodFailed", String::new()),
        Phase::Pending | Phase::Running => {}
    }
    let pod = input.pod;
    let sidecars = pod.init_containers().iter().filter(|c| is_sidecar(c));
    let unready: Vec<&str> = sidecars
        .chain(pod.containers())
        .filter(|c| !find(status, c).is_some_and(|s| s.ready))
        .map(|c| c.name.as_str())
        .collect();
    if unready.is_empty() {
        return ConditionValue::YES;
    }
    ConditionValue::no(
        "ContainersNotReady",
        format!("containers with unready status: [{}]", unready.join(" ")),
    )
}

fn readiness_gates(input: &StatusInput<'_>, conditions: &[PodCondition]) -> ConditionValue {
    let mut messages = Vec::new();
    for gate in PodExt::spec(input.pod).readiness_gates.iter().flatten() {
        let type_ = &gate.condition_type;
        match conditions.iter().find(|c| c.type_ == *type_) {
            None => messages.push(format!(
                "corresponding condition of pod readiness gate \"{type_}\" does not exist."
            )),
            Some(c) if c.status != "True" => messages.push(format!(
                "the status of pod readiness gate \"{type_}\" is not \"True\", but {}",
                c.status
            )),
            Some(_) => {}
        }
    }
    if messages.is_empty() {
        ConditionValue::YES
    } else {
        ConditionValue::no("ReadinessGatesNotReady", messages.join(", "))
    }
}

/// Evaluates whether all init containers completed and all sidecars started. Once true it stays
/// true.
fn initialized(
    input: &StatusInput<'_>,
    status: &PodStatus,
    previous: &PodStatus,
    phase: Phase,
) -> ConditionValue {
    if phase == Phase::Succeeded {
        return ConditionValue {
            reason: "PodCompleted",
            ..ConditionValue::YES
        };
    }
    let ran = |c: &ContainerStatus| {
        let state = c.state.as_ref();
        state.is_some_and(|s| s.running.is_some() || s.terminated.is_some())
    };
    let mut before = previous.conditions.iter().flatten();
    if status.container_statuses.iter().flatten().any(ran)
        || before.any(|c| c.type_ == INITIALIZED && c.status == "True")
    {
        return ConditionValue::YES;
    }
    let incomplete: Vec<&str> = input
        .pod
        .init_containers()
        .iter()
        .filter(|c| {
            !find(status, c).is_some_and(|s| match is_sidecar(c) {
                true => s.started == Some(true),
                false => s.ready,
            })
        })
        .map(|c| c.name.as_str())
        .collect();
    if incomplete.is_empty() {
        return ConditionValue::YES;
    }
    ConditionValue::no(
        "ContainersNotInitialized",
        format!(
            "containers with incomplete status: [{}]",
            incomplete.join(" ")
        ),
    )
}

/// Evaluates whether a restart of all containers is in progress.
fn all_restarting(input: &StatusInput<'_>, phase: Phase) -> ConditionValue {
    match phase {
        Phase::Succeeded => ConditionValue::no("PodCompleted", String::new()),
        Phase::Failed => ConditionValue::no("PodFailed", String::new()),
        Phase::Pending | Phase::Running if restarts_all_containers(input.pod, input.observed) => {
            ConditionValue {
                value: true,
                reason: "RestartAllContainersStarted",
                message: "container exited with restart policy rule".to_owned(),
            }
        }
        Phase::Pending | Phase::Running => ConditionValue::no("", String::new()),
    }
}

fn find<'a>(status: &'a PodStatus, container: &Container) -> Option<&'a ContainerStatus> {
    let lists = [&status.container_statuses, &status.init_container_statuses];
    let mut all = lists.into_iter().flatten().flatten();
    all.find(|s| s.name == container.name)
}
