//! The wall clock of the simulated node: virtual time with an offset.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use windlass_mailboxes::SimClock;
use windlass_types::{Clock, Timestamp};

/// A clock that can be stepped.
#[derive(Debug)]
pub(super) struct NodeClock {
    time: SimClock,
    /// Offset in seconds.
    offset: AtomicI64,
}

impl NodeClock {
    pub(super) fn following(time: SimClock) -> Self {
        Self {
            time,
            offset: AtomicI64::new(0),
        }
    }

    pub(super) fn step(&self, seconds: i64) {
        self.offset.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        let now = self.time.now();
        let offset = self.offset.load(Ordering::Relaxed);
        let by = Duration::from_secs(offset.unsigned_abs());
        match offset < 0 {
            true => now.checked_sub(by).unwrap_or(now),
            false => now.checked_add(by).unwrap_or(now),
        }
    }
}
