//! `fsGroup`: the files of a volume belong to a group of the pod.
//!
//! Each entry gets the group, directories pass it on to new entries, and the group may do what the
//! volume allows. Nothing is opened by following a link, other file systems mounted in the volume are
//! left alone, and an entry that resists is logged and passed over, as upstream does. The root comes
//! last: while it has not the group, what is below it may not have it either, which is what
//! `OnRootMismatch` looks at. A tree of any size takes [`MAX_OPEN`] descriptors and one batch of
//! names for each level above the present one.

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

/// Directories open at the same time.
const MAX_OPEN: usize = 32;
/// Bytes of names read at a time from one directory.
const BATCH_BYTES: usize = 8 * 1024;
/// Entries that resist are told one by one up to here, then only counted.
const MAX_LOGGED_ENTRIES: u64 = 3;

/// What the group may do: read and write, or only read.
const READ_WRITE: u32 = 0o660;
const READ_ONLY: u32 = 0o440;
/// What a directory gets on top: to be entered, and that new entries belong to the group too.
const DIRECTORY: u32 = 0o110;
const SET_GROUP: u32 = 0o2000;

/// The group that a volume is to belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeGroup {
    /// `securityContext.fsGroup`.
    pub gid: u32,
    /// `securityContext.fsGroupChangePolicy`.
    pub policy: GroupPolicy,
    /// The volume is mounted read-only: the group may read.
    pub read_only: bool,
}

/// When a volume's files are gone through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupPolicy {
    /// At each set-up.
    #[default]
    Always,
    /// Only if the volume's root has another group or too few permissions.
    OnRootMismatch,
}

/// How far a walk is; shared with whoever waits for it.
#[derive(Debug, Default)]
pub struct WalkProgress {
    files: AtomicU64,
    stopped: watch::Sender<bool>,
}

impl WalkProgress {
    /// Entries gone through.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Makes the walk end with [`VolumeError::Stopped`] at its next entry.
    pub fn stop(&self) {
        self.stopped.send_replace(true);
    }

    /// Waits until somebody has said so.
    pub(crate) async fn stopped(&self) {
        // the other end is here
        let _ = self.stopped.subscribe().wait_for(|stopped| *stopped).await;
    }
}

/// What a walk came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkOutcome {
    /// The root is as it should be, which was enough.
    Skipped,
    /// Everything was gone through; so many entries resisted.
    Completed {
        /// Entries that could not be changed.
        failed: u64,
    },
}

/// Gives a volume to a group. May take long: run it where blocking is allowed.
///
/// # Errors
/// A directory cannot be read, or the walk was stopped. What is done is done; trying again is safe.
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

/// The same in slices. Nothing is touched before the first.
#[derive(Debug)]
pub(crate) struct OwnershipWalk {
    dir: PathBuf,
    group: VolumeGroup,
    failed: u64,
    /// The way from the root; `None` before the first slice.
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

    /// Goes on through some `entries`, and a few more to the end of a batch; `None` if there are more.
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
            tracing::warn!(%volume, entries = self.failed, "entries kept their group");
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

/// The bits that an entry is to have at least.
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

/// Why a walk ends before its end.
enum Stop {
    Asked,
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
    /// Its name in the one above; empty for the root.
    name: CString,
    /// Closed while the walk is far below.
    fd: Option<OwnedFd>,
    /// Where reading goes on once it is open again.
    position: u64,
    /// Directories of the present batch that are still to be entered.
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
    /// Until there is nothing left on the stack, or so many entries were gone through.
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

    /// Goes down one level. What is no directory any more has gone its own way.
    fn enter(&mut self, stack: &mut Vec<Frame>, name: CString) -> Result<(), Stop> {
        let opened = open_beneath(open(stack)?, &name);
        match opened {
            Ok(fd) => stack.push(Frame::new(name, fd)),
            // another file system is not this volume
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        // the root stays open: from there the others are reached again
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
                    // some file systems do not tell
                    kind = statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)
                        .map_or(FileType::Unknown, |s| FileType::from_raw_mode(s.st_mode));
                }
                if kind == FileType::Directory {
                    directories.push(name.to_owned());
                } else {
                    self.step()?;
                    if let Err(error) = self.change_entry(fd, name) {
                        self.resisted(name, error);
                    }
                }
            }
            any = true;
            // the next call would read the next batch
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
            self.resisted(&frame.name, error);
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

    /// What is right already is not opened.
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
        // the mode of a link means nothing, and changing it would change what it points to
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            return Ok(());
        }
        // a descriptor of this kind has no fchmod; this link leads to it whatever the name is now
        let own = format!("/proc/self/fd/{}", fd.as_raw_fd());
        chmod(own.as_str(), Mode::from_raw_mode(change.mode))
    }

    /// What an entry lacks; `None` if nothing.
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

    fn resisted(&mut self, name: &CStr, error: Errno) {
        self.failed += 1;
        if self.failed <= MAX_LOGGED_ENTRIES {
            let name = name.to_string_lossy();
            tracing::warn!(volume = %self.dir.display(), %name, %error, "keeps its group");
        }
    }
}

struct Change {
    group: bool,
    /// A change of the group takes set-ID bits away, so the mode is always set after it.
    mode: u32,
}

/// The descriptor of the frame on top. One that was closed is reached again from the root, name by
/// name; the frames above it that fit are opened on the way.
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
