//! Ports to those who know which pods there are and what their volumes hold.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_types::{ObservedPod, PodUid, SharedPod, Timestamp};

use crate::usage::FsUsage;

/// A pod of which the runtime has something.
#[derive(Clone, Debug)]
pub struct RunningPod {
    /// What the runtime was last seen to have.
    pub observed: Arc<ObservedPod>,
    /// The pod itself; `None` if nobody asks for it any more.
    pub pod: Option<SharedPod>,
    /// It is the one that somebody means who says its name.
    pub present: bool,
    /// When the node took it up (`status.startTime`).
    pub started_at: Option<Timestamp>,
}

/// Says which pods there are. Must not wait: the answer is in memory.
pub trait RunningPods: Send + Sync + Debug + 'static {
    /// All pods of which the runtime has something, in any order.
    fn running_pods(&self) -> Vec<RunningPod>;
}

/// What one volume of a pod holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeStatsEntry {
    /// Its name in the pod's spec.
    pub name: String,
    /// The claim behind it, in the pod's namespace.
    pub claim: Option<String>,
    /// The figures.
    pub fs: FsUsage,
    /// Its driver says that it is not well.
    pub abnormal: Option<bool>,
}

/// Measures volumes.
#[async_trait]
pub trait VolumeStatsProvider: Send + Sync + Debug + 'static {
    /// The volumes of a pod, ordered by name, with figures no older than `max_age`. May take as
    /// long as counting a large tree; who cannot wait drops the future.
    async fn of_pod(&self, uid: &PodUid, max_age: Duration) -> Vec<VolumeStatsEntry>;
}
