//! Writes the payload of a configMap, secret, downwardAPI or projected volume so that a reader sees
//! either the old or the new content, in upstream's layout:
//!
//! ```text
//! ..2026_11_21_06_42_50.123456789/   the content
//! ..data -> ..2026_11_21_06_42_50.123456789
//! password -> ..data/password        one link for each name at the top
//! ```
//!
//! New content is written to a new directory, and one rename replaces `..data`. The file system is
//! the only state: after a kill between any two steps, the next write completes or discards the
//! rest. All paths are opened from the volume's descriptor without following links.

mod content;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, readlinkat, renameat};
use rustix::fs::{symlinkat, unlinkat};
use rustix::io::Errno;
use windlass_pod_inputs::projection::PayloadFile;
use windlass_types::Timestamp;

use crate::error::VolumeError;
use crate::remove::remove_tree;
use content::{new_directory, same_content, write_content};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// Limits of the kernel in bytes.
const MAX_PATH_BYTES: usize = 4096;
const MAX_NAME_BYTES: usize = 255;

/// Files by path relative to the volume's root.
pub(crate) type Files = BTreeMap<String, PayloadFile>;

/// Options beside the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteOptions {
    /// `securityContext.fsGroup`: group of the files, which may read them.
    pub(crate) fs_group: Option<u32>,
    /// Current time, for the name of a new directory.
    pub(crate) now: Timestamp,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// The content was up to date.
    Unchanged,
    /// The content was replaced.
    Replaced,
}

/// Makes a volume's directory, which must exist, contain exactly these files.
///
/// # Errors
/// A path leaves the volume, or a file operation fails; repeating the call is safe.
pub(crate) fn write_payload(
    volume: &str,
    dir: &Path,
    files: &Files,
    options: WriteOptions,
) -> Result<WriteOutcome, VolumeError> {
    check_paths(volume, files)?;
    let mut write = Write::open(dir, files, options)?;
    for step in STEPS {
        let progress = write.run(step).inspect_err(|_| {
            // free space on a full file system
            if let Err(error) = write.run(Step::Sweep) {
                tracing::debug!(volume = %dir.display(), %error, "cleanup failed");
            }
        })?;
        if progress == Progress::UpToDate {
            write.run(Step::Link)?;
            write.run(Step::Clean)?;
            return Ok(WriteOutcome::Unchanged);
        }
    }
    Ok(WriteOutcome::Replaced)
}

/// Keeps the payload of a previous write and completes its links. False if there is no payload.
///
/// # Errors
/// A file operation fails; repeating the call is safe.
pub(crate) fn ensure_payload(dir: &Path) -> Result<bool, VolumeError> {
    let failed = |error| VolumeError::io("open", dir, error);
    let root = match openat(CWD, dir, DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(false),
        root => root.map_err(failed)?,
    };
    let Some(current) = link_target(&root, DATA).filter(|name| is_content(name)) else {
        return Ok(false);
    };
    let content = match openat(&root, &current, DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(false),
        content => content.map_err(failed)?,
    };
    let shown = entries(&content).map_err(failed)?;
    let names = shown.iter().map(|(name, _)| name.as_str());
    link(&root, names).map_err(|error| VolumeError::io(Step::Link.action(), dir, error))?;
    Ok(true)
}

/// The steps of a write in order; the agent may be killed between any two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Compares the current content with the desired one.
    Compare,
    /// Removes leftovers of failed or interrupted writes.
    Sweep,
    /// Creates the new directory.
    Make,
    /// Writes the files into it.
    Fill,
    /// Creates the new link beside the old one.
    Prepare,
    /// Renames it over the old one: readers now see the new content.
    Swap,
    /// Creates the links for new names.
    Link,
    /// Removes links of removed names and old content.
    Clean,
}

pub(crate) const STEPS: [Step; 8] = [
    Step::Compare,
    Step::Sweep,
    Step::Make,
    Step::Fill,
    Step::Prepare,
    Step::Swap,
    Step::Link,
    Step::Clean,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Continue with the next step.
    Next,
    /// The content is up to date.
    UpToDate,
}

/// A write in progress.
pub(crate) struct Write<'a> {
    dir: &'a Path,
    root: OwnedFd,
    files: &'a Files,
    options: WriteOptions,
    /// Name of the current or new content directory.
    current: String,
}

impl<'a> Write<'a> {
    pub(crate) fn open(
        dir: &'a Path,
        files: &'a Files,
        options: WriteOptions,
    ) -> Result<Self, VolumeError> {
        let root = openat(CWD, dir, DIRECTORY, Mode::empty())
            .map_err(|error| VolumeError::io("open", dir, error))?;
        Ok(Self {
            dir,
            root,
            files,
            options,
            current: String::new(),
        })
    }

    pub(crate) fn run(&mut self, step: Step) -> Result<Progress, VolumeError> {
        match step {
            Step::Compare => return self.compare(),
            Step::Sweep => return self.sweep().map(|()| Progress::Next),
            Step::Make => self.make(),
            Step::Fill => self.fill(),
            Step::Prepare => self.prepare(),
            Step::Swap => self.swap(),
            Step::Link => link(&self.root, self.names()),
            Step::Clean => return self.clean().map(|()| Progress::Next),
        }
        .map(|()| Progress::Next)
        .map_err(|error| VolumeError::io(step.action(), self.dir, error))
    }

    fn compare(&mut self) -> Result<Progress, VolumeError> {
        let Some(current) = self.link_target(DATA).filter(|name| is_content(name)) else {
            return Ok(Progress::Next);
        };
        // unreadable content is rewritten
        let same = openat(&self.root, &current, DIRECTORY, Mode::empty())
            .and_then(|fd| same_content(&fd, self.files, self.options.fs_group));
        if same != Ok(true) {
            return Ok(Progress::Next);
        }
        self.current = current;
        Ok(Progress::UpToDate)
    }

