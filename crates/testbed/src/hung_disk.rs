//! A file system that does not answer: every call on it hangs until it is released.
//!
//! It is FUSE without a server. Requires root and `/dev/fuse`.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A mount whose calls hang; the drop releases them and unmounts it.
#[derive(Debug)]
pub struct HungDisk {
    place: PathBuf,
    /// Source of the requests of the kernel, which are never read.
    device: Option<File>,
}

impl HungDisk {
    /// Mounts it at a directory, which is created.
    ///
    /// # Errors
    /// Not root, or no FUSE in the kernel.
    pub fn mount(place: &Path) -> io::Result<Self> {
        fs::create_dir_all(place)?;
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            device.as_raw_fd()
        );
        let options = CString::new(options).map_err(io::Error::other)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("windlass-test", place, "fuse", flags, options.as_c_str())?;
        Ok(Self {
            place: place.to_owned(),
            device: Some(device),
        })
    }

    /// Ends the hang: calls fail from now on.
    pub fn release(&mut self) {
        self.device = None;
    }
}

impl Drop for HungDisk {
    fn drop(&mut self) {
        self.release();
        // the directory is removed with the test
        let _ = unmount(&self.place, UnmountFlags::DETACH);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn calls_hang_until_the_disk_is_released() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().join("disk");
        let mut disk = HungDisk::mount(&place).expect("mounted");
        let (sender, ended) = mpsc::channel();
        let file = place.join("file");
        let read = std::thread::spawn(move || sender.send(fs::read(file).is_err()));
        let early = ended.recv_timeout(Duration::from_millis(200));
        assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout));
        disk.release();
        assert_eq!(ended.recv_timeout(Duration::from_secs(10)), Ok(true));
        read.join().expect("a thread").expect("received");
    }
}
