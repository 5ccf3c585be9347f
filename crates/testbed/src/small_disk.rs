//! A disk of a test: small, so that it can be filled, and nobody else's, so that it can become
//! read-only or fail.
//!
//! Whoever gives it a place below a [`crate::containerd::PrivateContainerd`] need not take it away:
//! the sweep of that unmounts what a killed test left.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};

/// Bytes and files of a [`SmallDisk`]: room for the directories of some pods.
const OPTIONS: &std::ffi::CStr = c"size=4m,nr_inodes=600,mode=755";
/// What is written at a time until there is no room for more.
const CHUNK: [u8; 4096] = [b'.'; 4096];

/// A file system in memory; dropping it unmounts it from its place, whoever uses it.
#[derive(Debug)]
pub struct SmallDisk {
    /// The whole of it.
    root: PathBuf,
    /// Where its directory `shown` is bound to.
    place: PathBuf,
}

impl SmallDisk {
    /// Mounts it at `root`, which is made, and an empty directory of it at `place`, which is made, too.
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

    /// Uses up all bytes and all inodes that are left.
    pub fn fill(&self) -> io::Result<()> {
        let filler = self.filler();
        fs::create_dir(&filler)?;
        let mut large = File::create(filler.join("large"))?;
        until_full(|_| large.write_all(&CHUNK))?;
        until_full(|number| File::create(filler.join(number.to_string())).map(drop))
    }

    /// Gives back what [`SmallDisk::fill`] took.
    pub fn free(&self) -> io::Result<()> {
        fs::remove_dir_all(self.filler())
    }

    /// The file system refuses every change from now on, or no longer does.
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
            // a test that failed half-way may have left it in use
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

/// A disk that has broken down: what is asked of it is answered with EIO.
#[derive(Debug)]
pub struct BrokenDisk(PathBuf);

impl BrokenDisk {
    /// A new file system in the file `image`, mounted at `place` and broken. `None` on a machine
    /// that has no loop devices, or cannot break a file system.
    pub fn mount(image: &Path, place: &Path) -> io::Result<Option<Self>> {
        File::create(image)?.set_len(16 << 20)?;
        succeeded(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image))?;
        // the device goes with the mount
        let mut mount = Command::new("mount");
        if let Err(error) = succeeded(mount.args(["-o", "loop"]).arg(image).arg(place)) {
            eprintln!("no loop device here: {error}");
            return Ok(None);
        }
        let disk = Self(place.to_owned());
        // EXT4_IOC_SHUTDOWN: it answers as when its device is gone
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

    /// Takes it out: what lies beneath is there again.
    ///
    /// # Errors
    /// Somebody uses it.
    pub fn remove(self) -> io::Result<()> {
        Ok(unmount(&self.0, UnmountFlags::empty())?)
    }
}

impl Drop for BrokenDisk {
    fn drop(&mut self) {
        // gone already, unless a test failed half-way
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
