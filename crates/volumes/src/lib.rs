//! Volumes of pods on this node: set-up, teardown, what is found of an earlier life.
//!
//! For whoever has to show a pod's volumes to something: emptyDir (disk, memory, huge pages), hostPath, the
//! four kinds whose files are computed (configMap, secret, downwardAPI, projected), local, NFS, and CSI
//! through `windlass-csi`.
//!
//! # The way in
//!
//! * [`VolumePlugins`] is the port, [`HostVolumes`] this machine behind it; [`MemoryVolumes`] is a model
//!   for tests
//! * [`VolumeRequest`] is one volume of a pod, as `windlass_volume_plan::volume_source` resolves it
//! * [`IoQueues`] is where blocking work runs: one call at a time for each pod, with a deadline
//! * [`remove_tree`], [`set_volume_ownership`], [`prepare_sub_path`] and [`mounts_beneath`] are useful alone
//!
//! # Example
//!
//! ```
//! use windlass_types::corev1::HostPathVolumeSource;
//! use windlass_volumes::check_host_path;
//!
//! let passwords = |kind: &str| HostPathVolumeSource {
//!     path: "/etc/passwd".to_owned(),
//!     type_: Some(kind.to_owned()),
//! };
//! check_host_path("users", &passwords("File"))?;
//! let error = check_host_path("users", &passwords("Directory")).err();
//! let words = error.map(|error| error.to_string()).unwrap_or_default();
//! assert_eq!(words, "hostPath type check failed: /etc/passwd is not a directory");
//! # Ok::<_, windlass_volumes::VolumeError>(())
//! ```
//!
//! `cargo run -p windlass-volumes --example show_a_config_map` sets two volumes up, changes one, and takes
//! them away.
//!
//! # What it promises
//!
//! * Every function may be repeated at any time, also by a new agent after `kill -9`: nothing is kept in
//!   memory that matters. The file system, the mount table and the notes that plugins leave beside a volume
//!   are the record.
//! * A reader of a computed volume sees all of the old or all of the new: one rename moves it over.
//! * Nothing under a pod's control is opened by following a link out of its directory.
//! * A device on which anything was found is never formatted, and what lies on a disk or server that a
//!   volume shows is never removed.
//! * Each call has the deadline of its [`IoQueues`]. What may never answer (devices, servers) has threads of
//!   its own, [`IO_PERMITS`] in all: devices that hang cost the files of other pods nothing.
//!
//! # What it does not do
//!
//! It asks no API server and decides nothing about when: `windlass-volume-manager` does. It attaches no
//! device and knows no cloud's disks but by CSI. Mounting needs root; directories and files do not.

mod atomic_writer;
mod block;
mod csi;
mod empty_dir;
mod error;
mod format;
mod grow;
mod host;
mod host_path;
mod io_queue;
mod local;
mod machine;
mod memory;
mod mount_info;
mod mounts;
mod nested;
mod nfs;
mod ownership;
mod pod_volumes;
mod port;
mod programs;
mod remove;
mod shared;
mod subpath;
mod usage;
mod walks;

pub use csi::CsiConfig;
pub use empty_dir::memory_swap_warning;
pub use error::{RemoveError, VolumeError};
pub use host::{HostVolumes, queue_for_path, names_in_dir};
pub use host_path::check_host_path;
pub use io_queue::{IoQueue, IoQueueError, IoQueues, IO_PERMITS};
pub use machine::HostVolumesConfig;
pub use memory::{MemoryVolumes, VolumeStep};
pub use mount_info::{MountPoint, mounts_beneath};
pub use ownership::{GroupPolicy, VolumeGroup, WalkProgress, WalkOutcome, set_volume_ownership};
pub use port::{DiscoveredVolume, VolumePlugins, VolumeRequest};
pub use programs::{ProgramError, Programs};
pub use remove::remove_tree;
pub use shared::make_shared;
pub use subpath::{SubPathError, clean_sub_paths, prepare_sub_path};
pub use usage::Measured;

#[cfg(test)]
mod tests;
