//! What a user is told of a pod: its one current blocker, its events, the phases of its start.

use std::fmt;
use std::time::Duration;

use crate::Timestamp;
use crate::reason::Reason;

/// The one thing that keeps a pod from what was asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocker {
    /// What kind of thing.
    pub reason: Reason,
    /// The container it concerns, if one.
    pub container: Option<String>,
    /// The whole story in one sentence.
    pub message: String,
    /// Since when it is the blocker.
    pub since: Timestamp,
    /// When the agent tries again by itself; `None` if an event or a user must come first.
    pub next_retry: Option<Timestamp>,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        if let Some(container) = &self.container {
            write!(f, " container={container}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// A manifest, or one pod of it, that a source refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedManifest {
    /// File path or URL.
    pub origin: String,
    /// The whole error: what, where in the file, how to fix it.
    pub error: String,
}

/// What the agent is a node of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSummary {
    /// Name of the node.
    pub name: String,
    /// The cluster; `None` for a stand-alone agent.
    pub cluster: Option<ClusterSummary>,
}

/// How the agent stands with its cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterSummary {
    /// URL of the API server; empty in simulations.
    pub server: String,
    /// Nothing is asked before there is a client certificate.
    pub has_identity: bool,
    /// Status of the condition `Ready` of the node object; `None` before the object was seen.
    pub ready: Option<String>,
    /// Whether the API server answers; `None` before it was asked.
    pub contact: Option<HeartbeatStatus>,
    /// Whether the node's pods can be watched; `None` before the first answer.
    pub pod_watch: Option<PodWatch>,
}

/// Whether the pods of the node can be listed and watched at the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodWatch {
    /// Why they cannot, from the newest attempt.
    pub error: Option<String>,
    /// Since when it has been so.
    pub since: Timestamp,
}

/// Whether the API server answers the node's heartbeat.
#[derive(Clone, Debug, PartialEq)]
pub struct HeartbeatStatus {
    /// Why it does not, from the newest attempt.
    pub error: Option<String>,
    /// Since when it has been so.
    pub since: Timestamp,
    /// When it last did; a request that hangs has not failed yet.
    pub last: Option<Timestamp>,
}

/// State of a pod worker; it never returns to an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodWorkerState {
    /// Making the runtime match the pod.
    SyncPod,
    /// Stopping the pod.
    TerminatingPod,
    /// Stopped; resources are being or were released.
    TerminatedPod,
}

impl PodWorkerState {
    /// `Sync`, `Terminating` or `Terminated`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SyncPod => "Sync",
            Self::TerminatingPod => "Terminating",
            Self::TerminatedPod => "Terminated",
        }
    }
}

impl fmt::Display for PodWorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `type` of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Something expected.
    Normal,
    /// Something to look at.
    Warning,
}

impl EventType {
    /// `Normal` or `Warning`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// One line of a pod's event list; repeats are counted, not repeated.
#[derive(Clone, Debug, PartialEq)]
pub struct PodEvent {
    /// Normal or Warning.
    pub event_type: EventType,
    /// Upstream's reason.
    pub reason: Reason,
    /// Container concerned, if one.
    pub container: Option<String>,
    /// Text.
    pub message: String,
    /// How often.
    pub count: u32,
    /// First time.
    pub first: Timestamp,
    /// Last time.
    pub last: Timestamp,
}

/// When a pod's start passed each phase; the differences are what `get pods -o wide` shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StartTimings {
    /// The merger saw the pod.
    pub seen: Option<Timestamp>,
    /// The pod worker got a start slot and began its first sync.
    pub dispatched: Option<Timestamp>,
    /// RunPodSandbox returned.
    pub sandbox_ready: Option<Timestamp>,
    /// The last image of the first start was on the node.
    pub images_ready: Option<Timestamp>,
    /// What pulls of the start took, waiting for their turn included.
    pub pulling: Duration,
    /// The last init container completed.
    pub init_done: Option<Timestamp>,
    /// StartContainer of the last app container returned.
    pub containers_started: Option<Timestamp>,
    /// The pod was observed with all containers running.
    pub running: Option<Timestamp>,
}
