//! Due times on both clocks: a step of the wall clock does not delay what the monotonic clock
//! reached.

use std::time::Duration;

use windlass_types::{ClockReading, Timestamp, later};

/// Due time; reached as soon as either clock reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    wall: Timestamp,
    monotonic: Duration,
}

impl Due {
    /// Creates a due time from a wall clock time.
    pub(super) fn at(now: ClockReading, at: Timestamp) -> Self {
        let left = Duration::try_from(at.duration_since(now.wall)).unwrap_or_default();
        Self {
            wall: at,
            monotonic: now.monotonic.saturating_add(left),
        }
    }

    /// Creates a due time from a delay.
    pub(super) fn after(now: ClockReading, delay: Duration) -> Self {
        Self::at(now, later(now.wall, delay))
    }

    /// Returns this due time plus a delay.
    pub(super) fn plus(self, delay: Duration) -> Self {
        Self {
            wall: later(self.wall, delay),
            monotonic: self.monotonic.saturating_add(delay),
        }
    }

    /// Returns the remaining time; zero if reached.
    pub(super) fn left(self, now: ClockReading) -> Duration {
        let wall = Duration::try_from(self.wall.duration_since(now.wall)).unwrap_or_default();
        wall.min(self.monotonic.saturating_sub(now.monotonic))
    }

    pub(super) fn is_reached(self, now: ClockReading) -> bool {
        self.left(now).is_zero()
    }
}
