//! The conditions of the Node object: what is well, since when, and what to tell about it.
//!
//! The agent owns four types and keeps every other as it is. A condition stays at its place in
//! the list, new ones are appended in upstream's order, `Ready` last. The transition time moves
//! only when the status does; the heartbeat moves with every report.

use std::time::Duration;

use windlass_types::corev1::NodeCondition;
use windlass_types::metav1::Time;
use windlass_types::view::EventType;
use windlass_types::{Reason, Timestamp};

/// How long the runtime may leave its check unanswered before the node is not ready (upstream's
/// threshold): a restart of containerd is shorter.
pub const RUNTIME_DOWN_THRESHOLD: Duration = Duration::from_secs(30);

/// Type of the condition that schedulers look at.
pub const READY: &str = "Ready";

/// What the conditions are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeHealth {
    /// The container runtime.
    pub runtime: RuntimeHealth,
    /// Why nobody knows what runs: the runtime could not be listed for too long.
    pub pleg_error: Option<String>,
    /// Why pods get no network, the runtime's `NetworkReady` line.
    pub network_error: Option<String>,
    /// Why the cluster does not know yet what volumes this node can have: the CSINode is missing. A
    /// node that was ready stays so, because a restart of the agent changes nothing.
    pub storage_error: Option<String>,
    /// The machine is about to shut down.
    pub shutting_down: bool,
    /// Memory is short.
    pub memory_pressure: bool,
    /// Disk space is short.
    pub disk_pressure: bool,
    /// Process IDs are short.
    pub pid_pressure: bool,
}

/// How the container runtime is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RuntimeHealth {
    /// No answer yet since the agent began, for less than [`RUNTIME_DOWN_THRESHOLD`]: a node that was
    /// ready stays so, because a restart of the agent changes nothing.
    #[default]
    NotCheckedYet,
    /// No answer for [`RUNTIME_DOWN_THRESHOLD`] or more.
    Down,
    /// It says that it is not ready, in its own words.
    NotReady(String),
    /// It is ready.
    Ready,
}

/// An event of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    /// Normal or Warning.
    pub event_type: EventType,
    /// Reason.
    pub reason: Reason,
    /// Text.
    pub message: String,
}

impl NodeEvent {
    /// Upstream's text for a state the node got into.
    pub fn status(node: &str, reason: Reason) -> Self {
        Self {
            event_type: EventType::Normal,
            reason,
            message: format!("Node {node} status is now: {reason}"),
        }
    }
}

/// The condition list that follows `old`, and the reasons of the events its changes are worth.
///
/// `missing_capacity` names resources every node must report and this one cannot.
pub fn node_conditions(
    old: &[NodeCondition],
    health: &NodeHealth,
    missing_capacity: &[&str],
    now: Timestamp,
) -> (Vec<NodeCondition>, Vec<Reason>) {
    let mut conditions = old.to_vec();
    let mut events = Vec::new();
    for pressure in PRESSURES {
        let present = (pressure.present)(health);
        let (reason, message, event) = if present {
            pressure.when_true
        } else {
            pressure.when_false
        };
        let next = condition(pressure.name, present, reason, message, now);
        if set(&mut conditions, next) != Change::None {
            events.push(event);
        }
    }
    let was_ready = find(&conditions, READY).is_some_and(|c| c.status == "True");
    let errors = errors(health, missing_capacity, was_ready);
    let (ready, reason, message) = match aggregate(&errors) {
        None => (true, "KubeletReady", READY_MESSAGE.to_owned()),
        Some(text) => (false, "KubeletNotReady", text),
    };
    let next = condition(READY, ready, reason, &message, now);
    if set(&mut conditions, next) == Change::Status {
        events.push(if ready {
            Reason::NodeReady
        } else {
            Reason::NodeNotReady
        });
    }
    (conditions, events)
}

/// One condition of a list.
pub fn find<'a>(conditions: &'a [NodeCondition], name: &str) -> Option<&'a NodeCondition> {
    conditions.iter().find(|c| c.type_ == name)
}

