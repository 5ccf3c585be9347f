//! User-visible state of a pod: its blocker, its events, the timing of its start.

use std::fmt;
use std::time::Duration;

use crate::Timestamp;
use crate::ids::PodUid;
use crate::probe::ProbeKind;
use crate::reason::Reason;

/// What blocks a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocker {
    /// The reason, spelled as in Kubernetes.
    pub reason: Reason,
    /// The container it concerns, if one.
    pub container: Option<String>,
    /// The cause in one sentence.
    pub message: String,
    /// The failing probe, if it is the cause.
    pub probe: Option<ProbeKind>,
    /// Since when it has been the blocker.
    pub since: Timestamp,
    /// Time of the next automatic retry; `None` without one.
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

/// A rejected manifest, or one rejected pod of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedManifest {
    /// File path or URL.
    pub origin: String,
    /// The error, its position in the file, and how to fix it.
    pub error: String,
}

/// The node and its cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSummary {
    /// Name of the node.
    pub name: String,
    /// The cluster; `None` in standalone mode.
    pub cluster: Option<ClusterSummary>,
    /// What hangs, oldest first.
    pub hung_operations: Vec<HungOperationView>,
}

/// An operation that does not end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HungOperationView {
    /// Kind, such as `volume` or `runtime_call`.
    pub kind: &'static str,
    /// What it does, such as `mount of volume data`.
    pub name: String,
    /// Start of the first attempt without an answer.
    pub since: Timestamp,
    /// Pod that waits for it; `None` if the node does.
    pub pod: Option<PodUid>,
    /// Namespace and name of the pod, if known.
    pub pod_name: Option<(String, String)>,
}

/// The cluster and the state of the API server connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterSummary {
    /// URL of the API server; empty in simulations.
    pub server: String,
    /// False while the node waits for its first client certificate and sends no requests.
    pub has_identity: bool,
    /// Status of the Ready condition of the Node object; `None` before its first read.
    pub ready: Option<String>,
    /// Heartbeat status; `None` before the first heartbeat.
    pub contact: Option<HeartbeatStatus>,
    /// Watch status; `None` before the first response.
    pub pod_watch: Option<PodWatch>,
}

/// Status of the list and watch of the pods of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodWatch {
    /// Error of the last attempt; `None` after success.
    pub error: Option<String>,
    /// Start of the current state.
    pub since: Timestamp,
}

/// Status of the node heartbeat.
#[derive(Clone, Debug, PartialEq)]
pub struct HeartbeatStatus {
    /// Error of the last heartbeat; `None` after success.
    pub error: Option<String>,
    /// Start of the current state.
    pub since: Timestamp,
    /// Time of the last successful heartbeat; a hung heartbeat has not failed yet.
    pub last: Option<Timestamp>,
}

crate::text_enum! {
    /// State of a pod worker; it never returns to an earlier one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum PodWorkerState {
        /// Reconciles the pod with the runtime.
        SyncPod = "Sync",
        /// Stops the containers.
        TerminatingPod = "Terminating",
        /// Containers are stopped; resources are cleaned up.
        TerminatedPod = "Terminated",
    }
}

crate::text_enum! {
    /// `type` of an event.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum EventType {
        /// Information.
        Normal = "Normal",
        /// A problem.
        Warning = "Warning",
    }
}

/// An event of a pod; repeats increase its count.
#[derive(Clone, Debug, PartialEq)]
pub struct PodEvent {
    /// Normal or Warning.
    pub event_type: EventType,
    /// The reason.
    pub reason: Reason,
    /// Container concerned, if one.
    pub container: Option<String>,
    /// The probe that caused it, if one.
    pub probe: Option<ProbeKind>,
    /// Text.
    pub message: String,
    /// Number of occurrences.
    pub count: u32,
    /// First time.
    pub first: Timestamp,
    /// Last time.
    pub last: Timestamp,
}

/// When the start of a pod reached each phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StartTimings {
    /// The merger saw the pod.
    pub seen: Option<Timestamp>,
    /// The pod worker got a start slot and began its first sync.
    pub dispatched: Option<Timestamp>,
    /// RunPodSandbox returned.
    pub sandbox_ready: Option<Timestamp>,
    /// The last image was present.
    pub images_ready: Option<Timestamp>,
    /// Duration of the image pulls, including the wait for a permit.
    pub pulling: Duration,
    /// The last init container completed.
    pub init_done: Option<Timestamp>,
    /// StartContainer of the last app container returned.
    pub containers_started: Option<Timestamp>,
    /// The pod was observed with all containers running.
    pub running: Option<Timestamp>,
}
