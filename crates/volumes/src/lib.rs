//! Volumes of pods on this node: set-up, teardown, what is found of an earlier life.
//!
//! [`VolumePlugins`] is the port that the VolumeManager works with, [`HostVolumes`] is this
//! machine. The parts below it are synchronous functions that block on the file system; they run in
//! [`Lanes`], one call at a time for each pod, with a deadline. Every function may be repeated at
//! any time, also by a new agent after `kill -9`: nothing is kept in memory that matters, the file
//! system, the mount table and the notes that plugins leave beside a volume are the record.

mod atomic_writer;
mod block;
mod csi;
mod empty_dir;
mod error;
mod format;
mod grow;
mod host;
mod host_path;
mod lane;
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
pub use empty_dir::memory_may_be_swapped;
pub use error::{RemoveError, VolumeError};
pub use host::{HostVolumes, lane_of_path, names_in_dir};
pub use host_path::check_host_path;
pub use lane::{Lane, LaneError, Lanes, SLOTS, volumes_lane};
pub use machine::HostVolumesConfig;
pub use memory::{MemoryVolumes, VolumeStep};
pub use mount_info::{MountPoint, mounts_beneath};
pub use ownership::{GroupPolicy, VolumeGroup, WalkProgress, Walked, set_volume_ownership};
pub use pod_volumes::{VolumeSite, pod_group, set_up_volume, tear_down_volume};
pub use port::{FoundVolume, VolumePlugins, VolumeRequest};
pub use programs::{ProgramError, Programs};
pub use remove::remove_tree;
pub use shared::make_shared;
pub use subpath::{SubPathError, clean_sub_paths, prepare_sub_path};
pub use usage::Measured;

#[cfg(test)]
mod tests;
