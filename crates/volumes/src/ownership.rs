//! `fsGroup`: changes the group of a volume's files.
//!
//! Each entry gets the group and its permissions, directories also the set-group-ID bit. Links are
//! not followed, mounts in the volume are skipped, and entries that fail are logged and skipped, as
//! upstream. The root is changed last, so that `OnRootMismatch` detects an incomplete change. A tree
//! of any size takes [`MAX_OPEN`] descriptors and one batch of names per level.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, Stat, chmod,
    chownat, fchmod, fchown, fstat, openat, openat2, seek, statat, tell,
};
use rustix::io::Errno;
use tokio::sync::watch;

use crate::error::VolumeError;

/// Max open directories.
const MAX_OPEN: usize = 32;
/// Buffer for reading a directory.
const BATCH_BYTES: usize = 8 * 1024;
/// Max failed entries that are logged; further ones are only counted.
const MAX_LOGGED_ENTRIES: u64 = 3;

/// Permissions of the group: read and write, or only read.
const READ_WRITE: u32 = 0o660;
const READ_ONLY: u32 = 0o440;
/// Additional bits of a directory: search, and set-group-ID.
const DIRECTORY: u32 = 0o110;
const SET_GROUP: u32 = 0o2000;

/// Desired group of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeGroup {
    /// `securityContext.fsGroup`.
    pub gid: u32,
    /// `securityContext.fsGroupChangePolicy`.
    pub policy: GroupPolicy,
    /// The volume is mounted read-only: the group only gets read access.
    pub read_only: bool,
}

/// When a volume's files are changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupPolicy {
    /// At each set-up.
    #[default]
    Always,
    /// Only if the volume's root has another group or too few permissions.
    OnRootMismatch,
}

/// Progress of an ownership change, shared with its waiters.
#[derive(Debug, Default)]
pub struct WalkProgress {
    files: AtomicU64,
    stopped: watch::Sender<bool>,
}

impl WalkProgress {
    /// Number of processed entries.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Cancels the walk with [`VolumeError::Stopped`] at its next entry.
    pub fn stop(&self) {
        self.stopped.send_replace(true);
    }

    /// Waits for cancellation.
    pub(crate) async fn stopped(&self) {
        // `self` holds the sender
        let _ = self.stopped.subscribe().wait_for(|stopped| *stopped).await;
    }
}

/// Result of an ownership change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkOutcome {
    /// The root already matches.
    Skipped,
    /// All entries were processed.
    Completed {
        /// Number of entries that could not be changed.
        failed: u64,
    },
}

/// Changes the group of a volume. Blocks, possibly for long.
///
/// # Errors
/// A directory cannot be read, or the walk was cancelled; repeating the call is safe.
pub fn set_volume_ownership(
    dir: &Path,
    group: VolumeGroup,
    progress: &WalkProgress,
) -> Result<WalkOutcome, VolumeError> {
    let mut walk = OwnershipWalk::new(dir, group);
    loop {
        if let Some(walked) = walk.advance(u64::MAX, progress)? {
            return Ok(walked);
        }
    }
}

/// An ownership change in slices.
#[derive(Debug)]
pub(crate) struct OwnershipWalk {
    dir: PathBuf,
    group: VolumeGroup,
    failed: u64,
    /// Directories from the root down; `None` before the first slice.
    stack: Option<Vec<Frame>>,
}

impl OwnershipWalk {
    pub(crate) fn new(dir: &Path, group: VolumeGroup) -> Self {
        Self {
            dir: dir.to_owned(),
            group,
            failed: 0,
            stack: None,
        }
    }

