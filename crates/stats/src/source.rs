//! The port to whoever measures.

use async_trait::async_trait;

use crate::usage::{NodeUsage, PodUsage};

/// What is to be measured besides CPU and memory, which always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Network interfaces of the node and of pods.
    pub network: bool,
    /// File systems: the node's, images, containers, logs, volumes.
    pub disk: bool,
    /// Block I/O.
    pub io: bool,
    /// Processes, threads, descriptors.
    pub processes: bool,
}

impl Wanted {
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
    async fn node(&self, wanted: Wanted) -> NodeUsage;
    /// All pods that have a sandbox, ordered by namespace and name.
    async fn pods(&self, wanted: Wanted) -> Vec<PodUsage>;
}
