//! A small private file system that a test can fill, make read-only or break.
//!
//! In the directory of a [`crate::containerd::PrivateContainerd`], its sweep also unmounts it after a
//! killed test.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};

/// Bytes and inodes of a [`SmallDisk`].
const OPTIONS: &std::ffi::CStr = c"size=4m,nr_inodes=600,mode=755";
/// Bytes per write until the disk is full.
const CHUNK: [u8; 4096] = [b'.'; 4096];

/// A file system in memory; the drop unmounts it lazily.
#[derive(Debug)]
pub struct SmallDisk {
    /// Root of the file system.
    root: PathBuf,
    /// Mount point of its directory `shown`.
    place: PathBuf,
}

impl SmallDisk {
    /// Creates and mounts it at `root`, and an empty directory of it at `place`.
    pub fn mount(root: &Path, place: &Path) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        fs::create_dir_all(place)?;
        mount("windlass-test", root, "tmpfs", MountFlags::empty(), OPTIONS)?;
        let disk = Self {
            root: root.to_owned(),
            place: place.to_owned(),
        };
        let shown = root.join("shown");
        fs::create_dir(&shown)?;
        mount_bind(&shown, place)?;
        Ok(disk)
    }

    /// Fills all bytes and inodes.
    pub fn fill(&self) -> io::Result<()> {
        let filler = self.filler();
        fs::create_dir(&filler)?;
        let mut large = File::create(filler.join("large"))?;
        until_full(|_| large.write_all(&CHUNK))?;
        until_full(|number| File::create(filler.join(number.to_string())).map(drop))
    }

    /// Frees the space of [`SmallDisk::fill`].
    pub fn free(&self) -> io::Result<()> {
        fs::remove_dir_all(self.filler())
    }

    /// Makes the file system read-only or writable.
    pub fn set_read_only(&self, on: bool) -> io::Result<()> {
        let flags = match on {
            true => MountFlags::RDONLY,
            false => MountFlags::empty(),
        };
        Ok(mount_remount(&self.root, flags, "")?)
    }

    fn filler(&self) -> PathBuf {
        self.root.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        for mounted in [&self.place, &self.root] {
            // may be in use after a failed test
            let _ = unmount(mounted, UnmountFlags::DETACH);
        }
    }
}

fn until_full(mut step: impl FnMut(usize) -> io::Result<()>) -> io::Result<()> {
    for number in 0.. {
        match step(number) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A broken disk: every operation fails with EIO.
#[derive(Debug)]
pub struct BrokenDisk(PathBuf);

impl BrokenDisk {
    /// Creates a broken file system in the file `image`, mounted at `place`. `None` if the host has no
    /// loop devices or cannot break a file system.
    pub fn mount(image: &Path, place: &Path) -> io::Result<Option<Self>> {
        File::create(image)?.set_len(16 << 20)?;
        succeeded(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image))?;
        // autoclear
        let mut mount = Command::new("mount");
        if let Err(error) = succeeded(mount.args(["-o", "loop"]).arg(image).arg(place)) {
            eprintln!("no loop device here: {error}");
            return Ok(None);
        }
        let disk = Self(place.to_owned());
        // EXT4_IOC_SHUTDOWN: fails as without its device
        let shutdown = "open(my $d, '<', $ARGV[0]) or die $!; my $f = pack('L', 0); \
                        ioctl($d, 0x8004587d, $f) or die $!;";
        if let Err(error) = succeeded(Command::new("perl").args(["-e", shutdown]).arg(place)) {
            eprintln!("no file system can be broken here: {error}");
            return Ok(None);
        }
        let told = fs::create_dir(place.join("probe")).map_err(|error| error.raw_os_error());
        match told {
            Err(code) if code == Some(Errno::IO.raw_os_error()) => Ok(Some(disk)),
            other => Err(io::Error::other(format!("it is not broken: {other:?}"))),
        }
    }

    /// Unmounts the disk.
    ///
    /// # Errors
    /// The disk is in use.
    pub fn remove(self) -> io::Result<()> {
        Ok(unmount(&self.0, UnmountFlags::empty())?)
    }
}

impl Drop for BrokenDisk {
    fn drop(&mut self) {
        // mounted only after a failed test
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

fn succeeded(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{command:?}: {text}")))
}
