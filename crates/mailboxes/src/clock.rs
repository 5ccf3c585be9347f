//! The wall clock, in production and in simulations.

use tokio::time::Instant;
use windlass_types::{Clock, Timestamp, later};

/// The wall clock of the node.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the only place that reads the clock"
    )]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A wall clock that follows the tokio clock, which may be paused, from a fixed start.
#[derive(Clone, Copy, Debug)]
pub struct SimClock {
    base: Timestamp,
    start: Instant,
}

impl SimClock {
    /// Creates a clock that reads `base` now.
    pub fn starting_at(base: Timestamp) -> Self {
        Self {
            base,
            start: Instant::now(),
        }
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        later(self.base, self.start.elapsed())
    }
}
