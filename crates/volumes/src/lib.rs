//! The volumes a node makes by itself: `emptyDir` (disk and memory), `hostPath`, and the four
//! that show objects of the API server, whose content others compute: `configMap`, `secret`,
//! `downwardAPI`, `projected`.
//!
//! Every function is synchronous and blocks on the file system; callers run them on a blocking
//! lane with a deadline. Every function may be repeated at any time, also by a new agent after
//! `kill -9`: nothing is kept in memory, the file system and the mount table are the record.
//! Other volume types are refused in plain words, see [`VolumeError::Unsupported`].

mod atomic_writer;
mod empty_dir;
mod error;
mod host_path;
mod mount_info;
mod nested;
mod pod_volumes;
mod remove;

pub use error::{RemoveError, VolumeError};
pub use host_path::check_host_path;
pub use mount_info::{MountPoint, mounts_beneath};
pub use pod_volumes::{
    refresh_pod_volumes, set_up_pod_volumes, set_up_volume, tear_down_pod_volumes, volume_path,
};
pub use remove::remove_tree;

#[cfg(test)]
mod tests;