    /// Processes about `entries` entries, to the end of a batch; `None` if there are more.
    pub(crate) fn advance(
        &mut self,
        entries: u64,
        progress: &WalkProgress,
    ) -> Result<Option<WalkOutcome>, VolumeError> {
        let failed = |error: Errno| VolumeError::io("set the group of", &self.dir, error);
        let mut stack = match self.stack.take() {
            Some(stack) => stack,
            None => {
                let root = openat(CWD, &self.dir, DIRECTORY_FLAGS, Mode::empty());
                let root = root.map_err(failed)?;
                if self.group.policy == GroupPolicy::OnRootMismatch
                    && root_matches(&root, self.group).map_err(failed)?
                {
                    return Ok(Some(WalkOutcome::Skipped));
                }
                vec![Frame::new(CString::default(), root)]
            }
        };
        let mut walk = Walk {
            dir: &self.dir,
            group: self.group,
            progress,
            failed: self.failed,
        };
        let until = progress.files().saturating_add(entries);
        walk.run(&mut stack, until).map_err(|stop| match stop {
            Stop::Requested => VolumeError::Stopped {
                path: self.dir.clone(),
            },
            Stop::Failed(error) => failed(error),
        })?;
        self.failed = walk.failed;
        if !stack.is_empty() {
            self.stack = Some(stack);
            return Ok(None);
        }
        if self.failed > 0 {
            let volume = self.dir.display();
            tracing::warn!(%volume, entries = self.failed, "ownership of some entries not changed");
        }
        Ok(Some(WalkOutcome::Completed {
            failed: self.failed,
        }))
    }
}

const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Group and mode of the root only (upstream `requiresPermissionChange`).
fn root_matches(root: &OwnedFd, group: VolumeGroup) -> Result<bool, Errno> {
    let stat = fstat(root)?;
    let wanted = wanted_mode(&stat, group);
    Ok(stat.st_gid == group.gid && stat.st_mode & wanted == wanted)
}

/// Required permission bits of an entry.
fn wanted_mode(stat: &Stat, group: VolumeGroup) -> u32 {
    let bits = if group.read_only {
        READ_ONLY
    } else {
        READ_WRITE
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => bits | DIRECTORY | SET_GROUP,
        _ => bits,
    }
}

/// Why a walk ends early.
enum Stop {
    Requested,
    Failed(Errno),
}

impl From<Errno> for Stop {
    fn from(error: Errno) -> Self {
        Self::Failed(error)
    }
}

struct Walk<'a> {
    dir: &'a Path,
    group: VolumeGroup,
    progress: &'a WalkProgress,
    failed: u64,
}

/// A directory on the way down.
#[derive(Debug)]
struct Frame {
    /// Name in its parent; empty for the root.
    name: CString,
    /// `None` while the walk is far below.
    fd: Option<OwnedFd>,
    /// Read position for reopening it.
    position: u64,
    /// Subdirectories of the current batch to enter.
    pending: Vec<CString>,
    read_through: bool,
}

impl Frame {
    fn new(name: CString, fd: OwnedFd) -> Self {
        Self {
            name,
            fd: Some(fd),
            position: 0,
            pending: Vec::new(),
            read_through: false,
        }
    }
}

