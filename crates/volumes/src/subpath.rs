//! A part of a volume, bound to a place where nobody can exchange it.
//!
//! Containers write to volumes, so a path in one may change while it is looked at: a directory
//! becomes a link to `/`, and whoever opens the path by its name opens the node
//! (CVE-2017-1002101, CVE-2021-25741). Here a path is walked from a descriptor of the volume's
//! root, no link is followed out of the volume, and what is bound is the descriptor at the end of the
//! walk, not a name.

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

/// Links that one path may lead over, as in the kernel.
const MAX_LINKS: usize = 40;
const FOUND: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A part of a volume that cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum SubPathError {
    /// What is missing of the path cannot be made.
    #[error("cannot make {path:?} in {}: {error}", volume.display())]
    Make {
        /// Where the volume lies.
        volume: PathBuf,
        /// The part.
        path: String,
        /// Why not.
        error: Errno,
    },
    /// The path cannot be walked, or leads out of the volume.
    #[error("cannot open {path:?} in {}: {error}", volume.display())]
    Open {
        /// Where the volume lies.
        volume: PathBuf,
        /// The part.
        path: String,
        /// Why not; `EXDEV` if it leads out.
        error: Errno,
    },
    /// It cannot be bound.
    #[error("cannot {action} {}: {error}", target.display())]
    Bind {
        /// What was tried.
        action: &'static str,
        /// Where.
        target: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

/// Binds a part of a volume, and makes the directories that are missing of its path with the
/// volume's own mode. What is bound there already stays if it is the same file or directory.
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
    // the descriptor's own entry leads to what was opened, whatever its name leads to by now
    let source = format!("/proc/self/fd/{}", found.as_raw_fd());
    mount_bind(source, &wanted.target).map_err(|error| failed("bind to")(error.into()))
}

/// Unmounts and removes what was bound of one volume of a pod, or of all of them: also for
/// containers that are gone, and by an earlier life of the agent.
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
        // other volumes have theirs there
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
    // where the volume lies is its author's word, not a container's: links lead to it
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, volume, flags, Mode::empty()).map_err(open_failed)?;
    match open_beneath(&root, path) {
        Ok(found) => Ok(found),
        // the kernel cannot, may not, or met a link that is absolute and may lead back
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
    // as a directory first: that makes an automounter mount what belongs there
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

/// A walk through a volume, one name at a time, that ends within it.
struct Walk {
    /// Where the volume really lies, for links that are absolute.
    real: PathBuf,
    /// Directories from the volume's root to here: `..` leads to the one before, wherever a
    /// container has moved the directory by now.
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
        // names that are still to be walked, the next one last, and whether the author wrote them
        // (then they are made if they are missing) or they come from a link
        let mut names = split(path, true);
        while let Some((name, written)) = names.pop() {
            if name == ".." {
                // a link that leads up from the root leads out
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
        // all of the volume, or a link to a directory on the way here
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

    /// Makes a directory. What a container puts in its place meanwhile is a directory of the
    /// volume too, or refused.
    fn make(&self, name: &str) -> Result<OwnedFd, Errno> {
        let here = self.here()?;
        match mkdirat(here, name, self.mode) {
            Err(Errno::EXIST) => return self.open(name),
            made => made?,
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(here, name, flags, Mode::empty())?;
        // mkdir cuts the mode by the umask and knows no group bit
        fchmod(&made, self.mode)?;
        Ok(made)
    }

    /// The names that a link stands for. An absolute one may lead back into the volume, as in a
    /// directory of the node that its administrator keeps.
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

/// True if this very file or directory is bound there. Another one, of an earlier instance of the
/// container, is unmounted.
fn keeps_bind(target: &Path, wanted: &Stat) -> io::Result<bool> {
    let there = match statat(CWD, target, AtFlags::SYMLINK_NOFOLLOW) {
        // no mount table has to be read where nothing can be mounted
        Err(Errno::NOENT) => return Ok(false),
        there => there,
    };
    let mounts = mounts_beneath(target)?;
    if mounts.is_empty() {
        return Ok(false);
    }
    // what cannot be inspected any more (a server that is gone) is bound anew too
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

/// An empty directory or file to bind onto.
fn make_target(target: &Path, directory: bool) -> io::Result<()> {
    let dir = target.parent().unwrap_or(Path::new("/"));
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o750);
    builder.recursive(true).create(dir)?;
    let dir = fs::File::open(dir)?;
    let name = target.file_name().unwrap_or_default();
    match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) if is_directory(&there) == directory => return Ok(()),
        // the part was of another kind when an earlier instance started
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
