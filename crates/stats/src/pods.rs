//! Ports for the observed pods and the usage of their volumes.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_types::{ObservedPod, PodUid, SharedPod, Timestamp};

use crate::usage::FsUsage;

/// A pod in the runtime.
#[derive(Clone, Debug)]
pub struct RunningPod {
    /// The observed pod.
    pub observed: Arc<ObservedPod>,
    /// The desired pod; `None` for an orphaned pod.
    pub pod: Option<SharedPod>,
    /// The current one of several pods with the same full name.
    pub present: bool,
    /// `status.startTime`.
    pub started_at: Option<Timestamp>,
}

/// Lists the pods in the runtime. Must not wait.
pub trait RunningPods: Send + Sync + Debug + 'static {
    /// Returns all pods in the runtime, in any order.
    fn running_pods(&self) -> Vec<RunningPod>;
}

/// Usage of one volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeStatsEntry {
    /// Name in the pod spec.
    pub name: String,
    /// Name of its PVC.
    pub claim: Option<String>,
    /// The usage.
    pub fs: FsUsage,
    /// Its driver reports it as abnormal.
    pub abnormal: Option<bool>,
}

/// Measures volumes.
#[async_trait]
pub trait VolumeStatsProvider: Send + Sync + Debug + 'static {
    /// Measures the volumes of a pod, ordered by name, not older than `max_age`. May take long; a
    /// caller may drop the future.
    async fn of_pod(&self, uid: &PodUid, max_age: Duration) -> Vec<VolumeStatsEntry>;
}
