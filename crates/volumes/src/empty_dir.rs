//! `emptyDir`: a directory of the pod, a tmpfs for `medium: Memory`, a hugetlbfs for `HugePages`.
//!
//! The file `ready` in the plugin's directory, as in the Go kubelet, marks a volume as set up; from
//! then on its mode and group are not changed.

use std::ffi::CString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{CWD, Gid, Mode, OFlags, fchmod, fchown, openat, statfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use windlass_volume_plan::empty_dir::EmptyDirMedium;

use crate::error::VolumeError;
use crate::mounts::mounted;
use crate::remove::remove_tree;

/// An emptyDir to set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EmptyDir<'a> {
    /// Its directory.
    pub(crate) dir: &'a Path,
    /// Its medium.
    pub(crate) medium: EmptyDirMedium,
    /// `securityContext.fsGroup`.
    pub(crate) fs_group: Option<u32>,
    /// Directory of the ready file; `None` for no ready file.
    pub(crate) meta_dir: Option<&'a Path>,
}

/// The steps of a set-up in order; the agent may be killed between any two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Creates the directory.
    Make,
    /// Mounts the memory file system.
    Mount,
    /// Sets mode and group.
    SetMode,
    /// Creates the ready file.
    MarkReady,
}

pub(crate) const STEPS: [Step; 4] = [Step::Make, Step::Mount, Step::SetMode, Step::MarkReady];

impl EmptyDir<'_> {
    /// Sets up the volume. Content is never changed.
    pub(crate) fn set_up(&self) -> Result<(), VolumeError> {
        if self.is_ready()? {
            return Ok(());
        }
        STEPS.into_iter().try_for_each(|step| self.run(step))
    }

    pub(crate) fn run(&self, step: Step) -> Result<(), VolumeError> {
        match step {
            Step::Make => make_directory(self.dir),
            Step::Mount => self.mount(),
            Step::SetMode => set_mode(self.dir, self.mode(), self.fs_group)
                .map_err(|error| VolumeError::io("set the mode of", self.dir, error)),
            Step::MarkReady => self.mark_ready(),
        }
    }

    /// Whether the volume is set up. A memory volume must also be mounted: it is lost at a reboot.
    fn is_ready(&self) -> Result<bool, VolumeError> {
        if !self.meta_dir.is_some_and(|dir| dir.join(READY).exists()) {
            return Ok(false);
        }
        match self.medium {
            EmptyDirMedium::Disk => Ok(self.dir.exists()),
            EmptyDirMedium::Memory { .. } | EmptyDirMedium::HugePages { .. } => {
                Ok(mounted(self.dir)?.is_some())
            }
        }
    }

    fn mount(&self) -> Result<(), VolumeError> {
        match self.medium {
            EmptyDirMedium::Disk => Ok(()),
            EmptyDirMedium::Memory { size } => mount_memory(self.dir, size),
            EmptyDirMedium::HugePages { page_size, size } => {
                mount_huge_pages(self.dir, page_size, size)
            }
        }
    }

    /// A tmpfs keeps the kernel's sticky bit: upstream's tests check it and subPaths inherit it.
    fn mode(&self) -> u32 {
        match self.medium {
            EmptyDirMedium::Memory { .. } => 0o1777,
            EmptyDirMedium::Disk | EmptyDirMedium::HugePages { .. } => 0o777,
        }
    }

    fn mark_ready(&self) -> Result<(), VolumeError> {
        let Some(meta_dir) = self.meta_dir else {
            return Ok(());
        };
        make_directory(meta_dir)?;
        let ready = meta_dir.join(READY);
        let made = File::create(&ready);
        made.map(drop)
            .map_err(|error| VolumeError::io("create file", &ready, error))
    }
}

/// Removes the ready file, before the volume.
pub(crate) fn remove_meta_dir(meta_dir: &Path) -> Result<(), VolumeError> {
    remove_tree(meta_dir).map_err(|source| VolumeError::Leftover { source })
}

