//! subPath mounts that containers cannot redirect.
//!
//! Containers write to volumes, so a path may change during set-up: a directory becomes a link to
//! `/`, and opening the path by name reaches the host (CVE-2017-1002101, CVE-2021-25741). Here the
//! path is walked from a descriptor of the volume's root without following links out of the volume,
//! and the resulting descriptor is bind-mounted, not a name.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fchmod, fstat, mkdirat, openat,
    openat2, readlinkat, statat,
};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use windlass_runtime_config::container_config::{SUB_PATHS_DIR, SubPath};

use crate::error::VolumeError;
use crate::mount_info::mounts_beneath;
use crate::pod_volumes::unmount_beneath;
use crate::remove::remove_tree;

/// Max links in a path, as in the kernel.
const MAX_LINKS: usize = 40;
const FOUND: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A failed subPath mount.
#[derive(Debug, thiserror::Error)]
pub enum SubPathError {
    /// A missing part of the path cannot be created.
    #[error("cannot make {path:?} in {}: {error}", volume.display())]
    Make {
        /// Path of the volume.
        volume: PathBuf,
        /// The subPath.
        path: String,
        /// Cause.
        error: Errno,
    },
    /// The path cannot be opened, or leads out of the volume.
    #[error("cannot open {path:?} in {}: {error}", volume.display())]
    Open {
        /// Path of the volume.
        volume: PathBuf,
        /// The subPath.
        path: String,
        /// Cause; `EXDEV` if it leads out of the volume.
        error: Errno,
    },
    /// The bind mount failed.
    #[error("cannot {action} {}: {error}", target.display())]
    Bind {
        /// The operation.
        action: &'static str,
        /// Target path.
        target: PathBuf,
        /// Cause.
        error: io::Error,
    },
}

/// Bind-mounts a subPath; creates missing directories with the volume's mode. An existing bind mount
/// of the same file or directory is kept.
pub fn prepare_sub_path(wanted: &SubPath) -> Result<(), SubPathError> {
    let found = find_or_make(&wanted.source, &wanted.path)?;
    let failed = |action| {
        let target = wanted.target.clone();
        move |error: io::Error| SubPathError::Bind {
            action,
            target,
            error,
        }
    };
    let kind = fstat(&found).map_err(|e| failed("inspect what belongs to")(e.into()))?;
    if keeps_bind(&wanted.target, &kind).map_err(failed("release"))? {
        return Ok(());
    }
    make_target(&wanted.target, is_directory(&kind)).map_err(failed("make"))?;
    // this path leads to the opened file, even if its name was replaced
    let source = format!("/proc/self/fd/{}", found.as_raw_fd());
    mount_bind(source, &wanted.target).map_err(|error| failed("bind to")(error.into()))
}

/// Unmounts and removes the subPath mounts of one volume of a pod or of all: also those of removed
/// containers and of previous agent runs.
pub fn clean_sub_paths(pod_dir: &Path, volume: Option<&str>) -> Result<(), VolumeError> {
    let all = pod_dir.join(SUB_PATHS_DIR);
    let dir = volume.map_or_else(|| all.clone(), |volume| all.join(volume));
    match fs::symlink_metadata(&dir) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(VolumeError::io("inspect", &dir, error)),
    }
    unmount_beneath(&dir)?;
    remove_tree(&dir).map_err(|source| VolumeError::Leftover { source })?;
    match fs::remove_dir(&all) {
        // other volumes use it
        Err(error)
            if !matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
            ) =>
        {
            Err(VolumeError::io("remove", &all, error))
        }
        _ => Ok(()),
    }
}

fn find_or_make(volume: &Path, path: &str) -> Result<OwnedFd, SubPathError> {
    let open_failed = |error| SubPathError::Open {
        volume: volume.to_owned(),
        path: path.to_owned(),
        error,
    };
    // the volume's own path is trusted, so its links are followed
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, volume, flags, Mode::empty()).map_err(open_failed)?;
    match open_beneath(&root, path) {
        Ok(found) => Ok(found),
        // unsupported, not permitted, or an absolute link, which may lead back into the volume
        Err(Errno::NOENT | Errno::NOSYS | Errno::PERM | Errno::XDEV | Errno::AGAIN) => {
            let walk = Walk::new(volume, root).map_err(open_failed)?;
            walk.to(path).map_err(|failure| match failure {
                WalkError::Open(error) => open_failed(error),
                WalkError::Make(error) => SubPathError::Make {
                    volume: volume.to_owned(),
                    path: path.to_owned(),
                    error,
                },
            })
        }
        Err(error) => Err(open_failed(error)),
    }
}

fn open_beneath(root: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { "." } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    // as a directory first, to trigger automounts
    match openat2(
        root,
        path,
        flags | OFlags::DIRECTORY,
        Mode::empty(),
        resolve,
    ) {
        Err(Errno::NOTDIR) => openat2(root, path, flags, Mode::empty(), resolve),
        opened => opened,
    }
}

enum WalkError {
    Open(Errno),
    Make(Errno),
}

impl From<Errno> for WalkError {
    fn from(error: Errno) -> Self {
        Self::Open(error)
    }
}

