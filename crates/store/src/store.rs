//! A directory of state files with atomic writes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_units::hash::fnv1a_64;

use crate::disk::{DiskWork, HostDisk, StateDisk};
use crate::error::StoreError;

/// Version of the envelope. A file of another version is moved aside.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// Maximum size of a state file, which is read whole; far above that of 500 pods.
pub(crate) const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Maximum number of unusable copies of a file; the last one is replaced.
const MAX_CORRUPT_COPIES: u32 = 8;

/// Handle to a directory of state files. Clones share it.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    disk: Arc<dyn StateDisk>,
    /// Serializes writes, which share temporary files.
    writing: Mutex<()>,
}

#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    version: u32,
    checksum: String,
    #[serde(borrow)]
    data: &'a RawValue,
}

impl Store {
    /// Opens a directory and creates it with mode 0700 if it is missing.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let root = root.into();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&root)
            .and_then(|()| File::open(&root).map(drop))
            .map_err(|source| StoreError::Open {
                path: root.clone(),
                source,
            })?;
        Ok(Self::on_disk(root, Arc::new(HostDisk)))
    }

    /// A directory of another disk than the host's, for simulations.
    pub fn on_disk(root: impl Into<PathBuf>, disk: Arc<dyn StateDisk>) -> Self {
        Self {
            inner: Arc::new(Inner {
                root: root.into(),
                disk,
                writing: Mutex::new(()),
            }),
        }
    }

    /// Runs work that blocks on the disk in the background.
    pub(crate) fn run(&self, work: DiskWork) {
        self.inner.disk.run(work);
    }

    /// Runs work that blocks on the disk in the background after a delay.
    pub(crate) fn run_later(&self, delay: Duration, work: DiskWork) {
        self.inner.disk.run_later(delay, work);
    }

    /// Returns the directory.
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    /// Replaces the content of a file durably.
    pub fn save<T: Serialize + ?Sized>(&self, name: &str, value: &T) -> Result<(), StoreError> {
        let text = encode(value).map_err(|source| StoreError::Encode {
            name: name.to_owned(),
            source,
        })?;
        self.write(name, text.as_bytes())
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<(), StoreError> {
        let path = self.path(name)?;
        let _writing = self.inner.writing.lock();
        let written = self.inner.disk.replace(&path, content);
        written.map_err(|source| StoreError::Write { path, source })
    }

    /// Returns the content of a file; `None` if it is missing or unusable. An unusable file is
    /// moved aside.
    pub fn load<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, StoreError> {
        self.read(name, decode)
    }

    fn read<T>(
        &self,
        name: &str,
        decode: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Option<T>, StoreError> {
        let path = self.path(name)?;
        let read_error = |source| StoreError::Read {
            path: path.clone(),
            source,
        };
        let bytes = match self.inner.disk.read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(read_error(error)),
        };
        match decode(&bytes) {
            Ok(value) => Ok(Some(value)),
            Err(why) => {
                let aside = self.set_aside(name, &path).map_err(read_error)?;
                tracing::error!(
                    file = %path.display(),
                    moved_to = %aside.display(),
                    error = %why,
                    "state file unusable, moved aside"
                );
                Ok(None)
            }
        }
    }

    /// Returns the content of a file in another program's format, as [`Self::load`].
    ///
    /// # Errors
    /// An I/O error. An error of `decode` moves the file aside.
    pub fn load_foreign<T>(
        &self,
        name: &str,
        decode: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Option<T>, StoreError> {
        self.read(name, decode)
    }

    /// Replaces the content of a file in another program's format, as [`Self::save`].
    ///
    /// # Errors
    /// An I/O error.
    pub fn save_foreign(&self, name: &str, content: &[u8]) -> Result<(), StoreError> {
        self.write(name, content)
    }

    /// Removes a file, if it exists.
    pub fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name)?;
        match self.inner.disk.remove(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::Write { path, source })
            }
            _ => Ok(()),
        }
    }

    fn path(&self, name: &str) -> Result<PathBuf, StoreError> {
        let ok = !name.is_empty()
            && !name.starts_with('.')
            && name.len() <= 200
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
        if !ok {
            return Err(StoreError::Name {
                name: name.to_owned(),
            });
        }
        Ok(self.inner.root.join(name))
    }

    fn set_aside(&self, name: &str, path: &Path) -> io::Result<PathBuf> {
        let disk = &self.inner.disk;
        let free = free_copy(&self.inner.root, name, |path| disk.exists(path));
        disk.rename(path, &free)?;
        Ok(free)
    }
}

/// Path for an unusable file.
pub(crate) fn free_copy(root: &Path, name: &str, exists: impl Fn(&Path) -> bool) -> PathBuf {
    let copy = |n: u32| root.join(format!("{name}.corrupt-{n}"));
    let mut copies = (1..MAX_CORRUPT_COPIES).map(copy);
    let free = copies.find(|candidate| !exists(candidate));
    free.unwrap_or_else(|| copy(MAX_CORRUPT_COPIES))
}

fn encode<T: Serialize + ?Sized>(value: &T) -> Result<String, serde_json::Error> {
    let data = serde_json::value::to_raw_value(value)?;
    let mut text = serde_json::to_string(&Envelope {
        version: FORMAT_VERSION,
        checksum: checksum(data.get()),
        data: &data,
    })?;
    text.push('\n');
    Ok(text)
}

/// Decodes a value or returns the cause.
fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("larger than {MAX_FILE_BYTES} bytes"));
    }
    let envelope: Envelope<'_> =
        serde_json::from_slice(bytes).map_err(|error| format!("not an envelope: {error}"))?;
    if envelope.version != FORMAT_VERSION {
        return Err(format!(
            "unsupported version {}, expected {FORMAT_VERSION}",
            envelope.version
        ));
    }
    if envelope.checksum != checksum(envelope.data.get()) {
        return Err("checksum does not match".to_owned());
    }
    serde_json::from_slice(envelope.data.get().as_bytes())
        .map_err(|error| format!("foreign data: {error}"))
}

/// Detects torn and edited files, not forgery: only root can write the directory.
fn checksum(data: &str) -> String {
    format!("fnv1a-64:{:016x}", fnv1a_64(data.as_bytes()))
}
