//! Brings what the board says to the API server: statuses, finished deletions, mirror pods.
//!
//! What is due for a pod is decided in `core::status_sync` and `core::mirror`, from the board's
//! entry and the object as the watch and the server's own answers last told it; there is no read
//! before a write. `book` knows which pod hears what and whose request goes next, `io` sends
//! it, and the [`StatusManager`] joins them. `starts` measures how long pods take to start. Nothing here is waited for by a pod.

mod actor;
mod book;
mod io;
mod starts;
#[cfg(test)]
mod tests;

pub use actor::{StatusManager, StatusManagerDeps};
