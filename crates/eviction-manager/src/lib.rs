//! The EvictionManager: keeps a node usable when memory, disks or processes run short.
//!
//! For a node agent. The decisions are pure functions of `windlass_eviction`; this crate reads the
//! node, executes them and publishes the results.
//!
//! # Entry points
//!
//! * [`EvictionManager`] is the actor, [`EvictionManagerDeps`] has its dependencies
//! * [`HostFigures`] reads this host ([`NodeFigures`]), [`HostTriggers`] receives the notifications
//!   of its kernel ([`MemoryTriggers`])
//! * [`NodeReclaimer`] and [`PodDiskMeter`] are ports to other parts of the agent
//!
//! # Example
//!
//! ```
//! use windlass_eviction::{Observation, Signal, ThresholdFields, Thresholds};
//! use windlass_eviction_manager::{NodeReading, usage_thresholds};
//! use windlass_types::Timestamp;
//!
//! let hard = [("memory.available".to_owned(), "100".to_owned())].into();
//! let none = Default::default();
//! let thresholds = Thresholds::parse(ThresholdFields {
//!     hard: &hard,
//!     soft: &none,
//!     soft_grace_period: &none,
//!     minimum_reclaim: &none,
//!     enforces_pods: false,
//! });
//! let mut reading = NodeReading { node_inactive_file: 50, ..NodeReading::default() };
//! let observed = Observation { available: 400, capacity: 1000, at: Timestamp::UNIX_EPOCH };
//! reading.observations.signals.insert(Signal::MemoryAvailable, observed);
//! // the kernel counts inactive page cache as used
//! let armed = usage_thresholds(&thresholds.expect("valid"), &reading);
//! assert_eq!(armed.node, Some(950));
//! ```
//!
//! `cargo run -p windlass-eviction-manager --example observe_node` prints the signals of this host.
//!
//! # Guarantees
//!
//! * At most one pod is evicted at a time: the next pass begins when it has ended, at the latest
//!   30 s after its grace period. It is not chosen again. This holds over agent restarts.
//! * A hung disk, runtime or reclaim delays nothing beyond its timeout. An old reading evicts
//!   nothing.
//! * Conditions are published before anything is reclaimed or evicted.
//! * Without thresholds nothing is read. Otherwise the node is read every 50 ms to 10 s, depending
//!   on the distance to the thresholds, and when the kernel reports a shortage of memory.
//! * A pod that is evicted for a hard memory threshold hardly grows in its grace period (cgroup v2).
//! * No process is started, and no tree of files is walked.
//!
//! # Limits
//!
//! Containers are stopped by the pod workers, images removed by the image collector. Limits of
//! local storage are in `windlass-local-storage`.

mod ports;

mod actor;
mod measure;
mod records;
mod wait;

mod host;
mod triggers;

pub use actor::{EvictionManager, EvictionManagerDeps};
pub use host::{HostFigures, HostFiguresConfig};
pub use ports::{
    MemoryTrigger, MemoryTriggers, NodeFigures, NodeReading, NodeReclaimer, PodDisk, PodDiskMeter,
    TriggerSink, UsageThresholds,
};
pub use triggers::{HostTriggers, TriggerPaths, usage_thresholds};
