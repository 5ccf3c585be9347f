//! Counts the files of a tree, as `du -x` does, in steps of any size.
//!
//! Works on directory descriptors only and follows no link. What is mounted in the tree is not
//! counted and, as far as the kernel allows, not touched: its file system may hang. A file with
//! several names counts once, a sparse one with its blocks. A tree of any depth and width needs
//! [`MAX_OPEN`] descriptors and the numbers of [`MAX_SEEN`] files and [`MAX_DIRECTORIES`] directories.
//!
//! The tree may be changed meanwhile by who wants to keep the walk from its end. A directory is gone
//! through once, wherever it is met again, and what cannot be read is passed over: the sum is then less
//! than there is, never nothing.

use std::collections::HashSet;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Statx, StatxAttributes, StatxFlags, openat, statx,
};
use rustix::io::Errno;

use super::{device, file_type};

/// Directories open at the same time; those in the middle of a deeper branch are closed and found
/// again on the way back.
pub(super) const MAX_OPEN: usize = 64;
/// Files with several names that are remembered; of further ones each name counts for its share.
pub(super) const MAX_SEEN: usize = 100_000;
/// Directories that are remembered; further ones are gone through as often as they are met.
const MAX_DIRECTORIES: usize = 50_000;
/// Unit of `st_blocks`.
const BLOCK: u64 = 512;

/// What was counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
}

/// A tree of which some may have been counted.
#[derive(Debug)]
pub(super) struct Walk {
    stack: Vec<Frame>,
    /// Device of the tree's file system.
    device: (u32, u32),
    counted: Counted,
    seen: HashSet<u64>,
    max_seen: usize,
    directories: HashSet<u64>,
    /// Entries and directories that could not be read, and moved away directories whose rest is
    /// unknown.
    passed_over: u64,
    /// Of files that are not remembered: bytes and inodes, each name with its share.
    shares: (f64, f64),
}

/// A directory on the way down.
#[derive(Debug)]
struct Frame {
    /// `None` while it is closed.
    open: Option<Dir>,
    inode: u64,
    /// Where its list goes on, a cookie of the file system.
    position: i64,
}

impl Walk {
    /// A walk of what lies below `top`, which itself counts too.
    pub(super) fn start(top: OwnedFd) -> Result<Self, Errno> {
        let found = stat(&top, c"", AtFlags::EMPTY_PATH)?;
        let mut walk = Self {
            stack: Vec::new(),
            device: device(&found),
            counted: Counted::default(),
            seen: HashSet::new(),
            max_seen: MAX_SEEN,
            directories: HashSet::new(),
            passed_over: 0,
            shares: (0.0, 0.0),
        };
        walk.count(&found);
        walk.stack.push(Frame::new(top, found.stx_ino)?);
        Ok(walk)
    }

    /// The same, which remembers at most `max_seen` files with several names.
    #[cfg(test)]
    pub(super) fn remembering(mut self, max_seen: usize) -> Self {
        self.max_seen = max_seen;
        self
    }

    /// Looks at up to `entries` more entries; true if there are no more. What vanished meanwhile is
    /// passed over in silence, what cannot be read is counted ([`Walk::passed_over`]).
    pub(super) fn step(&mut self, entries: usize) -> bool {
        for _ in 0..entries {
            let Some(frame) = self.stack.last_mut() else {
                return true;
            };
            let read = frame.open.as_mut().and_then(Dir::read);
            match read {
                None | Some(Err(Errno::NOENT)) => self.leave(),
                Some(Err(_)) => {
                    self.passed_over += 1;
                    self.leave();
                }
                Some(Ok(entry)) => {
                    frame.position = entry.offset();
                    let name = entry.file_name();
                    if !matches!(name.to_bytes(), b"." | b"..") && self.entry(name).is_err() {
                        self.passed_over += 1;
                    }
                }
            }
        }
        self.stack.is_empty()
    }

    /// How often something could not be read: above zero, the tree holds more than was counted.
    pub(super) fn passed_over(&self) -> u64 {
        self.passed_over
    }

