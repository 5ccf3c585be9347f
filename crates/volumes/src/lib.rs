//! Volumes of pods on this node: set-up, teardown, what is found of an earlier life.
//!
//! [`VolumePlugins`] is the port that the VolumeManager works with, [`HostVolumes`] is this
//! machine. The parts below it are synchronous functions that block on the file system; they run in
//! [`Lanes`], one call at a time for each pod, with a deadline. Every function may be repeated at
//! any time, also by a new agent after `kill -9`: nothing is kept in memory that matters, the file
//! system, the mount table and the notes that plugins leave beside a volume are the record.

mod atomic_writer;
mod empty_dir;
mod error;
mod host;
mod host_path;
mod lane;
mod mount_info;
mod nested;
mod pod_volumes;
mod port;
mod remove;
mod shown;

pub use error::{RemoveError, VolumeError};
pub use host::HostVolumes;
pub use host_path::check_host_path;
pub use lane::{LaneError, Lanes, SLOTS};
pub use mount_info::{MountPoint, mounts_beneath};
pub use pod_volumes::{set_up_volume, tear_down_volume};
pub use port::{FoundVolume, VolumePlugins, VolumeRequest};
pub use remove::remove_tree;

#[cfg(test)]
mod tests;
