//! Static pods from a manifest file or a directory of them (`staticPodPath`).
//!
//! The directory is read at once, on every inotify event, and every `fileCheckFrequency` in
//! case an event was missed. Names that begin with a dot are ignored; a path that does not
//! exist is an empty set; a manifest that cannot be used is reported once and takes nothing else
//! down. A manifest that turned bad keeps its pods running for one `fileCheckFrequency`: a write
//! in progress looks exactly like this. After that they are removed, as upstream's list does.

mod actor;
pub(crate) mod io;
pub(crate) mod state;
mod watch;

#[cfg(test)]
mod tests;

pub use actor::{FileSource, FileSourceConfig};
