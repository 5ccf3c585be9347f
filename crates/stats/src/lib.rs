//! What the node, its pods and their containers use, read when somebody asks.
//!
//! For whoever wants a kubelet's figures without a kubelet: from cgroup v1 or v2, `/proc`, file systems
//! and the container runtime, in the shapes that metrics-server and Prometheus know.
//!
//! # The way in
//!
//! * [`HostStats`] measures this machine; [`HostStatsConfig`] says where, and who knows which pods
//!   ([`RunningPods`]), volumes ([`VolumeStatsProvider`]) and file systems of the runtime there are
//! * [`StatsSource`] is the port that those use who show figures; [`StatsSelection`] says what besides processor
//!   and memory is to be read
//! * [`usage`] has the figures as plain data
//! * [`Summary`] is `/stats/summary`, [`resource_metrics`] `/metrics/resource`, [`cadvisor_metrics`]
//!   `/metrics/cadvisor`
//!
//! # Example
//!
//! The parsers are pure functions of bytes; what makes no sense is left out and nothing fails:
//!
//! ```
//! use windlass_stats::parse::{parse_cpu_max, parse_limit, parse_procs};
//!
//! assert_eq!(parse_cpu_max(b"50000 100000\n"), (Some(50_000), Some(100_000)));
//! assert_eq!(parse_limit(b"max\n"), None);
//! assert_eq!(parse_procs(b"17\n4\nnonsense\n"), [17, 4]);
//! ```
//!
//! `cargo run -p windlass-stats --example measure_node` measures this machine and prints its summary.
//!
//! # What it promises
//!
//! * Nothing is measured unless somebody asks: no timer, no thread, no cache that fills by itself. Rates
//!   are between this look and the youngest one that is at least a second old, and at most 120 s.
//! * One blocking thread looks at the cgroups of pods and one at the node's, whatever hangs. A look is
//!   waited for 5 s; file systems, logs, volumes and the runtime 2 s, then there are the figures that there
//!   are.
//! * What cannot be read is absent, never zero, and never an error of the rest; but of memory that an old
//!   kernel does not count `/metrics/cadvisor` says 0, as upstream does.
//! * At most 2560 files stay open, three for each of 750 cgroups.
//!
//! # What it does not do
//!
//! It keeps no history and sends nothing anywhere. It makes no cgroup and sets no limit
//! (`windlass-cgroups`), and counts no files of a volume itself (`windlass-volumes`).

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
mod disk;
mod machine;
mod network;
pub mod parse;
mod cgroup_paths;
mod rate;
mod refreshing_cache;
pub mod topology;
mod volumes;

pub use cadvisor::{MachineFacts, cadvisor_metrics};
pub use host::{HostStats, HostStatsConfig, KernelRoots, SystemCgroups};
pub use logs::{LogUsage, log_metrics};
pub use pods::{RunningPod, RunningPods, VolumeStatsEntry, VolumeStatsProvider};
pub use resource::{ResourceUsage, resource_metrics};
pub use source::{StatsUnavailable, StatsError, StatsSource, StatsSelection};
pub use summary::Summary;
