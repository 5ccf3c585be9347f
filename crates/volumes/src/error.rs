//! Errors of setting up, tearing down and removing volumes.

use std::io;
use std::path::{Path, PathBuf};

use windlass_types::{ExpansionError, Retry};

use crate::io_queue::IoQueueError;

/// A volume that could not be set up or torn down.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The volume type is not supported.
    #[error("volume {volume:?}: volume type {kind} is not supported by this agent yet")]
    Unsupported {
        /// Name in the pod spec.
        volume: String,
        /// Field name of the type.
        kind: String,
    },
    /// The volume definition is invalid.
    #[error("volume {volume:?}: {message}")]
    Invalid {
        /// Name in the pod spec.
        volume: String,
        /// Cause.
        message: String,
    },
    /// The host path does not have the required type.
    #[error("hostPath type check failed: {} {wanted}", path.display())]
    HostPathType {
        /// The path on the node.
        path: PathBuf,
        /// Upstream's text, such as `is not a directory`.
        wanted: &'static str,
    },
    /// The content needs an API server.
    #[error("volume {volume:?}: {kind} volumes require an API server connection (standalone mode)")]
    RequiresApiServer {
        /// Name in the pod spec.
        volume: String,
        /// Field name of the type.
        kind: String,
    },
    /// The payload is unavailable and the volume has no previous one.
    #[error("{0}")]
    PayloadUnavailable(String),
    /// Obsolete content cannot be removed.
    #[error("cannot remove obsolete content: {source}")]
    Leftover {
        /// Path and cause.
        #[source]
        source: RemoveError,
    },
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// Its path.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// Another failure, with upstream's text.
    #[error("{message}")]
    Failed {
        /// Upstream's name of the failed step, if it differs from the whole operation, such as
        /// `MountVolume.NewMounter initialization`.
        step: Option<&'static str>,
        /// Cause.
        message: String,
    },
    /// The operation was cancelled.
    #[error("operation on {} was cancelled", path.display())]
    Stopped {
        /// Its path.
        path: PathBuf,
    },
    /// A CSI operation failed.
    #[error(transparent)]
    Csi(#[from] windlass_csi::MountError),
    /// The I/O queue timed out or is saturated.
    #[error(transparent)]
    IoQueue(#[from] IoQueueError),
}

impl VolumeError {
    pub(crate) fn io(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source: source.into(),
        }
    }

    pub(crate) fn failed(message: String) -> Self {
        Self::Failed {
            step: None,
            message,
        }
    }

    /// Upstream's name of the failed step, if it is not the whole operation such as
    /// `MountVolume.SetUp`. It begins the event text: `<step> failed for volume "x" : …`.
    pub fn step(&self) -> Option<&'static str> {
        match self {
            Self::Failed { step, .. } => *step,
            _ => None,
        }
    }

    /// Class of this error for volume expansion.
    pub fn expansion_error(&self) -> ExpansionError {
        match self {
            Self::Csi(error) => error.expansion_error(),
            Self::IoQueue(_) => ExpansionError::Uncertain,
            _ => ExpansionError::Failed,
        }
    }

    /// Retry class of this error. A host path may appear without a pod update.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unsupported { .. } | Self::Invalid { .. } => Retry::Never,
            Self::HostPathType { .. }
            | Self::RequiresApiServer { .. }
            | Self::PayloadUnavailable(_)
            | Self::Leftover { .. }
            | Self::Failed { .. }
            | Self::Stopped { .. }
            | Self::Io { .. } => Retry::Later,
            Self::Csi(error) => error.retry(),
            Self::IoQueue(error) => error.retry(),
        }
    }
}

/// A directory tree that could not be removed completely.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// A mount is in the tree; its content is not touched.
    #[error("{} is a mount point", path.display())]
    Mounted {
        /// The mount point.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error("cannot remove {}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
}

impl RemoveError {
    /// Retry class of this error.
    pub fn retry(&self) -> Retry {
        Retry::Later
    }
}
