//! Records of image pulls in the upstream files: `image_manager/{pulling,pulled}/sha256-…`.
//!
//! *owns* the two directories and the state of the pulls of each image · *invariant* an intent is
//! on the disk before its pull starts, and is removed after the pull's record is written · *bound*
//! one intent for each image being pulled, one record for each image on the node · *restart*
//! intents of the previous run become records without credentials.
//!
//! All calls block on the disk.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};
use windlass_credentials::image_access::{
    ImagePullCredentials, ImagePullIntent, ImagePulledRecord, PullHistory, intent_is_for,
};
use windlass_manifests::image_name::ImageName;
use windlass_types::Timestamp;
use windlass_types::cri::ImageInfo;

use crate::disk::write_atomically;
use crate::error::StoreError;

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// API version before Kubernetes 1.35.
const OLD_API_VERSION: &str = "kubelet.config.k8s.io/v1alpha1";
const INTENT: &str = "ImagePullIntent";
const RECORD: &str = "ImagePulledRecord";
const PREFIX: &str = "sha256-";
const TEMPORARY: &str = ".tmp";
/// A record has some hundred Secrets at most.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The records of one node.
#[derive(Debug)]
pub struct PullRecords {
    pulling: PathBuf,
    pulled: PathBuf,
    /// Images being pulled. Locked while files change.
    pulls: Mutex<Pulls>,
}

/// Running pulls by image.
type Pulls = BTreeMap<String, ImagePulls>;

/// State of the pulls of one image.
#[derive(Clone, Copy, Debug, Default)]
struct ImagePulls {
    /// Number of running pulls.
    running: u32,
    /// True if a pull ended without a known result since the last success: the image may be on the
    /// node, and would count as preloaded without the intent.
    unseen: bool,
}

/// How a pull ended.
#[derive(Clone, Copy, Debug)]
enum PullEnd {
    /// It succeeded, and its record is written.
    Recorded,
    /// It failed.
    Failed,
    /// Its result is unknown or not recorded.
    Unseen,
}

/// Number of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullFiles {
    /// Image pull intents.
    pub intents: usize,
    /// Image pulled records.
    pub records: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Typed<'a, T> {
    kind: &'a str,
    api_version: &'a str,
    #[serde(flatten)]
    content: &'a T,
}

impl PullRecords {
    /// Creates the directories below `--root-dir`.
    ///
    /// # Errors
    /// An I/O error.
    pub fn open(root_dir: &Path) -> Result<Self, StoreError> {
        let folder = root_dir.join("image_manager");
        let made = |name: &str| {
            let path = folder.join(name);
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
            match made {
                Ok(()) => Ok(path),
                Err(source) => Err(StoreError::Open { path, source }),
            }
        };
        Ok(Self {
            pulling: made("pulling")?,
            pulled: made("pulled")?,
            pulls: Mutex::default(),
        })
    }

    /// Writes the intent of a pull.
    ///
    /// # Errors
    /// An I/O error; the pull must not start.
    pub fn begin(&self, image: &str) -> Result<(), StoreError> {
        let mut pulls = self.pulls.lock();
        let intent = ImagePullIntent {
            image: image.to_owned(),
        };
        // without a running pull, an intent on the disk is of a pull without a known result
        let mut of_image = pulls.get(image).copied().unwrap_or_else(|| ImagePulls {
            running: 0,
            unseen: file(&self.pulling, image).exists(),
        });
        write(&self.pulling, image, INTENT, &intent)?;
        of_image.running += 1;
        pulls.insert(image.to_owned(), of_image);
        Ok(())
    }

    /// Ends a pull that failed, and removes the intent if no other pull needs it.
    ///
    /// # Errors
    /// An I/O error; the intent stays.
    pub fn fail(&self, image: &str) -> Result<(), StoreError> {
        self.end(&mut self.pulls.lock(), image, PullEnd::Failed)
    }

