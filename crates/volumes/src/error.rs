//! What setting up, tearing down and removing can fail with.

use std::io;
use std::path::{Path, PathBuf};

use windlass_types::{ExpansionError, Retry};

use crate::io_queue::IoQueueError;

/// A volume that could not be set up or torn down.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// Windlass cannot make this type of volume.
    #[error("volume {volume:?}: volume type {kind} is not supported by this agent yet")]
    Unsupported {
        /// Name in the pod spec.
        volume: String,
        /// Field name of the type.
        kind: String,
    },
    /// The volume's definition makes no sense.
    #[error("volume {volume:?}: {message}")]
    Invalid {
        /// Name in the pod spec.
        volume: String,
        /// What is wrong.
        message: String,
    },
    /// What is at a host path is not what the volume asks for.
    #[error("hostPath type check failed: {} {wanted}", path.display())]
    HostPathType {
        /// The path on the node.
        path: PathBuf,
        /// `is not a directory`, in upstream's words.
        wanted: &'static str,
    },
    /// Nobody resolved what the volume shows.
    #[error(
        "volume {volume:?}: nobody resolved the content of this {kind} volume, because the agent \
         is not connected to an API server"
    )]
    NoContent {
        /// Name in the pod spec.
        volume: String,
        /// Field name of the type.
        kind: String,
    },
    /// What the volume is to show cannot be had, and it shows nothing yet.
    #[error("{0}")]
    Withheld(String),
    /// Content that was replaced cannot be removed.
    #[error("cannot remove former content: {source}")]
    Leftover {
        /// Which, and why.
        #[source]
        source: RemoveError,
    },
    /// The file system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// What a volume is made of is not as it has to be, or a program of the node failed; in
    /// upstream's words.
    #[error("{message}")]
    Failed {
        /// Upstream's name of what failed, where it is not that of the whole operation, such as
        /// `MountVolume.NewMounter initialization`.
        step: Option<&'static str>,
        /// What is wrong.
        message: String,
    },
    /// The work was given up before its end.
    #[error("work on {} was stopped", path.display())]
    Stopped {
        /// On what.
        path: PathBuf,
    },
    /// A CSI driver, or what it needs, failed.
    #[error(transparent)]
    Csi(#[from] windlass_csi::MountError),
    /// The file system does not answer.
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

    /// Upstream's name of the step that failed, if it is another than `MountVolume.SetUp` and the
    /// like. With ` failed for volume "x" : ` after it, it begins the message that users see.
    pub fn step(&self) -> Option<&'static str> {
        match self {
            Self::Failed { step, .. } => *step,
            _ => None,
        }
    }

    /// Which failure this is if a volume was to be grown.
    pub fn expansion_error(&self) -> ExpansionError {
        match self {
            Self::Csi(error) => error.expansion_error(),
            Self::IoQueue(_) => ExpansionError::Uncertain,
            _ => ExpansionError::Failed,
        }
    }

    /// What trying again would bring. A host path may appear without the pod changing.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unsupported { .. } | Self::Invalid { .. } => Retry::Never,
            Self::HostPathType { .. }
            | Self::NoContent { .. }
            | Self::Withheld(_)
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
    /// A file system is mounted in the tree; what is below it is not touched.
    #[error("{} is a mount point", path.display())]
    Mounted {
        /// Where.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("cannot remove {}: {source}", path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl RemoveError {
    /// What trying again would bring.
    pub fn retry(&self) -> Retry {
        Retry::Later
    }
}
