//! Whether the API server lacks streaming lists, shared by all reflectors of a client.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::plan::REPROBE_INTERVAL;

/// Until when lists are used. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListsOnly(Arc<Mutex<Option<Instant>>>);

impl ListsOnly {
    /// Returns when a streaming list is tried again; `None` for now.
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        let until = *self.0.lock();
        until.filter(|at| *at > now)
    }

    /// Records that the server rejected a streaming list. Returns true if that is new.
    pub(super) fn found(&self, now: Instant) -> bool {
        let mut until = self.0.lock();
        let known = until.is_some_and(|at| at > now);
        *until = Some(now + REPROBE_INTERVAL);
        !known
    }
}
