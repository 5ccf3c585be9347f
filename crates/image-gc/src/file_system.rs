//! The file system of the images.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use tokio::time::timeout;
use windlass_cri::RuntimeStats;
use windlass_types::SandboxId;

use crate::plan::DiskSpace;

/// A disk that takes longer has hung.
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

/// The file system that the image service of this host reports.
#[derive(Clone, Debug)]
pub struct HostImageFileSystem {
    /// Image service, which knows the file system.
    pub images: Arc<dyn RuntimeStats>,
    /// Runtime, which knows the sandboxes.
    pub runtime: Arc<dyn RuntimeStats>,
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
        let read = tokio::task::spawn_blocking(move || disk_space(&images.mountpoint));
        match timeout(STATVFS_TIMEOUT, read).await {
            Ok(Ok(Ok(space))) => Ok(space),
            Ok(Ok(Err(error))) => Err(format!("get filesystem info: {error}")),
            Ok(Err(_)) => Err("get filesystem info: aborted".to_owned()),
            Err(_) => Err("get filesystem info: timed out".to_owned()),
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
fn disk_space(dir: &str) -> io::Result<DiskSpace> {
    let space = match rustix::fs::statvfs(dir) {
        Ok(space) => space,
        Err(rustix::io::Errno::NOENT) => return Ok(DiskSpace::default()),
        Err(error) => return Err(error.into()),
    };
    Ok(DiskSpace {
        capacity: space.f_blocks.saturating_mul(space.f_frsize),
        available: space.f_bavail.saturating_mul(space.f_frsize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_directory_has_no_capacity() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().to_str().expect("a path");
        let space = disk_space(path).expect("space");
        assert!(space.capacity > 0 && space.available <= space.capacity);
        let missing = disk_space(&format!("{path}/missing"));
        assert_eq!(missing.expect("none"), DiskSpace::default());
    }
}
