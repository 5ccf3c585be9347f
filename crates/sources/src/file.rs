//! Static pods from a manifest file or a directory of them (`staticPodPath`).
//!
//! The directory is read at start, on every inotify event, and every `fileCheckFrequency`. Names
//! that begin with a dot are ignored; a missing path is an empty set; an invalid manifest is
//! reported once. An invalid manifest keeps its pods for one `fileCheckFrequency`, because a write
//! may be in progress. After that its pods are removed, as upstream.

mod actor;
pub(crate) mod io;
pub(crate) mod state;
mod watch;

#[cfg(test)]
mod tests;

pub use actor::{FileSource, FileSourceConfig};
