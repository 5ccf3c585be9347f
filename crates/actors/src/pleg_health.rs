//! When the runtime was last listed, readable from anywhere.
//!
//! One writer, the PLEG. Ages are measured on the clock that nobody sets: a step of the wall
//! clock makes no listing old.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;
use windlass_pod_lifecycle::pleg::ListingAge;

/// The last successful listing of the runtime.
#[derive(Clone, Debug)]
pub struct PlegHealth {
    began: Instant,
    last: Arc<Mutex<Option<Instant>>>,
}

impl Default for PlegHealth {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            last: Arc::default(),
        }
    }
}

impl PlegHealth {
    /// The runtime was listed just now. Only for the PLEG.
    pub fn record_relist(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// How long ago the last listing was; before the first, how long it has been awaited.
    pub fn age(&self) -> ListingAge {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match last {
            Some(last) => ListingAge::Last(last.elapsed()),
            None => ListingAge::Never(self.began.elapsed()),
        }
    }
}
