//! Counts the files of a tree, as `du -x`, in steps of any size.
//!
//! Works only with directory descriptors and does not follow links. Mounts in the tree are not
//! counted and, if the kernel supports it, not accessed: they may hang. A hard-linked file counts
//! once, a sparse file with its blocks. A tree of any size needs [`MAX_OPEN`] descriptors and the
//! numbers of [`MAX_SEEN`] files and [`MAX_DIRECTORIES`] directories.
//!
//! A pod may change the tree meanwhile to prevent the walk from ending. Each directory is counted
//! once, and unreadable entries are skipped: the result is then too low, never zero.

use std::collections::HashSet;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Statx, StatxAttributes, StatxFlags, openat, statx,
};
use rustix::io::Errno;

use super::{device, file_type};

/// Max open directories; the middle ones of deeper branches are closed and reopened on the way back.
pub(super) const MAX_OPEN: usize = 64;
/// Max remembered hard-linked files; beyond that, each name counts its share.
pub(super) const MAX_SEEN: usize = 100_000;
/// Max remembered directories; further ones are counted each time they are found.
const MAX_DIRECTORIES: usize = 50_000;
/// Unit of `st_blocks`.
const BLOCK: u64 = 512;

/// Totals so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
}

/// A walk in progress.
#[derive(Debug)]
pub(super) struct Walk {
    stack: Vec<Frame>,
    /// Device of the tree's file system.
    device: (u32, u32),
    counted: Counted,
    seen: HashSet<u64>,
    max_seen: usize,
    directories: HashSet<u64>,
    /// Unreadable entries and directories, and directories that were moved away.
    skipped: u64,
    /// Bytes and inodes of files that are not remembered.
    shares: (f64, f64),
}

/// A directory on the way down.
#[derive(Debug)]
struct Frame {
    /// `None` while closed.
    open: Option<Dir>,
    inode: u64,
    /// Read position, a cookie of the file system.
    position: i64,
}

impl Walk {
    /// Starts a walk of `top` and everything below it.
    pub(super) fn start(top: OwnedFd) -> Result<Self, Errno> {
        let found = stat(&top, c"", AtFlags::EMPTY_PATH)?;
        let mut walk = Self {
            stack: Vec::new(),
            device: device(&found),
            counted: Counted::default(),
            seen: HashSet::new(),
            max_seen: MAX_SEEN,
            directories: HashSet::new(),
            skipped: 0,
            shares: (0.0, 0.0),
        };
        walk.count(&found);
        walk.stack.push(Frame::new(top, found.stx_ino)?);
        Ok(walk)
    }

    /// Remembers at most `max_seen` hard-linked files.
    #[cfg(test)]
    pub(super) fn with_max_seen(mut self, max_seen: usize) -> Self {
        self.max_seen = max_seen;
        self
    }

    /// Processes up to `entries` entries; true if there are no more. Unreadable entries are counted
    /// ([`Walk::skipped`]), removed ones are not.
    pub(super) fn step(&mut self, entries: usize) -> bool {
        for _ in 0..entries {
            let Some(frame) = self.stack.last_mut() else {
                return true;
            };
            let read = frame.open.as_mut().and_then(Dir::read);
            match read {
                None | Some(Err(Errno::NOENT)) => self.leave(),
                Some(Err(_)) => {
                    self.skipped += 1;
                    self.leave();
                }
                Some(Ok(entry)) => {
                    frame.position = entry.offset();
                    let name = entry.file_name();
                    if !matches!(name.to_bytes(), b"." | b"..") && self.entry(name).is_err() {
                        self.skipped += 1;
                    }
                }
            }
        }
        self.stack.is_empty()
    }

    /// Number of unreadable entries: if above zero, the result is too low.
    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Totals so far.
    pub(super) fn counted(&self) -> Counted {
        Counted {
            bytes: self.counted.bytes + self.shares.0.round() as u64,
            inodes: self.counted.inodes + self.shares.1.round() as u64,
        }
    }

    /// Number of open descriptors.
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
            // it was moved to another place
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

    /// Whether it is a mount. The device is not sufficient: on an overlay, files may have another
    /// device than their directory.
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
        // the top stays open, so that the walk can continue after moves
        if let Some(middle) = self.stack.len().checked_sub(MAX_OPEN)
            && middle > 0
        {
            self.stack[middle].open = None;
        }
    }

    /// Leaves a completed directory. A closed parent is reopened; the rest of a directory that was
    /// moved away is skipped.
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
            self.skipped += 1;
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

/// Does not trigger automounts or contact remote servers.
fn stat(dir: impl AsFd, name: &CStr, flags: AtFlags) -> Result<Statx, Errno> {
    let flags = flags | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    statx(dir, name, flags, StatxFlags::BASIC_STATS)
}
