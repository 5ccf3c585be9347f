//! `emptyDir`: a directory of the pod, or a tmpfs for `medium: Memory`.

use std::ffi::CString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{CWD, Gid, Mode, OFlags, fchmod, fchown, openat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use windlass_types::corev1::EmptyDirVolumeSource;

use crate::error::VolumeError;
use crate::mount_info::mounts_beneath;

/// What the pod says about its emptyDir volumes besides the volume itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ownership {
    /// `securityContext.fsGroup`.
    pub(crate) fs_group: Option<u32>,
}

/// Makes the directory and, for memory, the tmpfs on it. Content is never touched.
pub(crate) fn set_up(
    volume: &str,
    source: &EmptyDirVolumeSource,
    dir: &Path,
    size_limit: Option<u64>,
    ownership: Ownership,
) -> Result<(), VolumeError> {
    let medium = source.medium.as_deref().unwrap_or_default();
    if !matches!(medium, "" | "Memory") {
        return Err(VolumeError::Unsupported {
            volume: volume.to_owned(),
            kind: format!("emptyDir with medium {medium}"),
        });
    }
    make_directory(dir, medium == "Memory", size_limit, ownership)
}

/// A directory of the pod that every user of it may write to, on a tmpfs of its own if `memory`.
pub(crate) fn make_directory(
    dir: &Path,
    memory: bool,
    size_limit: Option<u64>,
    ownership: Ownership,
) -> Result<(), VolumeError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(dir)
        .map_err(|error| VolumeError::io("create directory", dir, error))?;
    if memory {
        mount_memory(dir, size_limit)?;
    }
    open_to_all(dir, ownership).map_err(|error| VolumeError::io("set the mode of", dir, error))
}

/// A second tmpfs on the same place would hide what the containers wrote, so an existing one
/// stays, whoever mounted it.
fn mount_memory(dir: &Path, size_limit: Option<u64>) -> Result<(), VolumeError> {
    let io = |error: std::io::Error| VolumeError::io("mount tmpfs on", dir, error);
    let real = dir.canonicalize().map_err(io)?;
    let mounts = mounts_beneath(dir).map_err(io)?;
    if mounts
        .iter()
        .any(|m| m.path == real && m.fs_type == "tmpfs")
    {
        return Ok(());
    }
    let size = size_limit.map_or(String::new(), |bytes| format!(",size={bytes}"));
    // kernels before 6.4 refuse noswap; without it the volume may be swapped out
    let mut last = Errno::INVAL;
    for extra in [",noswap", ""] {
        let data =
            CString::new(format!("mode=0777{size}{extra}")).map_err(|error| io(error.into()))?;
        match mount(
            "tmpfs",
            dir,
            "tmpfs",
            MountFlags::NOSUID | MountFlags::NODEV,
            data.as_c_str(),
        ) {
            Ok(()) => return Ok(()),
            Err(error) => last = error,
        }
        if last != Errno::INVAL {
            break;
        }
    }
    Err(VolumeError::io("mount tmpfs on", dir, last))
}

/// Every user of every container may write. Through the descriptor and without following a
/// link: the path itself could have been replaced.
fn open_to_all(dir: &Path, ownership: Ownership) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(CWD, dir, flags, Mode::empty())?;
    let Some(group) = ownership.fs_group else {
        return fchmod(&fd, Mode::from_raw_mode(0o777));
    };
    fchown(&fd, None, Some(Gid::from_raw(group)))?;
    fchmod(&fd, Mode::from_raw_mode(0o2777))
}
