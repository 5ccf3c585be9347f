//! Rate of a counter between samples.

use std::time::Duration;

use windlass_types::Timestamp;

/// Minimum interval between the samples of a rate, because the kernel counts in ticks.
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum age of the older sample, as upstream.
const MAX_SAMPLE_AGE: Duration = Duration::from_secs(120);

/// The last samples of one counter.
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
    /// Adds a sample; returns the rate per second since the youngest sample that is old enough.
    /// `None` without one, and after a reset of the counter.
    pub(crate) fn add_sample(&mut self, at: Timestamp, value: u64) -> Option<u64> {
        let now = CounterSample { at, value };
        let is_base = |sample: &CounterSample| {
            let age = now.since(sample);
            (MIN_SAMPLE_INTERVAL..=MAX_SAMPLE_AGE).contains(&age)
        };
        match self.newer.filter(is_base) {
            Some(newer) => {
                (self.older, self.newer) = (Some(newer), Some(now));
                now.rate_since(&newer)
            }
            None => {
                let older = self.older.filter(is_base);
                let too_soon = self
                    .newer
                    .is_some_and(|newer| newer.at <= at && now.since(&newer) < MIN_SAMPLE_INTERVAL);
                // start over after a backward step of the clock or a gap
                if !too_soon {
                    (self.older, self.newer) = (None, Some(now));
                }
                older.and_then(|older| now.rate_since(&older))
            }
        }
    }
}

impl CounterSample {
    /// Returns the time since `other`; zero if that is later.
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
    fn rate_uses_youngest_sample_that_is_old_enough() {
        #[track_caller]
        fn check(samples: &[(i64, u64)], expected: &[Option<u64>]) {
            let mut rate = Rate::default();
            let rates: Vec<Option<u64>> = samples
                .iter()
                .map(|(millis, value)| {
                    let at = Timestamp::from_millisecond(*millis).expect("a time");
                    rate.add_sample(at, *value)
                })
                .collect();
            assert_eq!(rates, expected);
        }
        check(&[(0, 5)], &[None]);
        check(&[(0, 0), (1000, 7)], &[None, Some(7)]);
        check(&[(0, 0), (2000, 7)], &[None, Some(3)]);
        // nearly simultaneous samples have nearly the same rate
        check(
            &[(0, 0), (10_000, 100), (10_001, 100), (10_999, 110)],
            &[None, Some(10), Some(9), Some(10)],
        );
        // the first of several close samples stays the base
        check(
            &[(0, 0), (500, 5), (999, 10), (1500, 15), (2600, 26)],
            &[None, None, None, Some(10), Some(10)],
        );
        // the older sample is too old
        check(
            &[(0, 0), (120_000, 120), (240_001, 240), (250_001, 250)],
            &[None, Some(1), None, Some(1)],
        );
        // a recreated cgroup with the same name
        check(&[(0, 50), (2000, 7), (4000, 9)], &[None, None, Some(1)]);
        // a backward step of the clock
        check(&[(9000, 0), (2000, 9), (3000, 10)], &[None, None, Some(1)]);
        check(&[(0, 0), (1000, u64::MAX)], &[None, Some(u64::MAX)]);
    }
}
