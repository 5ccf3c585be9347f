//! The file system of the images.

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use windlass_cri::RuntimeStats;
use windlass_stats::{DiskSpace, SingleFlightIo};
use windlass_types::SandboxId;

/// A disk that takes longer has hung. A third of the time of a pass to read it: the runtime is
/// called first.
const STATVFS_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the file system of the images.
#[async_trait]
pub trait ImageFileSystem: Send + Sync + Debug + 'static {
    /// Returns the space of the file system that has the images.
    ///
    /// # Errors
    /// The runtime or the disk does not answer.
    async fn space(&self) -> Result<DiskSpace, String>;

    /// Returns a reference of the image of a sandbox; `None` if the runtime does not report it.
    async fn sandbox_image(&self, sandbox: &SandboxId) -> Option<String>;
}

/// The file system that the image service of this host reports. At most one blocking thread.
#[derive(Debug)]
pub struct HostImageFileSystem {
    images: Arc<dyn RuntimeStats>,
    runtime: Arc<dyn RuntimeStats>,
    disk: SingleFlightIo<(), ()>,
}

impl HostImageFileSystem {
    /// The image service knows the file system, the runtime the sandboxes.
    pub fn new(images: Arc<dyn RuntimeStats>, runtime: Arc<dyn RuntimeStats>) -> Self {
        Self {
            images,
            runtime,
            disk: SingleFlightIo::new(()),
        }
    }
}

#[async_trait]
impl ImageFileSystem for HostImageFileSystem {
    async fn space(&self) -> Result<DiskSpace, String> {
        let info = self.images.image_fs_info().await;
        let info = info.map_err(|error| error.go_text())?;
        let Some(images) = info.images else {
            return Err("imageFs information is unavailable".to_owned());
        };
        if images.mountpoint.is_empty() {
            return Ok(DiskSpace::default());
        }
        let read = move |(): &mut ()| disk_space(Path::new(&images.mountpoint));
        match self.disk.run(STATVFS_TIMEOUT, read).await {
            Some(Ok(space)) => Ok(space),
            Some(Err(error)) => Err(format!("get filesystem info: {error}")),
            None => Err("get filesystem info: timed out".to_owned()),
        }
    }

    async fn sandbox_image(&self, sandbox: &SandboxId) -> Option<String> {
        #[derive(Deserialize)]
        struct Info {
            image: String,
        }
        let info = self.runtime.sandbox_info(sandbox).await;
        let info = info
            .inspect_err(|error| tracing::debug!(%error, "sandbox info failed"))
            .ok()?;
        let info: Info = serde_json::from_str(&info).ok()?;
        Some(info.image)
    }
}

/// As upstream, a directory that does not exist has no capacity.
fn disk_space(dir: &Path) -> io::Result<DiskSpace> {
    match DiskSpace::read(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(DiskSpace::default()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_directory_has_no_capacity() {
        let dir = tempfile::tempdir().expect("a directory");
        let space = disk_space(dir.path()).expect("space");
        assert!(space.capacity > 0 && space.available <= space.capacity);
        let missing = disk_space(&dir.path().join("missing"));
        assert_eq!(missing.expect("none"), DiskSpace::default());
    }
}
