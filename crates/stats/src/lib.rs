//! Resource usage of the node, its pods and containers, collected on request.
//!
//! Stats come from cgroup v1 or v2, `/proc`, file systems and the container runtime, in the formats
//! of metrics-server and Prometheus.
//!
//! # The way in
//!
//! * [`HostStats`] collects the stats of this host; [`HostStatsConfig`] has its paths and ports
//!   ([`RunningPods`], [`VolumeStatsProvider`], the runtime)
//! * [`StatsSource`] is the port for the output formats; [`StatsSelection`] selects stats besides
//!   CPU and memory
//! * [`usage`] has the stats as plain data
//! * [`MemoryReader`] reads memory and processes only, on the caller's thread
//! * [`max_tasks`] is the maximum number of tasks of the host
//! * [`PodFiles`] is the disk usage of logs, [`DiskSpace`] that of a file system,
//!   [`RefreshingCache`] a value refreshed on request
//! * [`SingleFlightIo`] runs blocking I/O of which one operation is in flight
//! * [`Summary`] is `/stats/summary`, [`resource_metrics`] `/metrics/resource`,
//!   [`cadvisor_metrics`] `/metrics/cadvisor`
//!
//! # Example
//!
//! The parsers are pure functions of bytes, which skip invalid content:
//!
//! ```
//! use windlass_stats::parse::{parse_cpu_max, parse_limit, parse_procs};
//!
//! assert_eq!(parse_cpu_max(b"50000 100000\n"), (Some(50_000), Some(100_000)));
//! assert_eq!(parse_limit(b"max\n"), None);
//! assert_eq!(parse_procs(b"17\n4\nnonsense\n"), [17, 4]);
//! ```
//!
//! `cargo run -p windlass-stats --example measure_node` prints the summary of this host.
//!
//! # What it promises
//!
//! * Stats are collected only on request, without timers. A rate uses the youngest sample that is
//!   between 1 s and 120 s old.
//! * One blocking thread reads the cgroups of pods and one those of the node. A collection has a
//!   timeout of 5 s; file systems, logs, volumes and the runtime have 2 s, then cached values are
//!   used.
//! * A value that cannot be read is absent, and does not affect others; only `/metrics/cadvisor`
//!   reports some memory values as 0, as upstream.
//! * At most 2560 files stay open, three for each of 750 cgroups.
//!
//! # What it does not do
//!
//! It keeps no history and sends nothing. Cgroups are created in `windlass-cgroups`, files of
//! volumes counted in `windlass-volumes`.

/// An array of tuples with one row per line, or two.
macro_rules! rows {
    ($($($cell:expr),+;)*) => { [$(($($cell),+)),*] };
}

pub mod usage;

#[cfg(test)]
mod test_figures;

mod cadvisor;
mod exposition;
mod logs;
mod resource;
mod summary;

mod source;

mod host;
pub mod pods;

mod assemble;
mod cgroup;
mod cgroup_paths;
mod disk;
mod disk_space;
mod machine;
mod memory_reader;
mod network;
pub mod parse;
mod rate;
mod refreshing_cache;
mod single_flight_io;
pub mod topology;
mod volumes;

pub use cadvisor::{MachineFacts, cadvisor_metrics};
pub use disk::{DiskUsageTotal, PodFilePaths, PodFiles};
pub use disk_space::DiskSpace;
pub use host::{HostStats, HostStatsConfig, KernelRoots, SystemCgroups};
pub use logs::{LogUsage, log_metrics};
pub use machine::max_tasks;
pub use memory_reader::{MemoryReader, NodeMemory, PodMemory};
pub use pods::{RunningPod, RunningPods, VolumeStatsEntry, VolumeStatsProvider};
pub use refreshing_cache::{AgeLimits, RefreshingCache};
pub use resource::{ResourceUsage, resource_metrics};
pub use single_flight_io::SingleFlightIo;
pub use source::{StatsError, StatsSelection, StatsSource, StatsUnavailable};
pub use summary::Summary;
