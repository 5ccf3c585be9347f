//! A state file in a format of upstream: text that another agent reads, too.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::disk::write_atomically;
use crate::error::StoreError;
use crate::store::{MAX_FILE_BYTES, free_copy};

/// A file with a fixed path and atomic writes. It has one writer.
#[derive(Clone, Debug)]
pub struct TextFile {
    path: PathBuf,
}

impl TextFile {
    /// The file at a path.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the content; `None` if the file is missing. What is not UTF-8 is replaced. Blocks on
    /// the disk.
    ///
    /// # Errors
    /// The file cannot be read, or is larger than 64 MiB.
    pub fn load(&self) -> Result<Option<String>, StoreError> {
        let mut bytes = Vec::new();
        let read = File::open(&self.path).and_then(|file| {
            let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)? as u64;
            match read > MAX_FILE_BYTES {
                true => Err(io::Error::from(io::ErrorKind::FileTooLarge)),
                false => Ok(()),
            }
        });
        match read {
            Ok(()) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StoreError::Read {
                path: self.path.clone(),
                source,
            }),
        }
    }

    /// Replaces the content durably; creates the directory. Blocks on the disk.
    ///
    /// # Errors
    /// The write failed.
    pub fn save(&self, content: &str) -> Result<(), StoreError> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let temporary = self.sibling(".tmp");
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(directory);
        let written = made
            .and_then(|()| write_atomically(directory, &temporary, &self.path, content.as_bytes()));
        written.map_err(|source| {
            // a failed write must not keep a full disk full
            let _ = fs::remove_file(&temporary);
            StoreError::Write {
                path: self.path.clone(),
                source,
            }
        })
    }

    /// Renames an unusable file, and logs why.
    pub fn set_aside(&self, why: &str) {
        let (file, name) = (self.path.display(), self.name());
        let aside = free_copy(
            self.path.parent().unwrap_or(Path::new("/")),
            &name,
            Path::exists,
        );
        match fs::rename(&self.path, &aside) {
            Ok(()) => {
                let moved_to = aside.display();
                tracing::error!(%file, %moved_to, error = why, "state file unusable, moved aside");
            }
            Err(error) => tracing::error!(%file, why, %error, "moving state file aside failed"),
        }
    }

    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// A hidden file beside this one.
    fn sibling(&self, extension: &str) -> PathBuf {
        self.path
            .with_file_name(format!(".{}{extension}", self.name()))
    }
}
