//! An encrypted state file, and its key in a file of its own.
//!
//! *owns* one file and its key · *receives* `load` and `save` · *sends* nothing · *invariant* the
//! disk never has the content in the clear · *bound* [`MAX_CONTENT_BYTES`] · *restart* `open` reads
//! the key; content of another key, node or version is set aside.
//!
//! A file is a header, a random nonce of 12 bytes, and the content with a tag of 16 bytes, encrypted
//! with AES-256-GCM. Header, file name and owner are authenticated. One write in ten seconds uses a
//! key for a thousand years before random nonces may repeat (2³² writes).

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::error::StoreError;
use crate::store::Store;

/// Maximum size of the content in bytes: above it a write fails. 110 pods with two objects of 64 KiB
/// each have 14 MiB, and each write encrypts all of it.
pub const MAX_CONTENT_BYTES: usize = 16 * 1024 * 1024;

/// Begins each file.
const MAGIC: &[u8; 8] = b"WINDLASS";
/// Version of the layout. A file of another version is set aside.
const LAYOUT_VERSION: u32 = 1;
/// Length of the header: magic and version.
const HEADER_LEN: usize = MAGIC.len() + size_of::<u32>();
/// Length of a key of AES-256.
const KEY_LEN: usize = 32;
/// Length of the tag of AES-GCM.
const TAG_LEN: usize = 16;
/// Permissions of group and others.
const OTHERS: u32 = 0o077;

/// Location, node and key of an encrypted file.
#[derive(Clone, Debug)]
pub struct SealedFileConfig {
    /// Directory of the file.
    pub store: Store,
    /// Name of the file; that of the key ends with `.key`.
    pub name: &'static str,
    /// Name of the node. A file of another node is unreadable, even with the right key.
    pub owner: String,
    /// A file with the 32 bytes of the key, such as a systemd credential. If it exists, the key is
    /// not on the disk.
    pub credential: Option<PathBuf>,
}

/// An encrypted file. Clones share it; it has one writer.
#[derive(Clone, Debug)]
pub struct SealedFile {
    store: Store,
    name: &'static str,
    associated_data: Arc<[u8]>,
    key: Arc<RandomizedNonceKey>,
}

impl SealedFile {
    /// Reads the key, or creates one. A key file that others can read, or of a wrong length, is
    /// removed. Blocks on the disk.
    ///
    /// # Errors
    /// The key cannot be read or written, or the credential is not a key.
    pub fn open(config: SealedFileConfig) -> Result<Self, StoreError> {
        let SealedFileConfig {
            store, name, owner, ..
        } = config;
        let key_name = key_name(name);
        let credential = match config.credential {
            Some(path) => read_credential(&path)?,
            None => None,
        };
        let key = match credential {
            Some(key) => {
                // a key on the disk would still open older files
                store.remove(&key_name)?;
                key
            }
            None => match read_key(&store, &key_name)? {
                Some(key) => key,
                None => create_key(&store, &key_name)?,
            },
        };
        let key = RandomizedNonceKey::new(&AES_256_GCM, &key);
        let key = key.map_err(|_| unusable_key(store.root().join(&key_name), "wrong length"))?;
        let mut associated_data = header().to_vec();
        associated_data.extend(format!("{name}/{owner}").into_bytes());
        Ok(Self {
            store,
            name,
            associated_data: associated_data.into(),
            key: Arc::new(key),
        })
    }

    /// Returns the content; `None` if the file is missing or unusable. An unusable file is set
    /// aside. Blocks on the disk.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load<T: DeserializeOwned>(&self) -> Result<Option<T>, StoreError> {
        self.store
            .load_foreign(self.name, |bytes| self.decrypt(bytes))
    }

    /// Replaces the content durably. Blocks on the disk.
    ///
    /// # Errors
    /// The content is too large, or the write failed; the old content stays.
    pub fn save<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), StoreError> {
        let encoded = self.encrypt(value);
        let bytes = encoded.map_err(|source| StoreError::Encode {
            name: self.name.to_owned(),
            source,
        })?;
        self.store.save_foreign(self.name, &bytes)
    }

    /// Removes the content; the key stays. Blocks on the disk.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(&self) -> Result<(), StoreError> {
        self.store.remove(self.name)
    }

    /// Removes a file, its key, and what an interrupted write or an unusable file left of them.
    /// Blocks on the disk.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove_all(store: &Store, name: &'static str) -> Result<(), StoreError> {
        let root = store.root();
        let error = |path: &Path, source| StoreError::Write {
            path: path.to_owned(),
            source,
        };
        // the key first: without it the rest is unreadable
        store.remove(&key_name(name))?;
        store.remove(name)?;
        for entry in fs::read_dir(root).map_err(|source| error(root, source))? {
            let entry = entry.map_err(|source| error(root, source))?;
            if is_remainder(&entry.file_name().to_string_lossy(), name) {
                let path = entry.path();
                fs::remove_file(&path).map_err(|source| error(&path, source))?;
            }
        }
        File::open(root)
            .and_then(|root| root.sync_all())
            .map_err(|source| error(root, source))
    }

    fn encrypt<T: Serialize + ?Sized>(&self, value: &T) -> Result<Vec<u8>, serde_json::Error> {
        // counted first: a buffer that grows would leave copies of the content in memory
        let mut counted = Counted(0);
        serde_json::to_writer(&mut counted, value)?;
        let mut content = Zeroizing::new(Vec::with_capacity(counted.0 + TAG_LEN));
        serde_json::to_writer(&mut *content, value)?;
        let aad = Aad::from(&self.associated_data);
        let nonce = self.key.seal_in_place_append_tag(aad, &mut *content);
        let failed = |_| serde_json::Error::io(io::Error::other("encryption failed"));
        let nonce = nonce.map_err(failed)?;
        let mut file = header().to_vec();
        file.extend(nonce.as_ref());
        file.append(&mut content);
        Ok(file)
    }

    fn decrypt<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, String> {
        let (start, rest) = bytes
            .split_at_checked(HEADER_LEN)
            .ok_or("shorter than its header")?;
        let (magic, version) = start.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err("not an encrypted state file".to_owned());
        }
        if version != LAYOUT_VERSION.to_le_bytes() {
            return Err(format!("unsupported version, expected {LAYOUT_VERSION}"));
        }
        let (nonce, content) = rest
            .split_at_checked(NONCE_LEN)
            .ok_or("shorter than its header")?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| "no nonce")?;
        let mut content = Zeroizing::new(content.to_vec());
        let aad = Aad::from(&self.associated_data);
        let opened = self.key.open_in_place(nonce, aad, &mut content);
        let opened =
            opened.map_err(|_| "damaged, or encrypted with another key or for another node")?;
        // an error of the decoder may quote the content
        serde_json::from_slice(opened).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("foreign content at line {line} column {column}")
        })
    }
}

