//! Conditions of the Node object, and the events of their transitions.
//!
//! The agent owns four types and does not change others. A condition keeps its index; new ones are
//! appended in the order of upstream, `Ready` last. The transition time changes with the status,
//! the heartbeat time with every update.

use std::time::Duration;

use windlass_types::corev1::NodeCondition;
use windlass_types::metav1::Time;
use windlass_types::view::EventType;
use windlass_types::{Reason, Timestamp};

/// Time without a response to the runtime check until the node is not ready, as upstream; longer
/// than a restart of containerd.
pub const RUNTIME_DOWN_THRESHOLD: Duration = Duration::from_secs(30);

/// Type of the ready condition.
pub const READY: &str = "Ready";

/// Input of the conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeHealth {
    /// The container runtime.
    pub runtime: RuntimeHealth,
    /// Error of the PLEG: no relist for too long.
    pub pleg_error: Option<String>,
    /// Error of the pod network, from `NetworkReady` of the runtime.
    pub network_error: Option<String>,
    /// Error of the CSINode, which is not initialized. A ready node stays ready, so that an agent
    /// restart does not change it.
    pub storage_error: Option<String>,
    /// Graceful node shutdown is in progress.
    pub shutting_down: bool,
    /// The node is under memory pressure.
    pub memory_pressure: bool,
    /// The node is under disk pressure.
    pub disk_pressure: bool,
    /// The node is under PID pressure.
    pub pid_pressure: bool,
    /// The node was not read yet: pressure conditions keep their status, so that an agent restart
    /// does not change them.
    pub keeps_pressure: bool,
    /// Pods with hung operations, which do not change whether the node is ready.
    pub hung_pods: Option<String>,
}

/// State of the container runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RuntimeHealth {
    /// No response since the start of the agent, for less than [`RUNTIME_DOWN_THRESHOLD`]. A ready
    /// node stays ready, so that an agent restart does not change it.
    #[default]
    NotCheckedYet,
    /// No response for [`RUNTIME_DOWN_THRESHOLD`] or more.
    Down,
    /// Not ready, with its message.
    NotReady(String),
    /// Ready.
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
    /// Creates the event of a new node state, with the text of upstream.
    pub fn status(node: &str, reason: Reason) -> Self {
        Self {
            event_type: EventType::Normal,
            reason,
            message: format!("Node {node} status is now: {reason}"),
        }
    }
}

/// Returns the new conditions, and the event reasons of the changes.
///
/// `missing_capacity` has the required resources with unknown capacity.
pub fn node_conditions(
    old: &[NodeCondition],
    health: &NodeHealth,
    missing_capacity: &[&str],
    now: Timestamp,
) -> (Vec<NodeCondition>, Vec<Reason>) {
    let mut conditions = old.to_vec();
    let mut events = Vec::new();
    for pressure in PRESSURES {
        let present = match health.keeps_pressure {
            true => find(&conditions, pressure.name).is_some_and(|it| it.status == "True"),
            false => (pressure.present)(health),
        };
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
        None => (true, "KubeletReady", ready_message(health)),
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

/// Returns the condition with this type.
pub fn find<'a>(conditions: &'a [NodeCondition], name: &str) -> Option<&'a NodeCondition> {
    conditions.iter().find(|c| c.type_ == name)
}

/// Returns whether two lists are equal, except for heartbeat times and order.
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

/// Returns upstream's message, followed by the pods with hung operations.
fn ready_message(health: &NodeHealth) -> String {
    match &health.hung_pods {
        None => READY_MESSAGE.to_owned(),
        Some(pods) => format!("{READY_MESSAGE}; {pods}"),
    }
}

/// Reason, message and event of one state of a pressure condition.
type ConditionText = (&'static str, &'static str, Reason);

struct Pressure {
    name: &'static str,
    present: fn(&NodeHealth) -> bool,
    when_true: ConditionText,
    when_false: ConditionText,
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

/// Returns why the node is not ready, in the order of upstream.
fn errors(health: &NodeHealth, missing_capacity: &[&str], was_ready: bool) -> Vec<String> {
    let runtime = match &health.runtime {
        RuntimeHealth::Ready => None,
        RuntimeHealth::NotCheckedYet if was_ready => None,
        RuntimeHealth::NotCheckedYet => {
            Some("container runtime status check may not have completed yet".to_owned())
        }
        RuntimeHealth::Down => Some("container runtime is down".to_owned()),
        RuntimeHealth::NotReady(message) => Some(format!("container runtime not ready: {message}")),
    };
    let pleg = health
        .pleg_error
        .as_ref()
        .map(|message| format!("PLEG is not healthy: {message}"));
    let network = health
        .network_error
        .as_ref()
        .map(|message| format!("container runtime network not ready: {message}"));
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

/// Returns one error unchanged, several in brackets.
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

/// Effect of [`set`].
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
