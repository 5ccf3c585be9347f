//! That an API server has no streaming lists: found by one set, used by all sets of a client.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use super::plan::REPROBE;

/// Until when the sets of a client are read with lists. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListsOnly(Arc<Mutex<Option<Instant>>>);

impl ListsOnly {
    /// When a streaming list is tried again; `None` if it may be tried now.
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.filter(|at| *at > now)
    }

    /// The server refused a streaming list. True if that was not known yet.
    pub(super) fn found(&self, now: Instant) -> bool {
        let mut until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = until.is_some_and(|at| at > now);
        *until = Some(now + REPROBE);
        !known
    }
}
