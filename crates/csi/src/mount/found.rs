//! What lies on the node, as the notes say.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use windlass_volume_plan::volume_source::CSI_PLUGIN;
use windlass_types::{DeviceName, PodUid};

use super::error::MountError;
use super::notes::Notes;
use super::paths::{CsiDevice, CsiPaths, is_block_volume};
use super::{CsiVolumes, device_lane};

impl CsiPaths {
    /// The device that a volume of a pod shares with other pods, as its notes say. Blocks.
    pub fn found_device(&self, uid: &PodUid, volume: &str, block: bool) -> Option<DeviceName> {
        let dir = self.notes_dir(uid, volume, block);
        let notes = load(&dir)?;
        let shared = !notes.is_inline();
        shared.then(|| notes.device()).flatten().map(|d| d.name())
    }

    /// Devices that are staged, or that somebody began to stage. Blocks.
    ///
    /// # Errors
    /// A directory cannot be read. Notes that say nothing are reported and left alone: staging
    /// writes them anew.
    pub fn staged_devices(&self) -> io::Result<Vec<DeviceName>> {
        let mut found = BTreeSet::new();
        let block_dir = self.block_dir();
        for driver in dirs_in(&self.plugin_dir())? {
            if driver == block_dir {
                continue;
            }
            for dir in dirs_in(&driver)? {
                found.extend(load(&dir).and_then(|notes| notes.device()));
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
            let notes = load(&self.block_notes_dir(name));
            let device = notes.and_then(|notes| notes.device());
            found.extend(device.map(|device| (name.to_owned(), device)));
        }
        Ok(found)
    }

    /// Directory of some pod's volume that is on this device. Blocks.
    pub(super) fn published(&self, device: &CsiDevice) -> io::Result<Option<PathBuf>> {
        for pod in dirs_in(&self.pods_dir())? {
            let plugin = pod
                .join("volumes")
                .join(windlass_pod_inputs::paths::escape_plugin(CSI_PLUGIN));
            for dir in dirs_in(&plugin)? {
                let notes = load(&dir).filter(|notes| !notes.is_inline());
                if notes.and_then(|notes| notes.device()).as_ref() == Some(device) {
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
    /// No pod has the device, whoever published it.
    pub(super) async fn check_unused(&self, device: &CsiDevice) -> Result<(), MountError> {
        let paths = self.deps.paths.clone();
        let wanted = device.clone();
        let lane = device_lane(device);
        self.files(&lane, "looking for pods of a volume", move |_| {
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

fn load(dir: &Path) -> Option<Notes> {
    match Notes::load(dir) {
        Ok(notes) => notes,
        Err(error) => {
            tracing::error!(dir = %dir.display(), %error, "notes of a volume say nothing");
            None
        }
    }
}

/// Directories in a directory, sorted; none if it is missing.
fn dirs_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut dirs = entries(dir)?;
    dirs.retain(|path| path.symlink_metadata().is_ok_and(|found| found.is_dir()));
    Ok(dirs)
}

fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        // a missing directory, or a file where upstream once had one
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}
