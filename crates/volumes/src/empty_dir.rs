//! `emptyDir`: a directory of the pod, a tmpfs for `medium: Memory`, a hugetlbfs for `HugePages`.
//!
//! A volume that was made once is the pod's: a file `ready` among the plugin's notes says so, where
//! the Go kubelet has it, and from then on neither mode nor group is touched.

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

/// An emptyDir to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EmptyDir<'a> {
    /// Where it lies.
    pub(crate) dir: &'a Path,
    /// What it is made of.
    pub(crate) medium: EmptyDirMedium,
    /// `securityContext.fsGroup`.
    pub(crate) fs_group: Option<u32>,
    /// Directory of the plugin's notes about the volume; `None` keeps none.
    pub(crate) notes: Option<&'a Path>,
}

/// The steps of making one, in order; the agent may die between any two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Makes the directory.
    Make,
    /// Mounts memory on it.
    Mount,
    /// Lets every user of it write.
    Open,
    /// Notes that it is the pod's from now on.
    Note,
}

pub(crate) const STEPS: [Step; 4] = [Step::Make, Step::Mount, Step::Open, Step::Note];

impl EmptyDir<'_> {
    /// Makes the volume. Content is never touched.
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
            Step::Open => set_mode(self.dir, self.mode(), self.fs_group)
                .map_err(|error| VolumeError::io("set the mode of", self.dir, error)),
            Step::Note => self.note(),
        }
    }

    /// Made before. Memory is gone after a boot, whatever the notes say.
    fn is_ready(&self) -> Result<bool, VolumeError> {
        if !self.notes.is_some_and(|notes| notes.join(READY).exists()) {
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

    /// A tmpfs is sticky, as the kernel makes it: upstream's tests look at that, subPaths take it over.
    fn mode(&self) -> u32 {
        match self.medium {
            EmptyDirMedium::Memory { .. } => 0o1777,
            EmptyDirMedium::Disk | EmptyDirMedium::HugePages { .. } => 0o777,
        }
    }

    fn note(&self) -> Result<(), VolumeError> {
        let Some(notes) = self.notes else {
            return Ok(());
        };
        make_directory(notes)?;
        let ready = notes.join(READY);
        let made = File::create(&ready);
        made.map(drop)
            .map_err(|error| VolumeError::io("create file", &ready, error))
    }
}

/// Takes the notes away, before anything of the volume goes.
pub(crate) fn forget(notes: &Path) -> Result<(), VolumeError> {
    remove_tree(notes).map_err(|source| VolumeError::Leftover { source })
}

const READY: &str = "ready";

fn make_directory(dir: &Path) -> Result<(), VolumeError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(dir)
        .map_err(|error| VolumeError::io("create directory", dir, error))
}

/// A second tmpfs on the same place would hide what the containers wrote, so an existing one
/// stays, whoever mounted it.
fn mount_memory(dir: &Path, size: Option<u64>) -> Result<(), VolumeError> {
    if mounted(dir)?.is_some_and(|mount| mount.fs_type == "tmpfs") {
        return Ok(());
    }
    let size = size.map_or(String::new(), |bytes| format!(",size={bytes}"));
    // kernels before 6.4 refuse noswap; without it the volume may be swapped out
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
        let present = statfs(dir).map_err(failed)?.f_bsize.cast_unsigned();
        if present == page_size {
            return Ok(());
        }
        return Err(VolumeError::failed(format!(
            "mounted dir {} pagesize '{present}' and requested medium size '{page_size}' differ",
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

/// Every user of every container may write. Through the descriptor and without following a
/// link: the path itself could have been replaced.
fn set_mode(dir: &Path, mode: u32, fs_group: Option<u32>) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(CWD, dir, flags, Mode::empty())?;
    let Some(group) = fs_group else {
        return fchmod(&fd, Mode::from_raw_mode(mode));
    };
    fchown(&fd, None, Some(Gid::from_raw(group)))?;
    fchmod(&fd, Mode::from_raw_mode(0o2000 | mode))
}

/// What is to be told once at start: memory volumes may reach the disk. `None` if they cannot, or
/// nothing is swapped (upstream's text).
pub fn memory_swap_warning(root_dir: &Path) -> Option<String> {
    let swaps = match fs::read_to_string("/proc/swaps") {
        Ok(swaps) => swaps,
        // a kernel without swap
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(_) => String::new(),
    };
    // the first line is a heading
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

/// Tries it: distributions take the option back to older kernels.
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
    // in the way of nobody, and used again at the next start
    let _ = fs::remove_dir(&dir);
    mounted
}
