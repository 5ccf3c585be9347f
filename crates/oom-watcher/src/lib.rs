//! OOM kills of a host.
//!
//! For agents that report which processes the kernel's OOM killer kills: on behalf of the whole
//! host, or in the cgroup of a container. The source is the kernel log, `/dev/kmsg`; without access
//! to it, `memory.events` of the pod cgroups (cgroup v2).
//!
//! # Entry points
//!
//! * [`watch_oom_kills`] follows a source, writes an `OomKillCache` and records a `SystemOOM` event
//!   of the node for each system OOM
//! * [`records`] splits the format of `/dev/kmsg`, [`OomDetector`] finds the OOM kills in it: pure
//!   functions, without I/O and clock
//! * [`container_cgroup`] is the cgroup of the container in a longer path
//!
//! # Example
//!
//! ```
//! use windlass_oom_watcher::{OomDetector, container_cgroup, records};
//!
//! let log = b"6,1,100,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c1,\
//!             mems_allowed=0,oom_memcg=/kubepods/pod1/c1,task_memcg=/kubepods/pod1/c1/job,\
//!             task=dd,pid=42,uid=0\n";
//! let mut detector = OomDetector::default();
//! let kill = records(log).find_map(|record| detector.push(&record)).ok_or("no OOM kill")?;
//! assert_eq!(kill.to_string(), "dd[42] of /kubepods/pod1/c1/job, limit of /kubepods/pod1/c1");
//! assert!(!kill.is_system());
//! assert_eq!(container_cgroup("/kubepods/pod1/c1/job"), "/kubepods/pod1/c1");
//! # Ok::<(), &str>(())
//! ```
//!
//! `cargo run -p windlass-oom-watcher --example list_oom_kills` lists those in the kernel log.
//!
//! # Guarantees
//!
//! * Only messages of the kernel count: a process that writes to `/dev/kmsg` cannot pretend a kill.
//! * A process in a container can name itself and its cgroups as it likes, and attribute its kill to
//!   no other container: the victim is always below the cgroup whose limit was reached.
//! * Records that the kernel overwrites before they are read are skipped; the watcher continues.
//! * An idle source costs nothing. A busy kernel log does not starve other tasks.
//!
//! # Limits
//!
//! Kills before the start, or while no watcher runs, are not reported. The kernel limits its reports
//! to ten per 5 s; of further kills it logs only the process, so that a system OOM is still
//! reported, and a kill in a cgroup is not. Without `/dev/kmsg` there are no system OOMs, and on
//! cgroup v1 no kills at all.

mod detector;
mod events;
mod kmsg;
mod memory_events;
mod message;
mod path;
mod record;
mod watcher;

pub use detector::OomDetector;
pub use message::OomKill;
pub use path::container_cgroup;
pub use record::{Record, records};
pub use watcher::{KernelLog, OomSource, OomWatcherDeps, watch_oom_kills};
