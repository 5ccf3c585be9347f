//! Volumes and devices on the node, according to their volume data files.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind::NotADirectory, ErrorKind::NotFound};
use std::path::{Path, PathBuf};

use windlass_types::{DeviceName, PodUid};
use windlass_volume_plan::volume_source::CSI_PLUGIN;

use super::error::MountError;
use super::paths::{CsiDevice, CsiPaths, is_block_volume};
use super::volume_data::VolumeData;
use super::{CsiVolumes, device_queue};

impl CsiPaths {
    /// The device of a volume, which other pods may share; `None` for inline volumes. Blocks.
    pub fn shared_device(&self, uid: &PodUid, volume: &str, block: bool) -> Option<DeviceName> {
        let dir = self.volume_data_dir(uid, volume, block);
        let data = load(&dir)?;
        let shared = !data.is_inline();
        shared.then(|| data.device()).flatten().map(|d| d.name())
    }

    /// Devices that are staged or partly staged. Blocks.
    ///
    /// # Errors
    /// A directory cannot be read. Invalid volume data files are logged and skipped: staging rewrites
    /// them.
    pub fn staged_devices(&self) -> io::Result<Vec<DeviceName>> {
        let mut found = BTreeSet::new();
        let block_dir = self.block_dir();
        for driver in dirs_in(&self.plugin_dir())? {
            if driver == block_dir {
                continue;
            }
            for dir in dirs_in(&driver)? {
                found.extend(load(&dir).and_then(|data| data.device()));
            }
        }
        found.extend(self.block_volumes()?.into_iter().map(|(_, device)| device));
        Ok(found.iter().map(CsiDevice::name).collect())
    }

    /// Block volumes by name. Blocks.
    pub(super) fn block_volumes(&self) -> io::Result<Vec<(String, CsiDevice)>> {
        let mut found = Vec::new();
        for dir in dirs_in(&self.block_dir())? {
            let name = dir.file_name().and_then(|name| name.to_str());
            let Some(name) = name.filter(|name| is_block_volume(name)) else {
                continue;
            };
            let data = load(&self.block_data_dir(name));
            let device = data.and_then(|data| data.device());
            found.extend(device.map(|device| (name.to_owned(), device)));
        }
        Ok(found)
    }

    /// Directory of a pod volume on this device. Blocks.
    pub(super) fn published(&self, device: &CsiDevice) -> io::Result<Option<PathBuf>> {
        for pod in dirs_in(&self.pods_dir())? {
            let plugin = pod
                .join("volumes")
                .join(windlass_pod_inputs::paths::escape_plugin(CSI_PLUGIN));
            for dir in dirs_in(&plugin)? {
                let data = load(&dir).filter(|data| !data.is_inline());
                if data.and_then(|data| data.device()).as_ref() == Some(device) {
                    return Ok(Some(dir));
                }
            }
        }
        for (volume, of) in self.block_volumes()? {
            let published = entries(&self.block_publish_dir(&volume))?;
            if of == *device
                && let Some(first) = published.into_iter().next()
            {
                return Ok(Some(first));
            }
        }
        Ok(None)
    }
}

impl CsiVolumes {
    /// Checks that no pod uses the device.
    pub(super) async fn check_unused(&self, device: &CsiDevice) -> Result<(), MountError> {
        let paths = self.deps.paths.clone();
        let wanted = device.clone();
        let queue = device_queue(device);
        self.files(&queue, "finding pods that use a device", move |_| {
            let dir = paths.pods_dir();
            let used = paths.published(&wanted);
            let used = used.map_err(MountError::io("look for volumes below", &dir))?;
            match used {
                Some(path) => Err(MountError::InUse {
                    device: wanted.name(),
                    path,
                }),
                None => Ok(()),
            }
        })
        .await
    }
}

fn load(dir: &Path) -> Option<VolumeData> {
    match VolumeData::load(dir) {
        Ok(data) => data,
        Err(error) => {
            tracing::error!(dir = %dir.display(), %error, "invalid volume data file");
            None
        }
    }
}

/// Subdirectories, sorted; empty if the directory is missing.
fn dirs_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut dirs = entries(dir)?;
    dirs.retain(|path| path.symlink_metadata().is_ok_and(|found| found.is_dir()));
    Ok(dirs)
}

fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        // missing, or a file that an old Go kubelet left
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}
