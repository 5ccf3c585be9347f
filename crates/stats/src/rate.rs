//! How fast a counter grows, from one look to the next.

use std::time::Duration;

use windlass_types::Timestamp;

/// Looks that are closer together than this are no basis for a rate: what the kernel counts in
/// ticks would jump.
const SHORTEST: Duration = Duration::from_secs(1);
/// A look longer ago says nothing of now (upstream keeps what it read for two minutes).
const LONGEST: Duration = Duration::from_secs(120);

/// The last looks at one counter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    older: Option<CounterSample>,
    newer: Option<CounterSample>,
}

#[derive(Clone, Copy, Debug)]
struct CounterSample {
    at: Timestamp,
    value: u64,
}

impl Rate {
    /// Takes a look at the counter; what it grows by in each second, since the youngest look that
    /// is old enough. `None` without one, and when the counter went back.
    pub(crate) fn look(&mut self, at: Timestamp, value: u64) -> Option<u64> {
        let now = CounterSample { at, value };
        let is_basis = |look: &CounterSample| {
            let age = now.since(look);
            (SHORTEST..=LONGEST).contains(&age)
        };
        match self.newer.filter(is_basis) {
            Some(newer) => {
                (self.older, self.newer) = (Some(newer), Some(now));
                now.rate_since(&newer)
            }
            None => {
                let older = self.older.filter(is_basis);
                let too_soon = self
                    .newer
                    .is_some_and(|newer| newer.at <= at && now.since(&newer) < SHORTEST);
                // a clock that was set back, or a pause: begin anew
                if !too_soon {
                    (self.older, self.newer) = (None, Some(now));
                }
                older.and_then(|older| now.rate_since(&older))
            }
        }
    }
}

impl CounterSample {
    /// Zero if the other look is the later one.
    fn since(&self, other: &Self) -> Duration {
        let passed = self.at.duration_since(other.at);
        Duration::try_from(passed).unwrap_or_default()
    }

    fn rate_since(&self, other: &Self) -> Option<u64> {
        let grown = self.value.checked_sub(other.value)?;
        let passed = self.since(other).as_nanos().max(1);
        u64::try_from(u128::from(grown) * 1_000_000_000 / passed).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_from_the_youngest_look_that_is_old_enough() {
        #[track_caller]
        fn check(looks: &[(i64, u64)], expected: &[Option<u64>]) {
            let mut rate = Rate::default();
            let told: Vec<Option<u64>> = looks
                .iter()
                .map(|(millis, value)| {
                    let at = Timestamp::from_millisecond(*millis).expect("a time");
                    rate.look(at, *value)
                })
                .collect();
            assert_eq!(told, expected);
        }
        check(&[(0, 5)], &[None]);
        check(&[(0, 0), (1000, 7)], &[None, Some(7)]);
        check(&[(0, 0), (2000, 7)], &[None, Some(3)]);
        // two who ask at nearly the same time hear nearly the same
        check(
            &[(0, 0), (10_000, 100), (10_001, 100), (10_999, 110)],
            &[None, Some(10), Some(9), Some(10)],
        );
        // looks in quick succession: the first of them stays the basis
        check(
            &[(0, 0), (500, 5), (999, 10), (1500, 15), (2600, 26)],
            &[None, None, None, Some(10), Some(10)],
        );
        // too long ago
        check(
            &[(0, 0), (120_000, 120), (240_001, 240), (250_001, 250)],
            &[None, Some(1), None, Some(1)],
        );
        // a cgroup that was made anew under the same name
        check(&[(0, 50), (2000, 7), (4000, 9)], &[None, None, Some(1)]);
        // a clock that is set back
        check(&[(9000, 0), (2000, 9), (3000, 10)], &[None, None, Some(1)]);
        check(&[(0, 0), (1000, u64::MAX)], &[None, Some(u64::MAX)]);
    }
}
