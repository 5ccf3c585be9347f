//! The port for collecting stats.

use std::time::Duration;

use async_trait::async_trait;

use crate::logs::LogUsage;
use crate::resource::ResourceUsage;
use crate::usage::{NodeUsage, PodUsage};

/// Selection of stats besides CPU and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatsSelection {
    /// Network interfaces of the node and of pods.
    pub network: bool,
    /// File systems: node, images, containers, logs, volumes.
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

/// Collects stats on request. A value that cannot be read is absent, and does not affect others.
#[async_trait]
pub trait StatsSource: Send + Sync + std::fmt::Debug + 'static {
    /// Collects the stats of the node.
    ///
    /// # Errors
    /// The node has no stats.
    async fn node(&self, selection: StatsSelection) -> Result<NodeUsage, StatsError>;
    /// Collects the stats of all pods with a ready sandbox, ordered by namespace and name.
    ///
    /// # Errors
    /// Reading their cgroups timed out.
    async fn pods(&self, selection: StatsSelection) -> Result<Vec<PodUsage>, StatsError>;
    /// Collects the stats of `/metrics/resource`. An implementation may keep only these per pod.
    ///
    /// # Errors
    /// As [`Self::node`] and [`Self::pods`].
    async fn resource(&self) -> Result<ResourceUsage, StatsError> {
        let selection = StatsSelection::CPU_AND_MEMORY;
        let (node, pods) = tokio::try_join!(self.node(selection), self.pods(selection))?;
        Ok(ResourceUsage::of(&node, pods))
    }
    /// Collects the disk usage of container logs; empty by default.
    async fn logs(&self) -> Vec<LogUsage> {
        Vec::new()
    }
}

/// No stats could be collected. The text is that of upstream, followed by the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatsError {
    /// No stats of the node.
    #[error("failed to get root cgroup stats: {0}")]
    Node(StatsUnavailable),
    /// No stats of pods.
    #[error("failed to list pod stats: {0}")]
    Pods(StatsUnavailable),
}

/// Why there are no stats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatsUnavailable {
    /// Reading cgroups, or the previous collection, took too long.
    #[error("reading cgroups timed out after {} s", .0.as_secs())]
    Late(Duration),
    /// Neither cgroups nor `/proc` have CPU time or memory.
    #[error("cannot read CPU time or memory")]
    Unknown,
}
