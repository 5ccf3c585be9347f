//! Volumes of pods on this node: set-up, tear-down, discovery.
//!
//! For programs that mount volumes for pods: emptyDir (disk, memory, huge pages), hostPath, the four
//! payload types (configMap, secret, downwardAPI, projected), local, NFS, and CSI through
//! `windlass-csi`.
//!
//! # Entry points
//!
//! * [`VolumePlugins`] is the port, [`HostVolumes`] implements it on this host; [`MemoryVolumes`] is
//!   a model for tests
//! * [`VolumeRequest`] is one volume of a pod, as `windlass_volume_plan::volume_source` resolves it
//! * [`IoQueues`] run blocking work: one call at a time per queue, with a deadline
//! * [`remove_tree`], [`set_volume_ownership`], [`prepare_sub_path`] and [`mounts_beneath`] can be
//!   used alone
//!
//! # Example
//!
//! ```
//! use windlass_types::corev1::HostPathVolumeSource;
//! use windlass_volumes::check_host_path;
//!
//! let host_path = |kind: &str| HostPathVolumeSource {
//!     path: "/etc/passwd".to_owned(),
//!     type_: Some(kind.to_owned()),
//! };
//! check_host_path("users", &host_path("File"))?;
//! let error = check_host_path("users", &host_path("Directory")).err();
//! let text = error.map(|error| error.to_string()).unwrap_or_default();
//! assert_eq!(text, "hostPath type check failed: /etc/passwd is not a directory");
//! # Ok::<_, windlass_volumes::VolumeError>(())
//! ```
//!
//! `cargo run -p windlass-volumes --example show_a_config_map` sets up two volumes, updates one, and
//! tears them down.
//!
//! # Guarantees
//!
//! * Every function may be repeated at any time, also after `kill -9`. The state is in the file
//!   system, the mount table and the files that plugins write beside a volume.
//! * A reader of a payload volume sees either the old or the new content: one rename replaces it.
//! * Paths under a pod's control are opened without following links out of their directory.
//! * Only devices on which `blkid` finds nothing are formatted. Content of disks and servers is never
//!   removed.
//! * Each call has the deadline of its [`IoQueues`]. Work on devices and servers, which may hang, has
//!   separate threads, at most [`IO_PERMITS`] with those for files.
//!
//! # Limits
//!
//! It does not contact the API server or schedule calls: `windlass-volume-manager` does. It does not
//! attach devices; cloud disks need CSI. Mounts require root; directories and files do not.

mod atomic_writer;
mod block;
mod csi;
mod empty_dir;
mod error;
mod format;
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
mod resize;
mod shared;
mod subpath;
mod usage;
mod walks;

pub use csi::CsiConfig;
pub use empty_dir::memory_swap_warning;
pub use error::{RemoveError, VolumeError};
pub use host::{HostVolumes, names_in_dir, queue_for_path};
pub use host_path::check_host_path;
pub use io_queue::{IO_PERMITS, IoQueue, IoQueueError, IoQueues};
pub use machine::HostVolumesConfig;
pub use memory::{MemoryVolumes, VolumeStep};
pub use mount_info::{MountPoint, mounts_beneath};
pub use ownership::{GroupPolicy, VolumeGroup, WalkOutcome, WalkProgress, set_volume_ownership};
pub use port::{DiscoveredVolume, VolumePlugins, VolumeRequest};
pub use programs::{ProgramError, Programs};
pub use remove::remove_tree;
pub use shared::make_shared;
pub use subpath::{SubPathError, clean_sub_paths, prepare_sub_path};
pub use usage::Measured;

#[cfg(test)]
mod tests;
