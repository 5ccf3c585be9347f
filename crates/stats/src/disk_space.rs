//! Space of a file system.

use std::io;
use std::path::Path;

use rustix::fs::{stat, statvfs};

/// Space of a file system at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// Identity of the file system (`st_dev`).
    pub device: u64,
    /// Bytes.
    pub capacity: u64,
    /// Bytes available to unprivileged users.
    pub available: u64,
    /// Bytes that are free or reserved for root.
    pub free: u64,
    /// Inodes; 0 without a fixed number.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

impl DiskSpace {
    /// Reads the file system of a directory. Blocks on the disk.
    ///
    /// # Errors
    /// The directory does not exist, or its disk fails.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let space = statvfs(dir)?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        Ok(Self {
            device: stat(dir)?.st_dev,
            capacity: bytes(space.f_blocks),
            available: bytes(space.f_bavail),
            free: bytes(space.f_bfree),
            inodes: space.f_files,
            inodes_free: space.f_ffree,
        })
    }

    /// Reads the file system of a directory, or of its nearest existing parent. Blocks on the disk.
    pub fn read_nearest(dir: &Path) -> Option<Self> {
        dir.ancestors().find_map(|dir| Self::read(dir).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_directory_has_the_space_of_its_parent() {
        let dir = tempfile::tempdir().expect("a directory");
        let here = DiskSpace::read(dir.path()).expect("space");
        assert!(here.capacity > 0 && here.available <= here.free && here.free <= here.capacity);
        let missing = dir.path().join("no/such");
        let error = DiskSpace::read(&missing).expect_err("a missing directory");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let there = DiskSpace::read_nearest(&missing).expect("space");
        assert_eq!((here.device, here.capacity), (there.device, there.capacity));
    }
}
