//! What a state file can fail with.

use std::io;
use std::path::PathBuf;

use windlass_types::Retry;

/// A state file that could not be read or written. Unusable content is not an error, see the
/// crate's documentation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The state folder cannot be made or opened.
    #[error("cannot open state folder {path}")]
    Open {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A name that would leave the folder or collide with the store's own files.
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
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The disk refused a write.
    #[error("cannot write state file {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The disk refused a read.
    #[error("cannot read state file {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The thread that wrote was lost.
    #[error("the writing thread ended before the state file was written")]
    Aborted,
}

impl StoreError {
    /// What trying again would bring.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Open { .. } | Self::Write { .. } | Self::Read { .. } | Self::Aborted => {
                Retry::Later
            }
            Self::Name { .. } | Self::Encode { .. } => Retry::Never,
        }
    }
}
