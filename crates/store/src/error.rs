//! Errors of state files.

use std::io;
use std::path::PathBuf;

use windlass_types::Retry;

/// Error of reading or writing a state file. Unusable content is not an error.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The state directory cannot be created or opened.
    #[error("cannot open state directory {path}")]
    Open {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The name is outside the directory or reserved.
    #[error("{name:?} is not a state file name")]
    Name {
        /// The name.
        name: String,
    },
    /// The value has no JSON form.
    #[error("cannot encode state file {name}")]
    Encode {
        /// The file.
        name: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// A write failed.
    #[error("cannot write state file {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A read failed.
    #[error("cannot read state file {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// An encryption key is unusable.
    #[error("unusable key {path}: {error}")]
    Key {
        /// Its file.
        path: PathBuf,
        /// The problem.
        error: String,
    },
    /// The writing thread ended early.
    #[error("the writing thread ended before the state file was written")]
    Aborted,
}

impl StoreError {
    /// Returns the retry class.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Open { .. } | Self::Write { .. } | Self::Read { .. } | Self::Aborted => {
                Retry::Later
            }
            Self::Name { .. } | Self::Encode { .. } | Self::Key { .. } => Retry::Never,
        }
    }
}
