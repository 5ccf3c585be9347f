//! `hostPath`: the type check and the two types that create the path.

use std::fs::{self, DirBuilder, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use windlass_types::corev1::HostPathVolumeSource;

use crate::error::VolumeError;

/// Checks the type of the path and creates it for the `…OrCreate` types.
///
/// Links are followed: the path comes from the pod spec, not from a container. An empty type is not
/// checked; the runtime then creates a missing directory, as under the Go kubelet.
pub fn check_host_path(volume: &str, source: &HostPathVolumeSource) -> Result<(), VolumeError> {
    let path = Path::new(&source.path);
    if !path.is_absolute() || path.components().any(|c| c.as_os_str() == "..") {
        return Err(VolumeError::Invalid {
            volume: volume.to_owned(),
            message: format!(
                "host path {:?} must be absolute and without '..'",
                source.path
            ),
        });
    }
    let kind = source.type_.as_deref().unwrap_or_default();
    if kind.is_empty() {
        return Ok(());
    }
    let found = file_type(path)?;
    let is = |wanted: fn(&FileType) -> bool| found.as_ref().is_some_and(wanted);
    let (ok, wanted) = match kind {
        "DirectoryOrCreate" if found.is_none() => return create_directory(path),
        "FileOrCreate" if found.is_none() => return create_file(path),
        "DirectoryOrCreate" | "Directory" => (is(FileType::is_dir), "is not a directory"),
        "FileOrCreate" | "File" => (is(FileType::is_file), "is not a file"),
        "Socket" => (is(FileType::is_socket), "is not a socket file"),
        "CharDevice" => (is(FileType::is_char_device), "is not a character device"),
        "BlockDevice" => (is(FileType::is_block_device), "is not a block device"),
        other => {
            return Err(VolumeError::Invalid {
                volume: volume.to_owned(),
                message: format!("{other:?} is an invalid hostPath type"),
            });
        }
    };
    if ok {
        return Ok(());
    }
    Err(VolumeError::HostPathType {
        path: path.to_owned(),
        wanted,
    })
}

/// File type of the path; `None` if it is missing.
fn file_type(path: &Path) -> Result<Option<FileType>, VolumeError> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata.file_type())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(VolumeError::io("inspect", path, error)),
    }
}

fn create_directory(path: &Path) -> Result<(), VolumeError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
        .map_err(|error| VolumeError::io("create directory", path, error))
}

/// The parent is not created, as upstream documents.
fn create_file(path: &Path) -> Result<(), VolumeError> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o644)
        .open(path)
        .map(drop)
        .map_err(|error| VolumeError::io("create file", path, error))
}
