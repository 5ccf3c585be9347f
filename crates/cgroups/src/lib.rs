//! The cgroups of pods and of their QoS classes.
//!
//! For agents that create pod cgroups below a root that they own: names as in the Go kubelet,
//! limits on each pod and on all pods together, on cgroup v1 and v2. Names and values come from
//! `windlass_runtime_config::cgroup_names` and `windlass_runtime_config::pod_cgroup`.
//!
//! # The way in
//!
//! * [`PodCgroups`] creates, configures, lists and removes cgroups
//! * [`CgroupTree`] is the port to the file system: [`HostTree`] uses the kernel's, [`MemoryTree`]
//!   is an in-memory tree for simulations and tests
//! * [`Slices`] is the port to the slice manager under the systemd driver; `SystemdSlices` uses
//!   systemd (feature `systemd`)
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
//! memory or, as root, on the host.
//!
//! # What it promises
//!
//! * All functions are idempotent, also after an agent restart: the state is in the file system.
//!   Values that are already set are not written again.
//! * Nothing outside the layout's `kubepods` is written, except the limits of a named cgroup of
//!   daemons ([`PodCgroups::enforce`]), which must exist, and the controllers of its parents on v2.
//! * A feature that the kernel lacks or rejects is a [`Warning`], and pods run without it; only a
//!   failure for a single pod is an error.
//! * Removing a pod's cgroup kills its processes without waiting for them; retry the removal.
//!
//! # What it does not do
//!
//! All functions are synchronous and may block on the kernel or on systemd: call them in an I/O
//! queue. The runtime creates the cgroups of containers; `windlass-stats` reads the usage.

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
