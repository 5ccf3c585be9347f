//! Reads the manifest path. Blocks; runs on the tokio blocking pool, one pass at a time.

use std::collections::BTreeMap;
use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use windlass_manifests::manifest::{
    MAX_MANIFEST_BYTES, ManifestError, Origin, Problem, check_size,
};
use windlass_manifests::static_pod::{self, LoadedManifest};
use windlass_units::hash::fnv1a_128;

/// Result of a pass.
#[derive(Debug)]
pub(crate) enum Scan {
    /// The path does not exist.
    Missing,
    /// The path exists and could not be read as a whole.
    Failed(String),
    /// The manifests, by path.
    Files(BTreeMap<PathBuf, FileScan>),
}

/// Result of a pass for one manifest.
#[derive(Debug)]
pub(crate) enum FileScan {
    /// The same as in the last pass.
    Unchanged,
    /// New or changed; the outcome and its fingerprint.
    Changed(u128, Box<Result<LoadedManifest, ManifestError>>),
}

/// Reads everything below `path`; content with a fingerprint in `known` is not parsed again.
pub(crate) fn scan(path: &Path, node_name: &str, known: &BTreeMap<PathBuf, u128>) -> Scan {
    let failed = |error: std::io::Error| Scan::Failed(error.to_string());
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Scan::Missing,
        Err(error) => return failed(error),
    };
    let mut files = BTreeMap::new();
    if metadata.is_file() {
        files.insert(path.to_owned(), load(path, node_name, known));
    } else if metadata.is_dir() {
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Scan::Missing,
            Err(error) => return failed(error),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return failed(error),
            };
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let manifest = entry.path();
            // skip entries that vanished since the listing, but not dangling links
            if fs::symlink_metadata(&manifest).is_ok() {
                let file = load(&manifest, node_name, known);
                files.insert(manifest, file);
            }
        }
    } else {
        return Scan::Failed(format!("is {}", kind_of(metadata.file_type())));
    }
    Scan::Files(files)
}

fn load(path: &Path, node_name: &str, known: &BTreeMap<PathBuf, u128>) -> FileScan {
    let origin = Origin::File(path.display().to_string());
    let content = read(path, &origin);
    let fingerprint = match &content {
        Ok(bytes) => fnv1a_128(bytes),
        Err(error) => fnv1a_128(format!("error:{error}").as_bytes()),
    };
    if known.get(path) == Some(&fingerprint) {
        return FileScan::Unchanged;
    }
    let loaded = content.and_then(|bytes| static_pod::load(&bytes, &origin, node_name));
    FileScan::Changed(fingerprint, Box::new(loaded))
}

/// Reads a regular file within the size limit.
fn read(path: &Path, origin: &Origin) -> Result<Vec<u8>, ManifestError> {
    let unreadable = |error: std::io::Error| {
        let target = fs::read_link(path).ok().filter(|_| {
            // only a link whose target is missing is dangling
            error.kind() == ErrorKind::NotFound
        });
        let why = match target {
            Some(target) => format!("it links to {}, which does not exist", target.display()),
            None => error.to_string(),
        };
        ManifestError::new(origin, Problem::Unreadable(why))
    };
    // checked before it is opened: opening a device can have side effects
    accept(&fs::metadata(path).map_err(unreadable)?, origin)?;
    let file = open(path).map_err(unreadable)?;
    // checked again: the opened file may be another one
    accept(&file.metadata().map_err(unreadable)?, origin)?;
    let mut bytes = Vec::new();
    file.take(MAX_MANIFEST_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    check_size(bytes.len() as u64, origin)?;
    Ok(bytes)
}

/// Opens a file without blocking on a pipe without a writer.
fn open(path: &Path) -> std::io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.cast_signed())
        .open(path)
}

fn accept(metadata: &Metadata, origin: &Origin) -> Result<(), ManifestError> {
    if !metadata.is_file() {
        let kind = kind_of(metadata.file_type());
        return Err(ManifestError::new(origin, Problem::NotAFile(kind)));
    }
    check_size(metadata.len(), origin)
}

fn kind_of(file_type: FileType) -> &'static str {
    if file_type.is_dir() {
        "a directory"
    } else if file_type.is_socket() {
        "a socket"
    } else if file_type.is_fifo() {
        "a pipe"
    } else {
        "a device"
    }
}
