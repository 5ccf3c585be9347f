//! Why a pod is as it is, as JSON: its timeline and the explanation of what keeps it from what was
//! asked. The node's own API answers with these, and `windlassctl` prints them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::view::Blocker;

/// What kind of thing touched a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordKind {
    /// A pod source said something of it that was merged.
    Source,
    /// The node took it, or did not.
    Admission,
    /// A job of its worker.
    Job,
    /// A job waited for something before it went on.
    Wait,
    /// A step of one of its volumes.
    Volume,
    /// A call of the container runtime.
    Call,
    /// A probe's verdict changed.
    Probe,
    /// A request to the API server about it.
    Status,
}

impl RecordKind {
    /// One word, as in the JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Admission => "admission",
            Self::Job => "job",
            Self::Wait => "wait",
            Self::Volume => "volume",
            Self::Call => "call",
            Self::Probe => "probe",
            Self::Status => "status",
        }
    }
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How a touch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordState {
    /// Well, or it took no time.
    Done,
    /// With an error, or a verdict that something is wrong.
    Failed,
    /// Whoever was at it gave it up.
    Cancelled,
    /// Not yet.
    Running,
}

impl RecordState {
    /// One word, as in the JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Running => "running",
        }
    }
}

/// One thing that touched a pod; repeats are counted, not repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineRecord {
    /// What kind of thing.
    pub kind: RecordKind,
    /// What was done, such as `RunPodSandbox`.
    pub name: String,
    /// To which part of the pod: a container, a volume, an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// How it ended the last time.
    pub end: RecordState,
    /// What came of it, or why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How often.
    pub count: u32,
    /// When it began for the first time.
    pub first: Timestamp,
    /// When it began the last time.
    pub began: Timestamp,
    /// How long it took the last time, or has taken so far; absent for what takes no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

impl fmt::Display for TimelineRecord {
    /// `call RunPodSandbox web x3 0.412s failed: no network`, without times of day.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)?;
        if let Some(subject) = &self.subject {
            write!(f, " {subject}")?;
        }
        if self.count > 1 {
            write!(f, " x{}", self.count)?;
        }
        if let Some(seconds) = self.seconds {
            write!(f, " {seconds:.3}s")?;
        }
        if self.end != RecordState::Succeeded {
            write!(f, " {}", self.end.as_str())?;
        }
        match &self.message {
            Some(message) => write!(f, ": {message}"),
            None => Ok(()),
        }
    }
}

/// What touched a pod, in the order in which it began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodTimeline {
    /// Namespace of the pod.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its UID.
    pub uid: String,
    /// When it left the node; absent while it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<Timestamp>,
    /// When the agent looked.
    pub now: Timestamp,
    /// Records that had to make room for newer ones.
    pub forgotten: u32,
    /// What touched it.
    pub touches: Vec<TimelineRecord>,
}

/// A [`Blocker`] with who is to do something about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockerView {
    /// What kind of thing, in Kubernetes' word.
    pub reason: String,
    /// The container it concerns, if one.
    pub container: Option<String>,
    /// The whole story in one sentence.
    pub message: String,
    /// Since when it is the blocker.
    pub since: Timestamp,
    /// When the agent tries again by itself.
    pub next_retry: Option<Timestamp>,
    /// Who goes on with it, or has to.
    pub who: String,
}

impl BlockerView {
    /// `blocker` with the words that say who goes on.
    pub fn new(blocker: &Blocker, message: String, who: &str) -> Self {
        Self {
            reason: blocker.reason.to_string(),
            container: blocker.container.clone(),
            message,
            since: blocker.since,
            next_retry: blocker.next_retry,
            who: who.to_owned(),
        }
    }
}

/// What keeps a pod from what was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Namespace of the pod.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its UID.
    pub uid: String,
    /// `status.phase`.
    pub phase: Option<String>,
    /// How far its worker is.
    pub worker_state: String,
    /// The one thing that keeps it from what was asked.
    pub blocker: Option<BlockerView>,
    /// What is not as it should be and holds nothing up.
    pub notes: Vec<String>,
    /// The last touches that led to the blocker; none without one.
    pub touches: Vec<TimelineRecord>,
}
