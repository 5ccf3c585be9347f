//! The wall clock of the simulated machine: it follows virtual time, and it can be set.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use windlass_actors::SimClock;
use windlass_types::{Clock, Timestamp};

/// A clock that somebody may set while everything runs.
#[derive(Debug)]
pub(super) struct NodeClock {
    time: SimClock,
    /// Seconds by which it is ahead.
    ahead: AtomicI64,
}

impl NodeClock {
    pub(super) fn following(time: SimClock) -> Self {
        Self {
            time,
            ahead: AtomicI64::new(0),
        }
    }

    pub(super) fn step(&self, seconds: i64) {
        self.ahead.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        let now = self.time.now();
        let ahead = self.ahead.load(Ordering::Relaxed);
        let by = Duration::from_secs(ahead.unsigned_abs());
        match ahead < 0 {
            true => now.checked_sub(by).unwrap_or(now),
            false => now.checked_add(by).unwrap_or(now),
        }
    }
}
