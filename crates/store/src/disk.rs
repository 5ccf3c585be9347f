//! The disk of a [`Store`](crate::Store): a port, so that a simulation can replace it.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use crate::store::MAX_FILE_BYTES;

/// Work that blocks on the disk.
pub type DiskWork = Box<dyn FnOnce() + Send>;

/// File operations of a [`Store`](crate::Store). All but [`Self::run`] block on the disk.
pub trait StateDisk: Debug + Send + Sync + 'static {
    /// Returns the content of a file, and at most one byte more than a state file may have.
    ///
    /// # Errors
    /// `NotFound` without a file, or the error of the disk.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Replaces a file durably: after a crash it has the old or the new content.
    ///
    /// # Errors
    /// The file has its old content.
    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()>;

    /// Renames a file.
    ///
    /// # Errors
    /// The error of the disk.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// `NotFound` without a file, or the error of the disk.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Returns true if the file exists.
    fn exists(&self, path: &Path) -> bool;

    /// Runs work in the background. A caller without a tokio runtime runs it itself.
    fn run(&self, work: DiskWork);

    /// Runs work in the background after a delay; never without a tokio runtime.
    fn run_later(&self, delay: Duration, work: DiskWork);
}

/// The disk of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostDisk;

impl StateDisk for HostDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?
            .take(MAX_FILE_BYTES + 1)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let root = path.parent().unwrap_or(Path::new("/"));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = root.join(format!(".{name}.tmp"));
        write_atomically(root, &temporary, path, content).inspect_err(|_| {
            // a failed write must not keep a full disk full
            let _ = fs::remove_file(&temporary);
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn run(&self, work: DiskWork) {
        match tokio::runtime::Handle::try_current() {
            Ok(handle) => drop(handle.spawn_blocking(work)),
            Err(_) => work(),
        }
    }

    fn run_later(&self, delay: Duration, work: DiskWork) {
        let Ok(handle) = tokio::runtime::Handle::try_current() else {
            return;
        };
        handle.spawn(async move {
            tokio::time::sleep(delay).await;
            drop(tokio::task::spawn_blocking(work));
        });
    }
}

pub(crate) fn write_atomically(
    root: &Path,
    temporary: &Path,
    path: &Path,
    bytes: &[u8],
) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(temporary, path)?;
    // the rename is durable only after the directory is synced
    File::open(root)?.sync_all()
}
