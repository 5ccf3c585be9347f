//! The cgroups of pods and of their QoS classes.
//!
//! Names and values are decided in `windlass_core::{cgroup_names, pod_cgroup}`; [`PodCgroups`]
//! makes them true on a [`CgroupTree`]: the kernel's ([`HostTree`], cgroup v1 or v2) or one in
//! memory for simulations ([`MemoryTree`]). Every function is synchronous and may be repeated at
//! any time, also by a new agent after `kill -9`; callers run them on a blocking lane.
//!
//! Slices of systemd are named but not made: systemd makes a slice when the runtime starts a
//! scope in it, and takes it away with the last one. Their values stay systemd's defaults.

mod error;
mod host;
mod memory;
mod pods;
mod tree;

pub use error::CgroupError;
pub use host::HostTree;
pub use memory::MemoryTree;
pub use pods::{PodCgroups, Remark};
pub use tree::CgroupTree;

#[cfg(test)]
mod tests;
