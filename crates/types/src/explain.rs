//! The timeline of a pod and the explanation of its blocker, as JSON.
//!
//! The node API serves both, and `windlassctl` prints them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::corev1::PodStatus;
use crate::view::Blocker;

crate::text_enum! {
    /// Kind of a timeline record. Its text is the name in the JSON.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum RecordKind {
        /// An update from a pod source.
        Source = "source",
        /// The admission or rejection of the pod.
        Admission = "admission",
        /// A sync of the pod worker.
        Sync = "sync",
        /// The time that a sync waited for something.
        Wait = "wait",
        /// An operation on a volume.
        Volume = "volume",
        /// A call of the container runtime.
        #[serde(rename = "runtime")]
        RuntimeCall = "runtime",
        /// A changed probe result.
        Probe = "probe",
        /// A request to the API server.
        #[serde(rename = "api")]
        ApiRequest = "api",
    }
}

crate::text_enum! {
    /// State of a timeline record. Its text is the name in the JSON.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum RecordState {
        /// Ended without an error, or took no time.
        Succeeded = "succeeded",
        /// Ended with an error, or the probe result is a failure.
        Failed = "failed",
        /// Abandoned by its caller.
        Cancelled = "cancelled",
        /// In progress.
        Running = "running",
    }
}

/// One entry of a pod's timeline; repeats increase its count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineRecord {
    /// Kind of the operation.
    pub kind: RecordKind,
    /// Name of the operation, such as `RunPodSandbox`.
    pub name: String,
    /// The container, volume or image concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// State of the last repeat.
    pub state: RecordState,
    /// Result or error of the last repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Number of repeats.
    pub count: u32,
    /// Start of the first repeat.
    pub first_started_at: Timestamp,
    /// Start of the last repeat.
    pub started_at: Timestamp,
    /// Duration of the last repeat, so far if it is running; absent for what takes no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<f64>,
}

impl fmt::Display for TimelineRecord {
    /// `runtime RunPodSandbox web x3 0.412s failed: no network`, without times of day.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)?;
        if let Some(subject) = &self.subject {
            write!(f, " {subject}")?;
        }
        if self.count > 1 {
            write!(f, " x{}", self.count)?;
        }
        if let Some(seconds) = self.duration_seconds {
            write!(f, " {seconds:.3}s")?;
        }
        if self.state != RecordState::Succeeded {
            write!(f, " {}", self.state.as_str())?;
        }
        match &self.message {
            Some(message) => write!(f, ": {message}"),
            None => Ok(()),
        }
    }
}

/// The records of a pod, ordered by their start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodTimeline {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod.
    pub uid: String,
    /// When the pod was removed from the node; absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_at: Option<Timestamp>,
    /// When the agent generated this timeline.
    pub generated_at: Timestamp,
    /// Number of records dropped in favor of newer ones.
    pub dropped_records: u32,
    /// The records.
    pub records: Vec<TimelineRecord>,
}

/// A [`Blocker`] with what resolves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockerView {
    /// The reason, spelled as Kubernetes spells it.
    pub reason: String,
    /// The container concerned, if one.
    pub container: Option<String>,
    /// The cause in one sentence.
    pub message: String,
    /// Since when it has been the blocker.
    pub since: Timestamp,
    /// Time of the next automatic retry; `null` without one.
    pub next_retry: Option<Timestamp>,
    /// The component or person that resolves it.
    pub waiting_for: String,
}

impl BlockerView {
    /// Adds `message` and `waiting_for` to `blocker`.
    pub fn new(blocker: &Blocker, message: String, waiting_for: &str) -> Self {
        Self {
            reason: blocker.reason.to_string(),
            container: blocker.container.clone(),
            message,
            since: blocker.since,
            next_retry: blocker.next_retry,
            waiting_for: waiting_for.to_owned(),
        }
    }
}

/// Why a pod was evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EvictionView {
    /// `status.message`.
    pub message: String,
    /// When; absent if the eviction was before the start of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted_at: Option<Timestamp>,
    /// The signal, by how much it was short, and why this pod; absent as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
}

/// Why a resize is not allocated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResizeView {
    /// `Deferred` or `Infeasible`.
    pub reason: String,
    /// The cause in one sentence.
    pub message: String,
    /// Since when it has been pending for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Time of the next periodic retry; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_retry: Option<Timestamp>,
    /// The component or person that resolves it.
    pub waiting_for: String,
}

impl ResizeView {
    /// Reads the condition `PodResizePending`.
    pub fn from_status(status: &PodStatus) -> Option<Self> {
        let mut conditions = status.conditions.iter().flatten();
        let condition = conditions.find(|c| c.type_ == crate::names::RESIZE_PENDING)?;
        let reason = condition.reason.clone().unwrap_or_default();
        let waiting_for = match reason.as_str() {
            "Infeasible" => "user: request other sizes (no automatic retry)",
            _ => "agent, when other pods have freed the resources (automatic retry)",
        };
        Some(Self {
            reason,
            message: condition.message.clone().unwrap_or_default(),
            since: condition.last_transition_time.as_ref().map(|time| time.0),
            next_retry: None,
            waiting_for: waiting_for.to_owned(),
        })
    }
}

/// Why a pod is not in its desired state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod.
    pub uid: String,
    /// `status.phase`.
    pub phase: Option<String>,
    /// State of the pod worker.
    pub worker_state: String,
    /// The status is that of the previous agent run: the agent has not observed the pod yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale_status: bool,
    /// What blocks the pod; `null` if nothing does.
    pub blocker: Option<BlockerView>,
    /// Why the pod was evicted; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction: Option<EvictionView>,
    /// Why its resize is not allocated; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<ResizeView>,
    /// Problems that block nothing.
    pub issues: Vec<String>,
    /// The newest records relevant to the blocker; empty without one.
    pub records: Vec<TimelineRecord>,
}
