//! Port to the machine under the volumes.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use windlass_types::{DeviceName, PodUid, SharedPod};

/// What mounting needs of the node beside a driver (upstream `VolumeHost`).
#[async_trait]
pub trait VolumeHost: Send + Sync + Debug + 'static {
    /// Runs work that blocks on the file system, one piece at a time for each lane, and waits for
    /// its end or a deadline.
    ///
    /// # Errors
    /// It did not end: why, in words. It may still end later.
    async fn run(
        &self,
        lane: &FileLane,
        action: &'static str,
        work: FileWork,
    ) -> Result<(), String>;

    /// Whether a file system or file is mounted at exactly this path. Blocks; does not touch what
    /// is mounted.
    ///
    /// # Errors
    /// The mount table cannot be read.
    fn is_mounted(&self, path: &Path) -> io::Result<bool>;

    /// Directories of pods at which the same is mounted as at this path. Blocks; does not touch what
    /// is mounted.
    ///
    /// # Errors
    /// The mount table cannot be read.
    fn mounts_in_pods(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// Removes a directory with all its content, but nothing that is mounted below it. Blocks. A
    /// missing one is fine.
    ///
    /// # Errors
    /// Something is mounted there, or the file system refuses.
    fn remove_tree(&self, path: &Path) -> io::Result<()>;

    /// Takes away the bind mount of a device at this file and the loop device that keeps it open,
    /// and the file, as an agent of upstream leaves them. A missing one is fine.
    ///
    /// # Errors
    /// Why not, in words.
    async fn release_device(&self, lane: &FileLane, node: &Path) -> Result<(), String>;

    /// Gives a published volume to the pod's fsGroup, as `fsGroupChangePolicy` says.
    ///
    /// # Errors
    /// Why not, in words.
    async fn set_ownership(
        &self,
        lane: &FileLane,
        pod: &SharedPod,
        volume: &str,
        dir: &Path,
        fs_group: u32,
    ) -> Result<(), String>;
}

/// Where work waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileLane {
    /// With that of the pod's other volumes: what lies on the node's own disk.
    Pod(PodUid),
    /// With that of the device: looks at what its driver mounted, which may never answer.
    Device(DeviceName),
}

/// Work for [`VolumeHost::run`].
pub type FileWork = Box<dyn FnOnce() + Send>;
