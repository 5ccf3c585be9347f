//! `vol_data.json`: the data for tearing a volume down after a restart of this agent or the Go
//! kubelet.
//!
//! One JSON object of strings, as upstream writes it, saved before the driver is called.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::error::MountError;
use super::paths::{CsiDevice, VOLUME_DATA_FILE, attachment_name};

/// Name of the temporary file.
const UNFINISHED: &str = ".vol_data.json.tmp";
/// Far above the size of any valid file.
const MAX_BYTES: u64 = 64 * 1024;

const SPEC_VOLUME: &str = "specVolID";
const HANDLE: &str = "volumeHandle";
const DRIVER: &str = "driverName";
const NODE: &str = "nodeName";
const ATTACHMENT: &str = "attachmentID";
const LIFECYCLE_MODE: &str = "volumeLifecycleMode";
const SE_LINUX: &str = "seLinuxMountContext";
/// Written only by Windlass and ignored by upstream: the call to the driver completed.
const COMPLETED: &str = "windlassCompleted";

/// The content of the file; unknown keys are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeData(BTreeMap<String, String>);

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeDataError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Its content is invalid or truncated.
    #[error("{0}")]
    Content(String),
}

impl VolumeData {
    /// For a staged device.
    pub(crate) fn for_device(device: &CsiDevice) -> Self {
        Self::default()
            .with(HANDLE, &device.handle)
            .with(DRIVER, &device.driver)
    }

    /// For a volume of a pod; block volumes have no mode.
    pub(crate) fn for_volume(
        volume: &str,
        device: &CsiDevice,
        node: &str,
        mode: Option<&str>,
    ) -> Self {
        let attachment = attachment_name(&device.handle, &device.driver, node);
        let data = Self::for_device(device)
            .with(SPEC_VOLUME, volume)
            .with(NODE, node)
            .with(ATTACHMENT, &attachment);
        match mode {
            Some(mode) => data.with(LIFECYCLE_MODE, mode),
            None => data,
        }
    }

    /// Adds the SELinux context of the mount.
    pub(crate) fn with_context(self, label: Option<&str>) -> Self {
        match label {
            Some(label) => self.with(SE_LINUX, label),
            None => self,
        }
    }

    /// Marks the call as completed.
    pub(crate) fn completed(self) -> Self {
        self.with(COMPLETED, "true")
    }

    pub(crate) fn is_completed(&self) -> bool {
        self.0.get(COMPLETED).is_some_and(|value| value == "true")
    }

    /// Driver and handle.
    pub(crate) fn device(&self) -> Option<CsiDevice> {
        Some(CsiDevice {
            driver: self.0.get(DRIVER)?.clone(),
            handle: self.0.get(HANDLE)?.clone(),
        })
    }

    /// Whether the volume is inline and so belongs to one pod.
    pub(crate) fn is_inline(&self) -> bool {
        self.0
            .get(LIFECYCLE_MODE)
            .is_some_and(|mode| mode == "Ephemeral")
    }

    pub(crate) fn encode(&self) -> String {
        let mut text = serde_json::Value::from_iter(self.0.clone()).to_string();
        text.push('\n');
        text
    }

    /// # Errors
    /// The cause, without the content.
    pub(crate) fn decode(text: &[u8]) -> Result<Self, VolumeDataError> {
        let data: BTreeMap<String, String> = serde_json::from_slice(text)
            .map_err(|error| VolumeDataError::Content(error.to_string()))?;
        let data = Self(data);
        match data.device() {
            Some(device) if !device.driver.is_empty() && !device.handle.is_empty() => Ok(data),
            _ => Err(VolumeDataError::Content(format!(
                "neither {DRIVER} nor {HANDLE} may be missing"
            ))),
        }
    }

    /// Writes and syncs the file; creates a missing directory.
    pub(crate) fn save(&self, dir: &Path) -> Result<(), MountError> {
        make_dir(dir)?;
        let path = dir.join(VOLUME_DATA_FILE);
        let write = || {
            let unfinished = dir.join(UNFINISHED);
            let mut file = File::create(&unfinished)?;
            file.write_all(self.encode().as_bytes())?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            File::open(dir)?.sync_all()
        };
        write().map_err(MountError::io("save volume data file", &path))
    }

    /// Reads the file of a directory; `None` if it is missing.
    pub(crate) fn load(dir: &Path) -> Result<Option<Self>, VolumeDataError> {
        use io::Read;
        let file = match File::open(dir.join(VOLUME_DATA_FILE)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut text = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut text)?;
        Self::decode(&text).map(Some)
    }

    fn with(mut self, key: &str, value: &str) -> Self {
        self.0.insert(key.to_owned(), value.to_owned());
        self
    }
}

/// Removes the volume data file of a directory and its temporary file.
pub(crate) fn remove_volume_data(dir: &Path) -> Result<(), MountError> {
    for name in [UNFINISHED, VOLUME_DATA_FILE] {
        let path = dir.join(name);
        ignore_missing(fs::remove_file(&path))
            .map_err(MountError::io("delete volume data file", &path))?;
    }
    Ok(())
}

/// Creates a directory and its parents with upstream's mode.
pub(crate) fn make_dir(dir: &Path) -> Result<(), MountError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(dir)
        .map_err(MountError::io("create dir", dir))
}

/// Removes an empty directory or a file; a missing path is not an error.
pub(crate) fn remove_empty(path: &Path) -> Result<(), MountError> {
    let removed = match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => fs::remove_file(path),
        other => other,
    };
    ignore_missing(removed).map_err(MountError::io("remove dir", path))
}

/// Ignores `NotFound`.
fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