    /// Removes content directories that `..data` does not point to.
    fn sweep(&self) -> Result<(), VolumeError> {
        let current = self.link_target(DATA);
        self.remove_contents_but(current.as_deref())
    }

    fn remove_contents_but(&self, kept: Option<&str>) -> Result<(), VolumeError> {
        let entries = self.entries();
        let entries = entries.map_err(|error| VolumeError::io("clean", self.dir, error))?;
        for (name, kind) in entries {
            if kind == FileType::Directory && is_content(&name) && Some(name.as_str()) != kept {
                remove_tree(&self.dir.join(&name))
                    .map_err(|error| VolumeError::Leftover { source: error })?;
            }
        }
        Ok(())
    }

    /// Creates the content directory. Upstream's name ends in random digits; here they are the
    /// nanoseconds, incremented until the name is free.
    fn make(&mut self) -> Result<(), Errno> {
        let now = self.options.now;
        let stamp = now.strftime("..%Y_%m_%d_%H_%M_%S").to_string();
        let first = now.subsec_nanosecond().unsigned_abs();
        for number in first..first.saturating_add(1000) {
            let name = format!("{stamp}.{number:09}");
            match new_directory(&self.root, &name) {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    self.current = name;
                    return Ok(());
                }
            }
        }
        Err(Errno::EXIST)
    }

    fn fill(&mut self) -> Result<(), Errno> {
        let fd = openat(&self.root, &self.current, DIRECTORY, Mode::empty())?;
        write_content(&fd, self.files, self.options.fs_group)
    }

    fn prepare(&mut self) -> Result<(), Errno> {
        match unlinkat(&self.root, NEW_DATA, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        symlinkat(&self.current, &self.root, NEW_DATA)
    }

    fn swap(&mut self) -> Result<(), Errno> {
        renameat(&self.root, NEW_DATA, &self.root, DATA)
    }

    /// Removes only links into the content and old content: other entries are mount points of nested
    /// volumes.
    fn clean(&mut self) -> Result<(), VolumeError> {
        let failed = |error| VolumeError::io("clean", self.dir, error);
        let names = self.names();
        for (name, kind) in self.entries().map_err(failed)? {
            let stale_link = kind == FileType::Symlink
                && name != DATA
                && !names.contains(name.as_str())
                && self
                    .link_target(&name)
                    .is_some_and(|t| name == NEW_DATA || t.starts_with("..data/"));
            if stale_link {
                unlinkat(&self.root, &name, AtFlags::empty()).map_err(failed)?;
            }
        }
        self.remove_contents_but(Some(&self.current))
    }

    /// First components of the paths: the entries at the top of the volume.
    fn names(&self) -> BTreeSet<&'a str> {
        let files: &'a Files = self.files;
        let firsts = files.keys().filter_map(|path| path.split('/').next());
        firsts.collect()
    }

    fn entries(&self) -> Result<Vec<(String, FileType)>, Errno> {
        entries(&self.root)
    }

    fn link_target(&self, name: &str) -> Option<String> {
        link_target(&self.root, name)
    }
}

/// One link for each name at the top of a volume.
fn link<'a>(root: &OwnedFd, names: impl IntoIterator<Item = &'a str>) -> Result<(), Errno> {
    for name in names {
        let target = format!("{DATA}/{name}");
        match symlinkat(&target, root, name) {
            Ok(()) => continue,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        // a directory is the mount point of a nested volume
        match link_target(root, name) {
            Some(found) if found != target => {
                unlinkat(root, name, AtFlags::empty())?;
                symlinkat(&target, root, name)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn entries(dir: &OwnedFd) -> Result<Vec<(String, FileType)>, Errno> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        // other names are not written by this module
        if let Ok(name) = entry.file_name().to_str()
            && !matches!(name, "." | "..")
        {
            entries.push((name.to_owned(), entry.file_type()));
        }
    }
    Ok(entries)
}

fn link_target(root: &OwnedFd, name: &str) -> Option<String> {
    let target = readlinkat(root, name, Vec::new()).ok()?;
    target.into_string().ok()
}

pub(crate) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Step {
    fn action(self) -> &'static str {
        match self {
            Self::Compare => "read the content of",
            Self::Make => "make a directory in",
            Self::Fill => "write the content of",
            Self::Prepare | Self::Swap => "replace the content of",
            Self::Link => "link the content of",
            Self::Sweep | Self::Clean => "clean",
        }
    }
}

/// Whether it is the name of a content directory, `..2026_…`, the only valid target of `..data`.
fn is_content(name: &str) -> bool {
    let rest = name.strip_prefix("..").unwrap_or_default();
    rest.starts_with(|c: char| c.is_ascii_digit()) && !name.contains('/')
}

/// Rejects paths outside the volume or over its own entries.
fn check_paths(volume: &str, files: &Files) -> Result<(), VolumeError> {
    for path in files.keys() {
        let bad = |part: &str| matches!(part, "" | "." | "..") || part.len() > MAX_NAME_BYTES;
        let why = if path.len() > MAX_PATH_BYTES {
            "is longer than 4096 bytes"
        } else if path.starts_with("..") {
            "must not start with '..'"
        } else if path.contains('\0') || path.split('/').any(bad) {
            "must be relative, with no part empty, '.', '..' or longer than 255 bytes"
        } else {
            continue;
        };
        return Err(VolumeError::Invalid {
            volume: volume.to_owned(),
            message: format!("the path {path:?} {why}"),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
