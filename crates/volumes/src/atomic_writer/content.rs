//! One content directory: written once, then only compared.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, fchmod, fchown, fstat, mkdirat,
    openat, openat2,
};
use rustix::io::Errno;
use windlass_pod_inputs::projection::PayloadFile;

use super::{DIRECTORY, Files};

/// Directories are readable by all users of the pod; file modes protect the content.
const DIRECTORY_MODE: u32 = 0o755;

/// Bits for the fsGroup of a read-only volume: read files, enter directories, and pass on the group.
const GROUP_FILE_BITS: u32 = 0o440;
const GROUP_DIRECTORY_BITS: u32 = 0o2550;

/// Creates a directory, ignoring the umask.
pub(super) fn new_directory(parent: impl AsFd, name: &str) -> Result<(), Errno> {
    mkdirat(&parent, name, Mode::from_raw_mode(0o700))?;
    let fd = openat(&parent, name, DIRECTORY, Mode::empty())?;
    fchmod(&fd, Mode::from_raw_mode(DIRECTORY_MODE))
}

/// Writes all files below a new, empty directory.
pub(super) fn write_content(
    root: &OwnedFd,
    files: &Files,
    fs_group: Option<u32>,
) -> Result<(), Errno> {
    give_directory(root, fs_group)?;
    for (path, file) in files {
        let (parents, name) = match path.rsplit_once('/') {
            Some((parents, name)) => (parents.split('/').collect(), name),
            None => (Vec::new(), path.as_str()),
        };
        let mut dir = root.try_clone().map_err(errno)?;
        for parent in parents {
            match new_directory(&dir, parent) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            dir = openat(&dir, parent, DIRECTORY, Mode::empty())?;
            give_directory(&dir, fs_group)?;
        }
        write_file(&dir, name, file, fs_group)?;
    }
    Ok(())
}

/// Whether a directory contains exactly these files, with their content, mode and owner.
pub(super) fn same_content(
    root: &OwnedFd,
    files: &Files,
    fs_group: Option<u32>,
) -> Result<bool, Errno> {
    let mut left: BTreeSet<&str> = files.keys().map(String::as_str).collect();
    // by name: a volume may have more directories than the limit of open files
    let mut directories = vec![String::new()];
    while let Some(prefix) = directories.pop() {
        let dir = open_directory(root, &prefix)?;
        let group = fstat(&dir)?.st_gid;
        if fs_group.is_some_and(|wanted| wanted != group) {
            return Ok(false);
        }
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                return Ok(false);
            };
            if matches!(name, "." | "..") {
                continue;
            }
            let path = format!("{prefix}{name}");
            match entry.file_type() {
                FileType::Directory => directories.push(format!("{path}/")),
                FileType::RegularFile => {
                    let Some(file) = files.get(&path) else {
                        return Ok(false);
                    };
                    if !same_file(&dir, name, file, fs_group)? {
                        return Ok(false);
                    }
                    left.remove(path.as_str());
                }
                _ => return Ok(false),
            }
        }
    }
    Ok(left.is_empty())
}

/// `path` is empty, or ends in a slash.
fn open_directory(root: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let path = if path.is_empty() { "." } else { path };
    openat2(root, path, DIRECTORY, Mode::empty(), resolve)
}

fn write_file(
    dir: &OwnedFd,
    name: &str,
    file: &PayloadFile,
    fs_group: Option<u32>,
) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // private until it has its owner
    let fd = openat(dir, name, flags, Mode::from_raw_mode(0o600))?;
    let mut out = File::from(fd);
    out.write_all(&file.data).map_err(errno)?;
    let (owner, group) = (file.owner.map(Uid::from_raw), fs_group.map(Gid::from_raw));
    if owner.is_some() || group.is_some() {
        fchown(&out, owner, group)?;
    }
    fchmod(&out, Mode::from_raw_mode(file_mode(file, fs_group)))
}

fn same_file(
    dir: &OwnedFd,
    name: &str,
    file: &PayloadFile,
    fs_group: Option<u32>,
) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(dir, name, flags, Mode::empty())?;
    if !same_attributes(&fstat(&fd)?, file, fs_group) {
        return Ok(false);
    }
    let mut found = Vec::with_capacity(file.data.len());
    let limit = file.data.len() as u64 + 1;
    let mut reader = File::from(fd).take(limit);
    reader.read_to_end(&mut found).map_err(errno)?;
    Ok(*found == *file.data)
}

fn same_attributes(found: &Stat, file: &PayloadFile, fs_group: Option<u32>) -> bool {
    u64::try_from(found.st_size).is_ok_and(|size| size == file.data.len() as u64)
        && found.st_mode & 0o7777 == file_mode(file, fs_group)
        && file.owner.is_none_or(|owner| owner == found.st_uid)
        && fs_group.is_none_or(|group| group == found.st_gid)
}

fn file_mode(file: &PayloadFile, fs_group: Option<u32>) -> u32 {
    let bits = fs_group.map_or(0, |_| GROUP_FILE_BITS);
    (file.mode & 0o7777) | bits
}

fn give_directory(dir: &OwnedFd, fs_group: Option<u32>) -> Result<(), Errno> {
    let Some(group) = fs_group else {
        return Ok(());
    };
    fchown(dir, None, Some(Gid::from_raw(group)))?;
    fchmod(
        dir,
        Mode::from_raw_mode(DIRECTORY_MODE | GROUP_DIRECTORY_BITS),
    )
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