/// Counts bytes, up to the maximum.
struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        if self.0 > MAX_CONTENT_BYTES {
            let text = format!("content is larger than {MAX_CONTENT_BYTES} bytes");
            return Err(io::Error::other(text));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn header() -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    let (magic, version) = header.split_at_mut(MAGIC.len());
    magic.copy_from_slice(MAGIC);
    version.copy_from_slice(&LAYOUT_VERSION.to_le_bytes());
    header
}

fn key_name(name: &str) -> String {
    format!("{name}.key")
}

/// True for a temporary file or an unusable copy of the file `name` or its key.
fn is_remainder(found: &str, name: &str) -> bool {
    let key = key_name(name);
    [name, &key].iter().any(|name| {
        found == format!(".{name}.tmp") || found.starts_with(&format!("{name}.corrupt-"))
    })
}

fn unusable_key(path: PathBuf, error: &str) -> StoreError {
    StoreError::Key {
        path,
        error: error.to_owned(),
    }
}

/// Returns the key of a credential; `None` if there is no such file.
fn read_credential(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
    let Some(key) = read_bytes(path)? else {
        return Ok(None);
    };
    if key.len() != KEY_LEN {
        let error = format!("{} bytes, expected {KEY_LEN}", key.len());
        return Err(unusable_key(path.to_owned(), &error));
    }
    Ok(Some(key))
}

/// Returns the key on the disk; `None` if there is none. An unusable one is removed: it may be known
/// to others.
fn read_key(store: &Store, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
    let path = store.root().join(name);
    let Some(key) = read_bytes(&path)? else {
        return Ok(None);
    };
    let problem = match key_problem(store.root(), &path) {
        Ok(problem) => problem,
        Err(source) => return Err(StoreError::Read { path, source }),
    };
    let length = (key.len() != KEY_LEN).then(|| format!("{} bytes, expected {KEY_LEN}", key.len()));
    let Some(problem) = problem.or(length) else {
        return Ok(Some(key));
    };
    tracing::error!(
        file = %path.display(),
        error = problem,
        "key unusable, removed; what it encrypted is lost"
    );
    store.remove(name)?;
    Ok(None)
}

/// Returns why the file of a key is not safe.
fn key_problem(root: &Path, path: &Path) -> io::Result<Option<String>> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_file() {
        return Ok(Some("not a regular file".to_owned()));
    }
    if found.uid() != fs::metadata(root)?.uid() {
        return Ok(Some(format!("owned by user {}", found.uid())));
    }
    let mode = found.permissions().mode() & 0o777;
    Ok((mode & OTHERS != 0).then(|| format!("accessible to others, mode {mode:04o}")))
}

/// Reads a file that is at most a little longer than a key.
fn read_bytes(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(KEY_LEN + 1));
    let read = File::open(path).and_then(|file| {
        let limit = u64::try_from(KEY_LEN + 1).unwrap_or(u64::MAX);
        file.take(limit).read_to_end(&mut bytes)
    });
    match read {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StoreError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

fn create_key(store: &Store, name: &str) -> Result<Zeroizing<Vec<u8>>, StoreError> {
    let mut key = Zeroizing::new(vec![0; KEY_LEN]);
    aws_lc_rs::rand::fill(&mut key)
        .map_err(|_| unusable_key(store.root().join(name), "no random numbers"))?;
    // a remainder of an interrupted write could have another mode
    let _ = fs::remove_file(store.root().join(format!(".{name}.tmp")));
    store.save_foreign(name, &key)?;
    Ok(key)
}

#[cfg(test)]
mod tests;
