//! What the node, its pods and their containers use, read when somebody asks.
//!
//! [`usage`] has the figures as plain data. Who measures implements [`StatsSource`]
//! ([`HostStats`]: this machine); who shows them (the summary, `/metrics/resource`,
//! `/metrics/cadvisor`, `windlassctl top`) takes that data.

pub mod usage;

#[cfg(test)]
mod test_figures;

pub mod cadvisor;
mod exposition;
pub mod resource;
pub mod summary;

pub mod source;

pub mod host;
pub mod pods;

mod assemble;
mod cgroup;
mod disk;
mod machine;
mod network;
pub mod parse;
mod places;
mod rate;
mod refreshed;
pub mod topology;
mod volumes;

pub use cadvisor::{MachineFacts, cadvisor_metrics};
pub use host::{HostStats, HostStatsConfig, KernelRoots, SystemCgroups};
pub use pods::{RunningPod, RunningPods, VolumeFigure, VolumeFigures};
pub use resource::{ResourceUsage, resource_metrics};
pub use source::{NoFigures, StatsError, StatsSource, Wanted};
pub use summary::Summary;
