//! The port to whoever measures.

use std::time::Duration;

use async_trait::async_trait;

use crate::logs::LogUsage;
use crate::resource::ResourceUsage;
use crate::usage::{NodeUsage, PodUsage};

/// What is to be measured besides CPU and memory, which always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatsSelection {
    /// Network interfaces of the node and of pods.
    pub network: bool,
    /// File systems: the node's, images, containers, logs, volumes.
    pub disk: bool,
    /// Block I/O.
    pub io: bool,
    /// Processes, threads, descriptors.
    pub processes: bool,
}

impl StatsSelection {
    /// CPU and memory only: `only_cpu_and_memory=true`, `/metrics/resource`.
    pub const CPU_AND_MEMORY: Self = Self {
        network: false,
        disk: false,
        io: false,
        processes: false,
    };
    /// Everything.
    pub const ALL: Self = Self {
        network: true,
        disk: true,
        io: true,
        processes: true,
    };
}

/// Measures when asked. What cannot be read is absent, never zero, and never an error of the rest.
#[async_trait]
pub trait StatsSource: Send + Sync + std::fmt::Debug + 'static {
    /// The node.
    ///
    /// # Errors
    /// There is no figure of it.
    async fn node(&self, wanted: StatsSelection) -> Result<NodeUsage, StatsError>;
    /// All pods that have a sandbox, ordered by namespace and name.
    ///
    /// # Errors
    /// Their cgroups do not answer.
    async fn pods(&self, wanted: StatsSelection) -> Result<Vec<PodUsage>, StatsError>;
    /// What `/metrics/resource` shows of both. Who can, keeps no more than that of a pod when it
    /// measures the next.
    ///
    /// # Errors
    /// As the two.
    async fn resource(&self) -> Result<ResourceUsage, StatsError> {
        let wanted = StatsSelection::CPU_AND_MEMORY;
        let (node, pods) = tokio::try_join!(self.node(wanted), self.pods(wanted))?;
        Ok(ResourceUsage::of(&node, pods))
    }
    /// What logs of containers take, as far as it is known; nothing by itself, for those who look at
    /// no disk.
    async fn logs(&self) -> Vec<LogUsage> {
        Vec::new()
    }
}

/// Nothing at all could be measured. The words are upstream's, followed by why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatsError {
    /// Of the node.
    #[error("failed to get root cgroup stats: {0}")]
    Node(StatsUnavailable),
    /// Of pods.
    #[error("failed to list pod stats: {0}")]
    Pods(StatsUnavailable),
}

/// Why there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatsUnavailable {
    /// The kernel, or the look before this one, took too long.
    #[error("cgroups did not answer within {} s", .0.as_secs())]
    Late(Duration),
    /// Neither a cgroup nor `/proc` has processor time or memory.
    #[error("neither processor time nor memory can be read")]
    Unknown,
}
