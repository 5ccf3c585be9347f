//! Moments by two clocks: the wall clock may be stepped, and time that passed by the other one has
//! passed all the same.

use std::time::Duration;

use windlass_types::{Timestamp, later};

/// Now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// By the wall clock.
    pub wall: Timestamp,
    /// By a clock that nobody sets, since any moment of this agent's life.
    pub steady: Duration,
}

/// When something is due: as soon as either clock says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    wall: Timestamp,
    steady: Duration,
}

impl Due {
    /// Due at a moment of the wall clock, as far away as it is now.
    pub(super) fn at(now: Moment, at: Timestamp) -> Self {
        let left = Duration::try_from(at.duration_since(now.wall)).unwrap_or_default();
        Self {
            wall: at,
            steady: now.steady.saturating_add(left),
        }
    }

    /// Due after a while.
    pub(super) fn after(now: Moment, delay: Duration) -> Self {
        Self::at(now, later(now.wall, delay))
    }

    /// Due later than this.
    pub(super) fn plus(self, delay: Duration) -> Self {
        Self {
            wall: later(self.wall, delay),
            steady: self.steady.saturating_add(delay),
        }
    }

    /// How long it is until then; zero if it is due.
    pub(super) fn left(self, now: Moment) -> Duration {
        let wall = Duration::try_from(self.wall.duration_since(now.wall)).unwrap_or_default();
        wall.min(self.steady.saturating_sub(now.steady))
    }

    pub(super) fn is_reached(self, now: Moment) -> bool {
        self.left(now).is_zero()
    }
}