    /// Ends a pull whose result is unknown: the intent stays until a pull succeeds.
    ///
    /// # Errors
    /// An I/O error.
    pub fn abandon(&self, image: &str) -> Result<(), StoreError> {
        self.end(&mut self.pulls.lock(), image, PullEnd::Unseen)
    }

    /// Ends a pull that succeeded: writes its record, then removes the intent.
    ///
    /// # Errors
    /// An I/O error; the intent stays, and every pod must verify.
    pub fn succeed(
        &self,
        image: &str,
        image_ref: &str,
        credentials: ImagePullCredentials,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut pulls = self.pulls.lock();
        let recorded = self.record(image, image_ref, Some(credentials), now);
        let end = match recorded {
            Ok(()) => PullEnd::Recorded,
            Err(_) => PullEnd::Unseen,
        };
        recorded.and(self.end(&mut pulls, image, end))
    }

    /// Adds credentials that give access to an image that was pulled before.
    ///
    /// # Errors
    /// An I/O error.
    pub fn add(
        &self,
        image: &str,
        image_ref: &str,
        credentials: ImagePullCredentials,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let _pulls = self.pulls.lock();
        self.record(image, image_ref, Some(credentials), now)
    }

    /// Returns the records of an image that is on the node.
    ///
    /// # Errors
    /// An I/O error, or the record cannot be decoded.
    pub fn history(&self, image: &str, image_ref: &str) -> Result<PullHistory, StoreError> {
        let pulls = self.pulls.lock();
        if let Some(record) = self.pulled(image_ref)? {
            return Ok(PullHistory::Pulled(record));
        }
        if pulls.contains_key(image) {
            return Ok(PullHistory::Intent);
        }
        let intent = read::<ImagePullIntent>(&file(&self.pulling, image), INTENT)?;
        Ok(match intent {
            Some(intent) if intent.image == image => PullHistory::Intent,
            _ => PullHistory::None,
        })
    }

    /// Counts the files.
    ///
    /// # Errors
    /// An I/O error.
    pub fn count(&self) -> Result<PullFiles, StoreError> {
        let _pulls = self.pulls.lock();
        Ok(PullFiles {
            intents: files(&self.pulling)?.len(),
            records: files(&self.pulled)?.len(),
        })
    }

    /// Turns intents of images that are on the node into records without credentials. To be called
    /// after a start, before any pull.
    ///
    /// # Errors
    /// An I/O error. Files that cannot be decoded are skipped.
    pub fn reconcile(&self, images: &[ImageInfo], now: Timestamp) -> Result<(), StoreError> {
        let pulls = self.pulls.lock();
        for path in files(&self.pulling)? {
            let intent = match read::<ImagePullIntent>(&path, INTENT) {
                Ok(Some(intent)) => intent,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(%error, path = %path.display(), "image pull intent skipped");
                    continue;
                }
            };
            let found: Vec<_> = images
                .iter()
                .filter(|i| intent_is_for(&intent, i))
                .collect();
            for image in &found {
                self.record(&intent.image, &image.id, None, now)?;
            }
            if !found.is_empty() && !pulls.contains_key(&intent.image) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Removes the records of images that `images` lacks. The list was requested at `listed`.
    ///
    /// # Errors
    /// An I/O error. Files that cannot be decoded stay.
    pub fn prune(&self, images: &[ImageInfo], listed: Timestamp) -> Result<(), StoreError> {
        let _pulls = self.pulls.lock();
        for path in files(&self.pulled)? {
            match read::<ImagePulledRecord>(&path, RECORD) {
                Ok(Some(record)) if record.is_stale(images, listed) => remove(&path)?,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, path = %path.display(), "image pulled record skipped");
                }
            }
        }
        Ok(())
    }

    fn pulled(&self, image_ref: &str) -> Result<Option<ImagePulledRecord>, StoreError> {
        let record = read::<ImagePulledRecord>(&file(&self.pulled, image_ref), RECORD)?;
        Ok(record.filter(|record| record.image_ref == image_ref))
    }

    fn record(
        &self,
        image: &str,
        image_ref: &str,
        credentials: Option<ImagePullCredentials>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let name = ImageName::parse(image).map_err(|_| StoreError::Name {
            name: image.to_owned(),
        })?;
        // as upstream, a record that cannot be decoded is replaced
        let before = self.pulled(image_ref).unwrap_or_else(|error| {
            tracing::warn!(%error, image_ref, "image pulled record replaced");
            None
        });
        match ImagePulledRecord::after_pull(before, &name, image_ref, credentials, now) {
            Some(record) => write(&self.pulled, image_ref, RECORD, &record),
            None => Ok(()),
        }
    }

    fn end(&self, pulls: &mut Pulls, image: &str, end: PullEnd) -> Result<(), StoreError> {
        let mut of_image = pulls.remove(image).unwrap_or_default();
        of_image.running = of_image.running.saturating_sub(1);
        match end {
            PullEnd::Recorded => of_image.unseen = false,
            PullEnd::Failed => {}
            PullEnd::Unseen => of_image.unseen = true,
        }
        if of_image.running > 0 {
            pulls.insert(image.to_owned(), of_image);
            return Ok(());
        }
        if of_image.unseen {
            return Ok(());
        }
        remove(&file(&self.pulling, image))
    }
}