impl Walk<'_> {
    /// Runs until the stack is empty or `until` entries are processed.
    fn run(&mut self, stack: &mut Vec<Frame>, until: u64) -> Result<(), Stop> {
        while let Some(top) = stack.last_mut() {
            if let Some(name) = top.pending.pop() {
                self.enter(stack, name)?;
            } else if !top.read_through {
                self.read_batch(stack)?;
            } else {
                self.leave(stack)?;
            }
            if self.progress.files() >= until {
                break;
            }
        }
        Ok(())
    }

    /// Enters a subdirectory; skips it if it is no longer a directory.
    fn enter(&mut self, stack: &mut Vec<Frame>, name: CString) -> Result<(), Stop> {
        let opened = open_beneath(open(stack)?, &name);
        match opened {
            Ok(fd) => stack.push(Frame::new(name, fd)),
            // XDEV: a mount in the volume
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        // the root stays open, to reopen the others
        let far = stack.len().checked_sub(MAX_OPEN).filter(|index| *index > 0);
        if let Some(frame) = far.and_then(|index| stack.get_mut(index))
            && let Some(fd) = &frame.fd
        {
            frame.position = tell(fd)?;
            frame.fd = None;
        }
        Ok(())
    }

    fn read_batch(&mut self, stack: &mut [Frame]) -> Result<(), Stop> {
        let fd = open(stack)?;
        let mut buffer = [MaybeUninit::uninit(); BATCH_BYTES];
        let mut entries = RawDir::new(fd, &mut buffer);
        let mut directories = Vec::new();
        let mut any = false;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                let mut kind = entry.file_type();
                if kind == FileType::Unknown {
                    // some file systems do not report types
                    kind = statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)
                        .map_or(FileType::Unknown, |s| FileType::from_raw_mode(s.st_mode));
                }
                if kind == FileType::Directory {
                    directories.push(name.to_owned());
                } else {
                    self.step()?;
                    if let Err(error) = self.change_entry(fd, name) {
                        self.record_failure(name, error);
                    }
                }
            }
            any = true;
            // the next call would read another batch
            if entries.is_buffer_empty() {
                break;
            }
        }
        if let Some(top) = stack.last_mut() {
            top.read_through = !any;
            top.pending = directories;
        }
        Ok(())
    }

    fn leave(&mut self, stack: &mut Vec<Frame>) -> Result<(), Stop> {
        self.step()?;
        let fd = open(stack)?;
        let changed = self.change_directory(fd);
        if let Some(frame) = stack.pop()
            && let Err(error) = changed
        {
            self.record_failure(&frame.name, error);
        }
        Ok(())
    }

    fn step(&self) -> Result<(), Stop> {
        if *self.progress.stopped.borrow() {
            return Err(Stop::Requested);
        }
        self.progress.files.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn change_directory(&self, fd: &OwnedFd) -> Result<(), Errno> {
        let stat = fstat(fd)?;
        let Some(change) = self.change(&stat) else {
            return Ok(());
        };
        if change.group {
            fchown(fd, None, Some(Gid::from_raw(self.group.gid)))?;
        }
        fchmod(fd, Mode::from_raw_mode(change.mode))
    }

    /// Opens only entries that need a change.
    fn change_entry(&self, dir: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            stat => stat?,
        };
        if self.change(&stat).is_none() {
            return Ok(());
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match openat(dir, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            fd => fd?,
        };
        let stat = fstat(&fd)?;
        let Some(change) = self.change(&stat) else {
            return Ok(());
        };
        let gid = Some(Gid::from_raw(self.group.gid));
        if change.group {
            chownat(&fd, c"", None, gid, AtFlags::EMPTY_PATH)?;
        }
        // chmod of a link would change its target
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            return Ok(());
        }
        // a PATH descriptor has no fchmod; this link leads to the opened file
        let own = format!("/proc/self/fd/{}", fd.as_raw_fd());
        chmod(own.as_str(), Mode::from_raw_mode(change.mode))
    }

    /// The necessary change; `None` for none.
    fn change(&self, stat: &Stat) -> Option<Change> {
        let mode = stat.st_mode & 0o7777;
        let link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        let wanted = if link {
            mode
        } else {
            mode | wanted_mode(stat, self.group)
        };
        let group = stat.st_gid != self.group.gid;
        (group || mode != wanted).then_some(Change {
            group,
            mode: wanted,
        })
    }

    fn record_failure(&mut self, name: &CStr, error: Errno) {
        self.failed += 1;
        if self.failed <= MAX_LOGGED_ENTRIES {
            let name = name.to_string_lossy();
            tracing::warn!(volume = %self.dir.display(), %name, %error, "ownership not changed");
        }
    }
}

struct Change {
    group: bool,
    /// chown clears the set-ID bits, so the mode is always set after it.
    mode: u32,
}

/// The descriptor of the top frame. A closed one is reopened from the root, name by name, with as
/// many of its parents as fit.
fn open(stack: &mut [Frame]) -> Result<&OwnedFd, Errno> {
    let top = stack.len().saturating_sub(1);
    if stack.get(top).is_some_and(|frame| frame.fd.is_none()) {
        let keep_from = top.saturating_sub(MAX_OPEN - 2);
        let mut current: Option<OwnedFd> = None;
        for index in 1..=top {
            let name = stack.get(index).map(|frame| frame.name.clone());
            let name = name.ok_or(Errno::INVAL)?;
            let above = match (&current, stack.get(index - 1)) {
                (Some(fd), _) => fd.as_fd(),
                (None, Some(frame)) => frame.fd.as_ref().ok_or(Errno::BADF)?.as_fd(),
                (None, None) => return Err(Errno::INVAL),
            };
            let fd = open_beneath(above, &name)?;
            if index >= keep_from
                && let Some(frame) = stack.get_mut(index)
            {
                seek(&fd, SeekFrom::Start(frame.position))?;
                frame.fd = Some(fd.try_clone().map_err(|_| Errno::MFILE)?);
            }
            current = Some(fd);
        }
    }
    let frame = stack.get(top).ok_or(Errno::INVAL)?;
    frame.fd.as_ref().ok_or(Errno::BADF)
}

fn open_beneath(dir: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    openat2(dir, name, DIRECTORY_FLAGS, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests;
