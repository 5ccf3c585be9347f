//! Rate of a counter between samples.

use std::time::Duration;

use windlass_types::Timestamp;

/// Minimum window of a rate, because the kernel counts in ticks.
const MIN_WINDOW: Duration = Duration::from_secs(1);
/// Interval between the samples that are kept, so that requests of several clients do not shorten the
/// window; as cAdvisor's.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum age of the older sample, as upstream.
const MAX_SAMPLE_AGE: Duration = Duration::from_secs(120);

/// The last samples of one counter, at least [`SAMPLE_INTERVAL`] apart.
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
    /// Adds a sample; returns the rate per second since the youngest sample that is
    /// [`SAMPLE_INTERVAL`] old, or, before there is one, since the first. `None` without one that is
    /// old enough, and after a reset of the counter.
    pub(crate) fn add_sample(&mut self, at: Timestamp, value: u64) -> Option<u64> {
        let now = CounterSample { at, value };
        let follows = |sample: &CounterSample| {
            sample.at <= at && sample.value <= value && now.since(sample) <= MAX_SAMPLE_AGE
        };
        // start over after a backward step of the clock, a reset or a gap
        let Some(newer) = self.newer.filter(follows) else {
            (self.older, self.newer) = (None, Some(now));
            return None;
        };
        if now.since(&newer) >= SAMPLE_INTERVAL {
            (self.older, self.newer) = (Some(newer), Some(now));
            return now.rate_since(&newer);
        }
        let base = self.older.filter(follows).unwrap_or(newer);
        let is_old_enough = now.since(&base) >= MIN_WINDOW;
        is_old_enough.then(|| now.rate_since(&base))?
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
    fn rate_has_a_window_of_ten_seconds() {
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
        // another client, just before each request of the first
        check(
            &[
                (0, 0),
                (10_000, 100),
                (15_000, 100),
                (16_000, 100),
                (20_000, 200),
            ],
            &[None, Some(10), Some(6), Some(6), Some(10)],
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
