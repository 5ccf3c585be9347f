//! What can go wrong with a cgroup.

use std::io;

use windlass_types::Retry;

/// A cgroup that could not be made, set or removed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The kernel refused.
    #[error("cannot {action} cgroup {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what: hierarchy, path and perhaps a file.
        path: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Processes are still in the cgroup; they were sent SIGKILL.
    #[error("cgroup {path} still has processes")]
    Busy {
        /// Which.
        path: String,
    },
}

impl CgroupError {
    /// What trying again would bring.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Io { .. } => Retry::Later,
            Self::Busy { .. } => Retry::Soon,
        }
    }
}
