//! What a run observes, in order: steps, agent runs, the runtime, the API server, probes, volumes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use windlass_testing::fake_runtime::RuntimeChange;
use windlass_types::{Pod, PodExt, PodUid};

use crate::step::{Step, seconds};

/// An event with its time since the start of the run. The wall clock of the node has no effect.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Time since the start.
    pub at: Duration,
    /// The event.
    pub event: Event,
}

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// A step took effect.
    Step(Step),
    /// A fault has an effect until the event with the same text that ends it.
    FaultBegan(String),
    /// A fault ended.
    FaultEnded(String),
    /// A manifest was added, in place of the previous one of the same pod (`namespace/pod`).
    StaticAdded(PodUid, String),
    /// The manifest of a pod (`namespace/pod`) was removed.
    StaticRemoved(String),
    /// An agent run started.
    AgentStarted,
    /// The agent was killed.
    AgentKilled,
    /// A sandbox or container changed.
    Runtime(RuntimeChange),
    /// A pod in the API server changed, with its whole status; `is_deleted` if it no longer exists.
    Pod {
        /// The pod, or its last state.
        pod: Arc<Pod>,
        /// True if the object was removed.
        is_deleted: bool,
    },
    /// The Node object changed.
    Node {
        /// Status of its condition Ready, or an empty text.
        ready: String,
        /// True if the object was removed.
        is_deleted: bool,
    },
    /// The lease of the node was created or renewed.
    Lease,
    /// The agent sent a request that changes a pod.
    Request {
        /// HTTP method.
        method: String,
        /// Path.
        path: String,
        /// Response code; 0 without a response.
        status: u16,
        /// Body.
        body: Arc<Value>,
    },
    /// The agent sent a request of a probe to a server.
    Probe {
        /// Address.
        host: String,
        /// Port.
        port: u16,
    },
    /// The volumes recorded a violation.
    Volumes(String),
    /// Time has passed; sent at least once per [`crate::TICK`].
    Tick,
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12} {}", seconds(self.at), self.event)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(step) => write!(f, "step: {step}"),
            Self::FaultBegan(fault) => write!(f, "fault began: {fault}"),
            Self::StaticAdded(uid, pod) => write!(f, "manifest of {pod} added: {uid}"),
            Self::StaticRemoved(pod) => write!(f, "manifest of {pod} removed"),
            Self::FaultEnded(fault) => write!(f, "fault ended: {fault}"),
            Self::AgentStarted => f.write_str("agent started"),
            Self::AgentKilled => f.write_str("agent killed"),
            Self::Runtime(change) => write!(f, "runtime: {change}"),
            Self::Pod { pod, is_deleted } => {
                let phase = phase(pod);
                let (name, uid) = (pod.name(), pod.uid());
                let ready = if is_ready(pod) { " ready" } else { "" };
                let reason = reason(pod);
                let deleted = match (is_deleted, &pod.metadata.deletion_timestamp) {
                    (true, _) => " removed",
                    (false, Some(_)) => " being deleted",
                    (false, None) => "",
                };
                write!(f, "api: {name} ({uid}) {phase}{ready} {reason}{deleted}")
            }
            Self::Request {
                method,
                path,
                status,
                ..
            } => write!(f, "request: {method} {path} {status}"),
            Self::Probe { host, port } => write!(f, "probe: {host}:{port}"),
            Self::Volumes(text) => write!(f, "volumes: {text}"),
            Self::Node { ready, is_deleted } => {
                let removed = if *is_deleted { " removed" } else { "" };
                write!(f, "node: ready {ready}{removed}")
            }
            Self::Lease => f.write_str("lease"),
            Self::Tick => f.write_str("tick"),
        }
    }
}

/// Returns true if the condition Ready of the pod is true.
pub fn is_ready(pod: &Pod) -> bool {
    has_condition(pod, "Ready")
}

/// Returns true if the pod was evicted. If all of its containers exit with 0 at that moment its phase
/// is Succeeded, without the reason Evicted, as with the Go kubelet.
pub(crate) fn is_evicted(pod: &Pod) -> bool {
    reason(pod) == "Evicted"
        || (phase(pod) == "Succeeded" && has_condition(pod, "DisruptionTarget"))
}

fn has_condition(pod: &Pod, kind: &str) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    let mut all = conditions.into_iter().flatten();
    all.any(|c| c.type_ == kind && c.status == "True")
}

/// Returns the phase of a pod, or an empty text.
pub fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status.and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

/// Returns true for Succeeded and Failed.
pub fn is_terminal(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

/// Returns the reason of the status, or an empty text.
pub fn reason(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status.and_then(|s| s.reason.as_deref()).unwrap_or_default()
}
