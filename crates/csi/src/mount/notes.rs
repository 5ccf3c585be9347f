//! `vol_data.json`: what a later agent, ours or upstream's, must know of a volume to take it back.
//!
//! One JSON object of strings, as upstream writes it, on the disk before the driver is called.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::error::MountError;
use super::paths::{CsiDevice, NOTES, attachment_name};

/// While it is written.
const UNFINISHED: &str = ".vol_data.json.tmp";
/// Far above what anybody writes.
const MAX_BYTES: u64 = 64 * 1024;

const SPEC_VOLUME: &str = "specVolID";
const HANDLE: &str = "volumeHandle";
const DRIVER: &str = "driverName";
const NODE: &str = "nodeName";
const ATTACHMENT: &str = "attachmentID";
const LIFECYCLE_MODE: &str = "volumeLifecycleMode";
const SE_LINUX: &str = "seLinuxMountContext";
/// Ours, and unknown to upstream, which ignores it: the driver said that it is done.
const COMPLETED: &str = "windlassCompleted";

/// The content. What others wrote into it stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes(BTreeMap<String, String>);

/// Notes that say nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotesError {
    /// They cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// They are not ours, or torn.
    #[error("{0}")]
    Content(String),
}

impl Notes {
    /// Of a staged volume.
    pub(crate) fn of_device(device: &CsiDevice) -> Self {
        Self::default()
            .with(HANDLE, &device.handle)
            .with(DRIVER, &device.driver)
    }

    /// Of a volume of a pod; of a block volume without a mode.
    pub(crate) fn of_volume(
        volume: &str,
        device: &CsiDevice,
        node: &str,
        mode: Option<&str>,
    ) -> Self {
        let attachment = attachment_name(&device.handle, &device.driver, node);
        let notes = Self::of_device(device)
            .with(SPEC_VOLUME, volume)
            .with(NODE, node)
            .with(ATTACHMENT, &attachment);
        match mode {
            Some(mode) => notes.with(LIFECYCLE_MODE, mode),
            None => notes,
        }
    }

    /// Mounted with this SELinux context.
    pub(crate) fn with_context(self, label: Option<&str>) -> Self {
        match label {
            Some(label) => self.with(SE_LINUX, label),
            None => self,
        }
    }

    /// The driver is done.
    pub(crate) fn completed(self) -> Self {
        self.with(COMPLETED, "true")
    }

    pub(crate) fn is_completed(&self) -> bool {
        self.0.get(COMPLETED).is_some_and(|value| value == "true")
    }

    /// Which volume of which driver.
    pub(crate) fn device(&self) -> Option<CsiDevice> {
        Some(CsiDevice {
            driver: self.0.get(DRIVER)?.clone(),
            handle: self.0.get(HANDLE)?.clone(),
        })
    }

    /// It belongs to one pod and is shared with nobody.
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
    /// What is wrong with the text, without the text.
    pub(crate) fn decode(text: &[u8]) -> Result<Self, NotesError> {
        let notes: BTreeMap<String, String> =
            serde_json::from_slice(text).map_err(|error| NotesError::Content(error.to_string()))?;
        let notes = Self(notes);
        match notes.device() {
            Some(device) if !device.driver.is_empty() && !device.handle.is_empty() => Ok(notes),
            _ => Err(NotesError::Content(format!(
                "neither {DRIVER} nor {HANDLE} may be missing"
            ))),
        }
    }

    /// Writes them into a directory, which is made if it is missing, and onto the disk.
    pub(crate) fn save(&self, dir: &Path) -> Result<(), MountError> {
        make_dir(dir)?;
        let path = dir.join(NOTES);
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

    /// Those in a directory; `None` if there are none.
    pub(crate) fn load(dir: &Path) -> Result<Option<Self>, NotesError> {
        use io::Read;
        let file = match File::open(dir.join(NOTES)) {
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

/// Removes the notes in a directory, and what is left of an attempt to write them.
pub(crate) fn remove_notes(dir: &Path) -> Result<(), MountError> {
    for name in [UNFINISHED, NOTES] {
        let path = dir.join(name);
        present(fs::remove_file(&path))
            .map_err(MountError::io("delete volume data file", &path))?;
    }
    Ok(())
}

/// Makes a directory and those above it with upstream's mode.
pub(crate) fn make_dir(dir: &Path) -> Result<(), MountError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(dir)
        .map_err(MountError::io("create dir", dir))
}

/// Removes an empty directory, or a file that is there instead; a missing one is fine.
pub(crate) fn remove_empty(path: &Path) -> Result<(), MountError> {
    let removed = match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => fs::remove_file(path),
        other => other,
    };
    present(removed).map_err(MountError::io("remove dir", path))
}

/// What is missing needs no removal.
fn present(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
