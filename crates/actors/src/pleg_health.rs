//! Time of the last relist. The PLEG writes it; ages use the monotonic clock.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_pod_lifecycle::pleg::RelistAge;

/// Age of the last successful relist.
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
    /// Records a successful relist. Only for the PLEG.
    pub fn record_relist(&self) {
        *self.last.lock() = Some(Instant::now());
    }

    /// Returns the age of the last relist; before the first, the time since the agent start.
    pub fn age(&self) -> RelistAge {
        let last = *self.last.lock();
        match last {
            Some(last) => RelistAge::Last(last.elapsed()),
            None => RelistAge::Never(self.began.elapsed()),
        }
    }
}