/// True if two lists say the same, heartbeats and order aside.
pub(crate) fn same_conditions(a: &[NodeCondition], b: &[NodeCondition]) -> bool {
    let key = |list: &[NodeCondition]| {
        let mut list = list.to_vec();
        list.iter_mut().for_each(|c| c.last_heartbeat_time = None);
        list.sort_by(|a, b| a.type_.cmp(&b.type_));
        list
    };
    key(a) == key(b)
}

const READY_MESSAGE: &str = "kubelet is posting ready status";

/// Reason, message and event of one state of a pressure condition.
type Words = (&'static str, &'static str, Reason);

struct Pressure {
    name: &'static str,
    present: fn(&NodeHealth) -> bool,
    when_true: Words,
    when_false: Words,
}

const PRESSURES: [Pressure; 3] = [
    Pressure {
        name: "MemoryPressure",
        present: |health| health.memory_pressure,
        when_true: (
            "KubeletHasInsufficientMemory",
            "kubelet has insufficient memory available",
            Reason::NodeHasInsufficientMemory,
        ),
        when_false: (
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
            Reason::NodeHasSufficientMemory,
        ),
    },
    Pressure {
        name: "DiskPressure",
        present: |health| health.disk_pressure,
        when_true: (
            "KubeletHasDiskPressure",
            "kubelet has disk pressure",
            Reason::NodeHasDiskPressure,
        ),
        when_false: (
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
            Reason::NodeHasNoDiskPressure,
        ),
    },
    Pressure {
        name: "PIDPressure",
        present: |health| health.pid_pressure,
        when_true: (
            "KubeletHasInsufficientPID",
            "kubelet has insufficient PID available",
            Reason::NodeHasInsufficientPid,
        ),
        when_false: (
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
            Reason::NodeHasSufficientPid,
        ),
    },
];

/// Why the node is not ready, in upstream's order: runtime, PLEG, network, shutdown, capacity.
fn errors(health: &NodeHealth, missing_capacity: &[&str], was_ready: bool) -> Vec<String> {
    let runtime = match &health.runtime {
        RuntimeHealth::Ready => None,
        RuntimeHealth::NotCheckedYet if was_ready => None,
        RuntimeHealth::NotCheckedYet => {
            Some("container runtime status check may not have completed yet".to_owned())
        }
        RuntimeHealth::Down => Some("container runtime is down".to_owned()),
        RuntimeHealth::NotReady(words) => Some(format!("container runtime not ready: {words}")),
    };
    let pleg = health
        .pleg_error
        .as_ref()
        .map(|words| format!("PLEG is not healthy: {words}"));
    let network = health
        .network_error
        .as_ref()
        .map(|words| format!("container runtime network not ready: {words}"));
    let storage = health.storage_error.clone().filter(|_| !was_ready);
    let shutdown = health
        .shutting_down
        .then(|| "node is shutting down".to_owned());
    let capacity = (!missing_capacity.is_empty()).then(|| {
        format!(
            "missing node capacity for resources: {}",
            missing_capacity.join(", ")
        )
    });
    [runtime, pleg, network, storage, shutdown, capacity]
        .into_iter()
        .flatten()
        .collect()
}

/// One error as it is, several in brackets.
fn aggregate(errors: &[String]) -> Option<String> {
    match errors {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

fn condition(
    name: &str,
    status: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> NodeCondition {
    let status = if status { "True" } else { "False" };
    NodeCondition {
        type_: name.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// What [`set`] did to the status of a condition.
#[derive(PartialEq, Eq)]
enum Change {
    None,
    Added,
    Status,
}

fn set(conditions: &mut Vec<NodeCondition>, mut next: NodeCondition) -> Change {
    let Some(old) = conditions.iter_mut().find(|c| c.type_ == next.type_) else {
        conditions.push(next);
        return Change::Added;
    };
    let change = if old.status == next.status {
        next.last_transition_time = old.last_transition_time.take();
        Change::None
    } else {
        Change::Status
    };
    *old = next;
    change
}

#[cfg(test)]
mod tests;
