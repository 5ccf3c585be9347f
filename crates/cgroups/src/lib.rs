//! The cgroups of pods and of their QoS classes.
//!
//! For whoever gives pods cgroups of their own below a root that they own: names as the Go kubelet
//! has them, limits on pods and on all of them together, on cgroup v1 and v2 alike. Names and
//! values are decided in `windlass_runtime_config::cgroup_names` and `windlass_runtime_config::pod_cgroup`; here they
//! are made true.
//!
//! # The way in
//!
//! * [`PodCgroups`] makes, sets, lists and removes
//! * [`CgroupTree`] is the port to the file system: [`HostTree`] is the kernel's, [`MemoryTree`]
//!   one in memory, for simulations and tests
//! * [`Slices`] is the port to the manager of slices under the systemd driver; `SystemdSlices` is
//!   systemd itself (feature `systemd`)
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use windlass_cgroups::{MemoryTree, PodCgroups};
//! use windlass_runtime_config::cgroup_names::CgroupLayout;
//! use windlass_runtime_config::pod_cgroup::CgroupValues;
//! use windlass_pod_inputs::resources::QosClass;
//! use windlass_types::PodUid;
//! use windlass_types::cri::CgroupDriver;
//!
//! # fn main() -> Result<(), windlass_cgroups::CgroupError> {
//! let tree = MemoryTree::v2();
//! let layout = CgroupLayout::new(CgroupDriver::Cgroupfs, "/windlass");
//! let cgroups = PodCgroups::new(layout, Arc::new(tree.clone()), None);
//! let warnings = cgroups.set_up(CgroupValues::default());
//! assert!(warnings.is_empty(), "every hierarchy can be used");
//!
//! let uid = PodUid::from("1-2");
//! let values = CgroupValues { memory_limit: Some(64 << 20), ..CgroupValues::default() };
//! assert!(cgroups.ensure(&uid, QosClass::Burstable, values)?, "it was written");
//! assert!(!cgroups.ensure(&uid, QosClass::Burstable, values)?, "nothing changed");
//! let path = "/windlass/kubepods/burstable/pod1-2";
//! assert_eq!(cgroups.parent_of(QosClass::Burstable, &uid).as_deref(), Some(path));
//! assert_eq!(tree.file(&format!("{path}/memory.max")).as_deref(), Some("67108864"));
//! cgroups.remove(&uid)?;
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-cgroups --example lay_out` prints the cgroups and files of a few pods, in
//! memory or, as root, on this machine.
//!
//! # What it promises
//!
//! * Every function may be repeated at any time, also by a new agent after `kill -9`: the file
//!   system is the record. What is set already is not written again.
//! * Nothing above or beside the layout's `kubepods` is written.
//! * What a kernel lacks or refuses is a [`Warning`] and pods run without it; only what one pod
//!   cannot be given is an error.
//! * Removing a pod kills what is left in it; it never waits for it, ask again.
//!
//! # What it does not do
//!
//! Every function is synchronous and may block on the kernel or on systemd: call it on a blocking
//! lane. Cgroups of containers are the runtime's, and nothing is measured here (`windlass-stats`).

mod error;
mod host;
mod memory;
mod pods;
mod slices;
mod tree;

pub use error::CgroupError;
pub use host::HostTree;
pub use memory::MemoryTree;
pub use pods::{PodCgroups, Warning};
#[cfg(feature = "systemd")]
pub use slices::SystemdSlices;
pub use slices::{Property, Slices};
pub use tree::CgroupTree;

#[cfg(test)]
mod tests;
