//! Cgroup errors.

use std::io;

use windlass_types::Retry;

/// A cgroup could not be created, written or removed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The kernel rejected the operation.
    #[error("cannot {action} cgroup {path}: {source}")]
    Io {
        /// Failed action.
        action: &'static str,
        /// Hierarchy, path and possibly a file.
        path: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The cgroup does not exist, or lacks controllers.
    #[error("cgroup {path} does not exist or lacks controllers: {controllers}")]
    Missing {
        /// Path.
        path: String,
        /// Names of the controllers.
        controllers: String,
    },
    /// Nothing is reserved for the cgroup.
    #[error("cgroup {path} is not configured: no resources are reserved")]
    Unset {
        /// Path.
        path: String,
    },
    /// Processes are still in the cgroup; they were sent SIGKILL.
    #[error("cgroup {path} still has processes")]
    Busy {
        /// Hierarchy and path.
        path: String,
    },
}

impl CgroupError {
    /// Retry class.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Io { .. } | Self::Missing { .. } | Self::Unset { .. } => Retry::Later,
            Self::Busy { .. } => Retry::Soon,
        }
    }
}
