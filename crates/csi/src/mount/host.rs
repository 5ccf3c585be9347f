//! Port to the host under the volumes.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use windlass_types::{DeviceName, PodUid, SharedPod};

/// Host operations for mounting (upstream `VolumeHost`).
#[async_trait]
pub trait VolumeHost: Send + Sync + Debug + 'static {
    /// Runs blocking file work, one call at a time per I/O queue, with a deadline.
    ///
    /// # Errors
    /// The work timed out or did not start; it may still finish later.
    async fn run(
        &self,
        queue: &IoQueueKind,
        action: &'static str,
        work: FileWork,
    ) -> Result<(), String>;

    /// Whether a file system or file is mounted at exactly this path. Blocks; does not access
    /// the mount.
    ///
    /// # Errors
    /// The mount table cannot be read.
    fn is_mounted(&self, path: &Path) -> io::Result<bool>;

    /// Directories of pods that mount the same file system as this path. Blocks; does not access the
    /// mount.
    ///
    /// # Errors
    /// The mount table cannot be read.
    fn mounts_in_pods(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// Removes a directory tree, except mounts below it. Blocks. A missing directory is not an error.
    ///
    /// # Errors
    /// A mount is in the tree, or an I/O error.
    fn remove_tree(&self, path: &Path) -> io::Result<()>;

    /// Removes the bind mount of a device at this file, its loop device and the file, as the Go
    /// kubelet leaves them. A missing file is not an error.
    ///
    /// # Errors
    /// The cause.
    async fn release_device(&self, queue: &IoQueueKind, node: &Path) -> Result<(), String>;

    /// Changes the ownership of a published volume to the pod's fsGroup, following
    /// `fsGroupChangePolicy`.
    ///
    /// # Errors
    /// The cause.
    async fn set_ownership(
        &self,
        queue: &IoQueueKind,
        pod: &SharedPod,
        volume: &str,
        dir: &Path,
        fs_group: u32,
    ) -> Result<(), String>;
}

/// The I/O queue of a piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IoQueueKind {
    /// Shared with the pod's other volumes; for work on the node's own disk.
    Pod(PodUid),
    /// The device's own; for work that accesses the driver's mount, which may hang.
    Device(DeviceName),
}

/// Work for [`VolumeHost::run`].
pub type FileWork = Box<dyn FnOnce() + Send>;