/// Returns the upstream file name of an image.
fn file(folder: &Path, subject: &str) -> PathBuf {
    let mut name = String::from(PREFIX);
    for byte in Sha256::digest(subject.as_bytes()) {
        let _ = write!(name, "{byte:02x}");
    }
    folder.join(name)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let failed = |source| StoreError::Read {
        path: folder.to_owned(),
        source,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let text = name.to_string_lossy();
        if text.starts_with(PREFIX) && !text.ends_with(TEMPORARY) {
            found.push(folder.join(&name));
        }
    }
    Ok(found)
}

fn read<T: DeserializeOwned>(path: &Path, kind: &str) -> Result<Option<T>, StoreError> {
    let failed = |source| StoreError::Read {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => file
            .take(MAX_FILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let invalid = |why: String| failed(io::Error::new(io::ErrorKind::InvalidData, why));
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(invalid(format!("larger than {MAX_FILE_BYTES} bytes")));
    }
    let mut value: Value =
        serde_json::from_slice(&bytes).map_err(|error| invalid(error.to_string()))?;
    let mut take = |field: &str| {
        let object = value.as_object_mut();
        let taken = object.and_then(|object| object.remove(field));
        taken.and_then(|taken| taken.as_str().map(str::to_owned))
    };
    let version = take("apiVersion").unwrap_or_default();
    let known = take("kind").as_deref() == Some(kind);
    if !known || ![API_VERSION, OLD_API_VERSION].contains(&version.as_str()) {
        return Err(invalid(format!("not {kind} of {API_VERSION}")));
    }
    let content = serde_json::from_value(value).map_err(|error| invalid(error.to_string()))?;
    Ok(Some(content))
}

fn write<T: Serialize>(
    folder: &Path,
    subject: &str,
    kind: &str,
    content: &T,
) -> Result<(), StoreError> {
    let path = file(folder, subject);
    let typed = Typed {
        kind,
        api_version: API_VERSION,
        content,
    };
    let mut text = serde_json::to_string(&typed).map_err(|source| StoreError::Encode {
        name: path.display().to_string(),
        source,
    })?;
    text.push('\n');
    let mut temporary = path.clone().into_os_string();
    temporary.push(TEMPORARY);
    let temporary = PathBuf::from(temporary);
    write_atomically(folder, &temporary, &path, text.as_bytes()).map_err(|source| {
        // a failed write must not keep a full disk full
        let _ = fs::remove_file(&temporary);
        StoreError::Write { path, source }
    })
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(StoreError::Write {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