const READY: &str = "ready";

fn make_directory(dir: &Path) -> Result<(), VolumeError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(dir)
        .map_err(|error| VolumeError::io("create directory", dir, error))
}

/// Keeps an existing tmpfs: a second one would hide the content.
fn mount_memory(dir: &Path, size: Option<u64>) -> Result<(), VolumeError> {
    if mounted(dir)?.is_some_and(|mount| mount.fs_type == "tmpfs") {
        return Ok(());
    }
    let size = size.map_or(String::new(), |bytes| format!(",size={bytes}"));
    // kernels before 6.4 reject noswap; without it the volume may be swapped out
    let with = mount_kind("tmpfs", dir, format!("mode=1777{size},noswap"));
    match with {
        Err(Errno::INVAL) => mount_kind("tmpfs", dir, format!("mode=1777{size}")),
        with => with,
    }
    .map_err(|error| VolumeError::io("mount tmpfs on", dir, error))
}

fn mount_huge_pages(dir: &Path, page_size: u64, size: Option<u64>) -> Result<(), VolumeError> {
    if mounted(dir)?.is_some_and(|mount| mount.fs_type == "hugetlbfs") {
        let failed = |error| VolumeError::io("inspect", dir, error);
        let current = statfs(dir).map_err(failed)?.f_bsize.cast_unsigned();
        if current == page_size {
            return Ok(());
        }
        return Err(VolumeError::failed(format!(
            "mounted dir {} pagesize '{current}' and requested medium size '{page_size}' differ",
            dir.display()
        )));
    }
    let size = size.map_or(String::new(), |bytes| format!(",size={bytes}"));
    mount_kind("hugetlbfs", dir, format!("pagesize={page_size}{size}"))
        .map_err(|error| VolumeError::io("mount hugetlbfs on", dir, error))
}

fn mount_kind(kind: &str, dir: &Path, data: String) -> Result<(), Errno> {
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount(kind, dir, kind, flags, data.as_c_str())
}

/// Sets mode and group through a descriptor and without following links: the path may have been
/// replaced.
fn set_mode(dir: &Path, mode: u32, fs_group: Option<u32>) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(CWD, dir, flags, Mode::empty())?;
    let Some(group) = fs_group else {
        return fchmod(&fd, Mode::from_raw_mode(mode));
    };
    fchown(&fd, None, Some(Gid::from_raw(group)))?;
    fchmod(&fd, Mode::from_raw_mode(0o2000 | mode))
}

/// Upstream's warning that memory volumes may be swapped to disk; `None` if they cannot be.
pub fn memory_swap_warning(root_dir: &Path) -> Option<String> {
    let swaps = match fs::read_to_string("/proc/swaps") {
        Ok(swaps) => swaps,
        // kernel without swap
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(_) => String::new(),
    };
    // skip the header line
    let areas = swaps.lines().skip(1).filter(|line| !line.trim().is_empty());
    if areas.count() == 0 || supports_noswap(root_dir) {
        return None;
    }
    Some(
        "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, \
         emptyDirs, etc.) might be swapped to disk and should no longer be considered secure."
            .to_owned(),
    )
}

/// Tests the option, because distributions backport it to older kernels.
fn supports_noswap(root_dir: &Path) -> bool {
    let dir = root_dir.join("plugins/kubernetes.io/empty-dir/noswap-test");
    if make_directory(&dir).is_err() {
        return false;
    }
    let mounted = mount_kind("tmpfs", &dir, "size=4096,noswap".to_owned()).is_ok();
    if mounted {
        let flags = rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::NOFOLLOW;
        if let Err(error) = rustix::mount::unmount(&dir, flags) {
            tracing::warn!(dir = %dir.display(), %error, "cannot unmount a test mount");
        }
    }
    // harmless if it stays: the next start reuses it
    let _ = fs::remove_dir(&dir);
    mounted
}