    /// What was counted so far.
    pub(super) fn counted(&self) -> Counted {
        Counted {
            bytes: self.counted.bytes + self.shares.0.round() as u64,
            inodes: self.counted.inodes + self.shares.1.round() as u64,
        }
    }

    /// Descriptors that are open for it.
    #[cfg(test)]
    pub(super) fn open(&self) -> usize {
        self.stack
            .iter()
            .filter(|frame| frame.open.is_some())
            .count()
    }

    fn entry(&mut self, name: &CStr) -> Result<(), Errno> {
        let Some(dir) = self.stack.last().and_then(|frame| frame.open.as_ref()) else {
            return Ok(());
        };
        let dir = dir.fd()?;
        let found = match stat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error),
        };
        if self.is_foreign(&found) {
            return Ok(());
        }
        if file_type(&found) != FileType::Directory {
            self.count(&found);
            return Ok(());
        }
        if self.directories.contains(&found.stx_ino) {
            // it was moved ahead of the walk
            return Ok(());
        }
        let opened = open(dir, name);
        self.count(&found);
        if self.directories.len() < MAX_DIRECTORIES {
            self.directories.insert(found.stx_ino);
        }
        match opened.and_then(|dir| Frame::new(dir, found.stx_ino)) {
            Ok(frame) => self.enter(frame),
            // replaced by something else meanwhile
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// True for what is mounted here. The device alone does not say it: on an overlay, files may
    /// have another than their directory.
    fn is_foreign(&self, found: &Statx) -> bool {
        let directory = file_type(found) == FileType::Directory;
        found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
            || directory && device(found) != self.device
    }

    fn count(&mut self, found: &Statx) {
        let bytes = found.stx_blocks.saturating_mul(BLOCK);
        if found.stx_nlink > 1 && file_type(found) != FileType::Directory {
            if self.seen.contains(&found.stx_ino) {
                return;
            }
            if self.seen.len() >= self.max_seen {
                let share = 1.0 / f64::from(found.stx_nlink);
                self.shares.0 += bytes as f64 * share;
                self.shares.1 += share;
                return;
            }
            self.seen.insert(found.stx_ino);
        }
        self.counted.bytes = self.counted.bytes.saturating_add(bytes);
        self.counted.inodes += 1;
    }

    fn enter(&mut self, frame: Frame) {
        self.stack.push(frame);
        // the top stays open: whatever is moved about meanwhile, the way goes on from there
        if let Some(middle) = self.stack.len().checked_sub(MAX_OPEN)
            && middle > 0
        {
            self.stack[middle].open = None;
        }
    }

    /// Goes up from a directory that is done. One that was closed is opened again as the parent,
    /// if it still is that; of a directory that was moved away the rest is not counted.
    fn leave(&mut self) {
        let Some(below) = self.stack.pop() else {
            return;
        };
        let Some(above) = self.stack.last_mut() else {
            return;
        };
        if above.open.is_some() {
            return;
        }
        if let Some(dir) = below.open.as_ref().and_then(|dir| dir.fd().ok())
            && let Ok(parent) = open(dir, c"..")
            && let Ok(found) = stat(&parent, c"", AtFlags::EMPTY_PATH)
            && (device(&found), found.stx_ino) == (self.device, above.inode)
            && let Ok(mut parent) = Dir::new(parent)
            && parent.seek(above.position).is_ok()
        {
            above.open = Some(parent);
            return;
        }
        while self.stack.last().is_some_and(|frame| frame.open.is_none()) {
            self.stack.pop();
            self.passed_over += 1;
        }
    }
}

impl Frame {
    fn new(dir: OwnedFd, inode: u64) -> Result<Self, Errno> {
        Ok(Self {
            open: Some(Dir::new(dir)?),
            inode,
            position: 0,
        })
    }
}

fn open(dir: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::empty())
}

/// Nothing is mounted for it, and no daemon behind a mounted file system is asked.
fn stat(dir: impl AsFd, name: &CStr, flags: AtFlags) -> Result<Statx, Errno> {
    let flags = flags | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    statx(dir, name, flags, StatxFlags::BASIC_STATS)
}
