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
            Self::Io { .. } => Retry::Later,
            Self::Busy { .. } => Retry::Soon,
        }
    }
}