/// A walk through a volume, one name at a time.
struct Walk {
    /// Resolved path of the volume, for absolute links.
    real: PathBuf,
    /// Directories from the volume's root: `..` leads to the previous one, also if a container moved the
    /// directory.
    stack: Vec<OwnedFd>,
    /// Mode of the volume's root.
    mode: Mode,
    links: usize,
}

impl Walk {
    fn new(volume: &Path, root: OwnedFd) -> Result<Self, Errno> {
        let real = volume.canonicalize();
        Ok(Self {
            real: real.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?,
            mode: Mode::from_raw_mode(fstat(&root)?.st_mode & 0o7777),
            stack: vec![root],
            links: 0,
        })
    }

    fn to(mut self, path: &str) -> Result<OwnedFd, WalkError> {
        // remaining names, the next one last, and whether they come from the subPath and are created
        // if missing, or from a link
        let mut names = split(path, true);
        while let Some((name, written)) = names.pop() {
            if name == ".." {
                // it leads out of the volume
                if self.stack.len() < 2 {
                    return Err(Errno::XDEV.into());
                }
                self.stack.pop();
                continue;
            }
            let next = match self.open(&name) {
                Err(Errno::NOENT) if written => self.make(&name).map_err(WalkError::Make)?,
                opened => opened?,
            };
            let kind = fstat(&next)?;
            if FileType::from_raw_mode(kind.st_mode) == FileType::Symlink {
                names.extend(self.follow(&name)?);
                continue;
            }
            if names.is_empty() {
                return Ok(next);
            }
            if !is_directory(&kind) {
                return Err(Errno::NOTDIR.into());
            }
            self.stack.push(next);
        }
        // the volume itself, or a link to one of its parents
        self.stack.pop().ok_or(WalkError::Open(Errno::INVAL))
    }

    fn here(&self) -> Result<&OwnedFd, Errno> {
        self.stack.last().ok_or(Errno::INVAL)
    }

    fn open(&self, name: &str) -> Result<OwnedFd, Errno> {
        match openat(self.here()?, name, FOUND | OFlags::DIRECTORY, Mode::empty()) {
            Err(Errno::NOTDIR) => openat(self.here()?, name, FOUND, Mode::empty()),
            opened => opened,
        }
    }

    /// Creates a directory. A directory that a container creates meanwhile is used.
    fn make(&self, name: &str) -> Result<OwnedFd, Errno> {
        let here = self.here()?;
        match mkdirat(here, name, self.mode) {
            Err(Errno::EXIST) => return self.open(name),
            made => made?,
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(here, name, flags, Mode::empty())?;
        // mkdir applies the umask and ignores the set-group-ID bit
        fchmod(&made, self.mode)?;
        Ok(made)
    }

    /// The names in a link. An absolute link may lead back into the volume.
    fn follow(&mut self, link: &str) -> Result<Vec<(String, bool)>, Errno> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Errno::LOOP);
        }
        let target = readlinkat(self.here()?, link, Vec::new())?;
        let target = target.into_string().map_err(|_| Errno::ILSEQ)?;
        if !target.starts_with('/') {
            return Ok(split(&target, false));
        }
        let inside = Path::new(&target).strip_prefix(&self.real);
        let inside = inside.map_err(|_| Errno::XDEV)?;
        let inside = inside.to_str().ok_or(Errno::ILSEQ)?;
        self.stack.truncate(1);
        Ok(split(inside, false))
    }
}

fn split(path: &str, written: bool) -> Vec<(String, bool)> {
    let names = path.split('/').filter(|name| !matches!(*name, "" | "."));
    names.rev().map(|name| (name.to_owned(), written)).collect()
}

fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Whether this file or directory is bound there. Another one, of a previous container instance, is
/// unmounted.
fn keeps_bind(target: &Path, wanted: &Stat) -> io::Result<bool> {
    let there = match statat(CWD, target, AtFlags::SYMLINK_NOFOLLOW) {
        // avoids reading the mount table
        Err(Errno::NOENT) => return Ok(false),
        there => there,
    };
    let mounts = mounts_beneath(target)?;
    if mounts.is_empty() {
        return Ok(false);
    }
    // an inaccessible mount, such as one of a lost server, is replaced too
    let same = there.is_ok_and(|there| same_file(&there, wanted));
    if same {
        return Ok(true);
    }
    for mount in mounts.iter().rev() {
        unmount(&mount.path, UnmountFlags::NOFOLLOW)?;
    }
    Ok(false)
}

fn same_file(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Creates an empty directory or file as mount target.
fn make_target(target: &Path, directory: bool) -> io::Result<()> {
    let dir = target.parent().unwrap_or(Path::new("/"));
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o750);
    builder.recursive(true).create(dir)?;
    let dir = fs::File::open(dir)?;
    let name = target.file_name().unwrap_or_default();
    match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) if is_directory(&there) == directory => return Ok(()),
        // the subPath of a previous instance had another file type
        Ok(there) if is_directory(&there) => fs::remove_dir(target)?,
        Ok(_) => fs::remove_file(target)?,
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let made = match directory {
        true => mkdirat(dir.as_fd(), name, Mode::from_raw_mode(0o750)),
        false => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            openat(&dir, name, flags, Mode::from_raw_mode(0o640)).map(drop)
        }
    };
    Ok(made?)
}

#[cfg(test)]
mod tests;
