//! Space of a file system.

use std::path::Path;

use rustix::fs::{stat, statvfs};

/// Space of a file system at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskSpace {
    /// Identity of the file system.
    pub(crate) device: u64,
    /// Bytes.
    pub(crate) capacity: u64,
    /// Bytes available to unprivileged users.
    pub(crate) available: u64,
    /// Inodes; 0 without a fixed number.
    pub(crate) inodes: u64,
    /// Free inodes.
    pub(crate) inodes_free: u64,
}

/// Reads the file system of a directory, or of its nearest existing parent. May hang with the disk.
pub(crate) fn read_disk(dir: &Path) -> Option<DiskSpace> {
    dir.ancestors().find_map(|dir| {
        let space = statvfs(dir).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        Some(DiskSpace {
            device: stat(dir).ok()?.st_dev,
            capacity: bytes(space.f_blocks),
            available: bytes(space.f_bavail),
            inodes: space.f_files,
            inodes_free: space.f_ffree,
        })
    })
}
