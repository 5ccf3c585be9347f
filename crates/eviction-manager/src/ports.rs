//! What the EvictionManager needs of the host: readings, reclaim, memory notifications.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;
use windlass_eviction::{ContainerUsage, DiskUsage, FileSystems, Observations, PodUsage};
use windlass_types::{ObservedPod, PodUid, SharedPod};

/// One reading of the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeReading {
    /// The signals. An old reading keeps its time; a signal that was never read is absent.
    pub observations: Observations,
    /// File systems of the container runtime; `None` until it has reported them.
    pub file_systems: Option<FileSystems>,
    /// Inactive file pages of the node in bytes, which memory usage contains and working set does
    /// not.
    pub node_inactive_file: u64,
    /// As above, of the pods' cgroup.
    pub pods_inactive_file: u64,
}

/// Reads memory, disks and processes.
#[async_trait]
pub trait NodeFigures: Send + Sync + Debug + 'static {
    /// Reads all signals. Returns in time even if a disk hangs: its last reading is returned with
    /// the time at which it was read.
    async fn read(&self) -> NodeReading;

    /// Reads memory and processes of pods; their disk usage is empty. A pod without a cgroup is
    /// absent.
    async fn pods(&self, pods: Vec<Arc<ObservedPod>>) -> BTreeMap<PodUid, PodUsage>;

    /// Slows down a pod that allocates more memory than it has now, as far as the kernel can.
    async fn hold_memory(&self, pod: PodUid);

    /// Kills the running containers of a pod whose grace period is over, as far as the kernel can:
    /// a container runtime that waits for memory does not.
    async fn kill(&self, pod: Arc<ObservedPod>);
}

/// Disk usage of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDisk {
    /// Running containers, without memory.
    pub containers: Vec<ContainerUsage>,
    /// Local volumes.
    pub local_volumes: DiskUsage,
}

/// Measures the disk usage of pods.
#[async_trait]
pub trait PodDiskMeter: Send + Sync + Debug + 'static {
    /// Measures pods within a few seconds; a pod that could not be measured is absent.
    async fn measure(&self, pods: Vec<SharedPod>) -> BTreeMap<PodUid, PodDisk>;
}

/// Frees disk space without evicting pods.
#[async_trait]
pub trait NodeReclaimer: Send + Sync + Debug + 'static {
    /// Removes all dead containers and their logs.
    ///
    /// # Errors
    /// Some could not be removed.
    async fn delete_dead_containers(&self) -> Result<(), String>;

    /// Removes all images that no container uses.
    ///
    /// # Errors
    /// Some could not be removed.
    async fn delete_unused_images(&self) -> Result<(), String>;
}

/// Memory usage, with page cache, at which the kernel notifies; `None` without a threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageThresholds {
    /// Of the root cgroup, in bytes.
    pub node: Option<u64>,
    /// Of the pods' cgroup, in bytes.
    pub pods: Option<u64>,
}

windlass_types::text_enum! {
    /// A notification of the kernel that memory may be short.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum MemoryTrigger {
        /// Tasks waited for memory (PSI).
        Stall = "memory stall",
        /// The pods' cgroup reached its limit (`memory.events`).
        Limit = "memory limit of pods",
        /// Usage crossed a threshold (cgroup v1).
        Usage = "memory usage",
    }
}

/// Receives notifications.
pub type TriggerSink = Arc<dyn Fn(MemoryTrigger) + Send + Sync>;

/// Notifications of the kernel.
#[async_trait]
pub trait MemoryTriggers: Send + Sync + Debug + 'static {
    /// Sends notifications, and applies newer thresholds. Returns if the kernel has none.
    async fn run(&self, thresholds: watch::Receiver<UsageThresholds>, sink: TriggerSink);
}
