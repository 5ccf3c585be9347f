//! A token bucket without a clock of its own.

use std::time::Duration;

/// A rate limit: one token per interval is earned, and at most a burst of them is kept.
///
/// `now` is the time of any clock, since any origin. A clock that is set back takes no token away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    burst: u32,
    interval: Duration,
    /// Earned time; a token costs an interval.
    credit: Duration,
    counted_at: Duration,
}

impl TokenBucket {
    /// A full bucket. A `burst` of 0 counts as 1.
    pub fn new(burst: u32, interval: Duration) -> Self {
        let burst = burst.max(1);
        Self {
            burst,
            interval,
            credit: interval.saturating_mul(burst),
            counted_at: Duration::ZERO,
        }
    }

    /// Takes a token; false if none is available.
    pub fn try_take(&mut self, now: Duration) -> bool {
        let credit = self.credit(now);
        let left = credit.checked_sub(self.interval);
        self.credit = left.unwrap_or(credit);
        self.counted_at = now;
        left.is_some()
    }

    /// Returns the time until a token is available.
    pub fn wait(&self, now: Duration) -> Duration {
        self.interval.saturating_sub(self.credit(now))
    }

    fn credit(&self, now: Duration) -> Duration {
        let earned = now.saturating_sub(self.counted_at);
        let max = self.interval.saturating_mul(self.burst);
        self.credit.saturating_add(earned).min(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes at these milliseconds from a bucket with an interval of 100 ms. Expects for each `+`, or
    /// the wait in milliseconds.
    fn check(burst: u32, takes: &[u64], expected: &str) {
        let mut bucket = TokenBucket::new(burst, Duration::from_millis(100));
        let line: Vec<String> = takes
            .iter()
            .map(|at| {
                let now = Duration::from_millis(*at);
                let wait = bucket.wait(now).as_millis();
                match bucket.try_take(now) {
                    true => "+".repeat(usize::from(wait == 0)),
                    false => wait.to_string(),
                }
            })
            .collect();
        assert_eq!(line.join(" "), expected, "{takes:?}");
    }

    #[test]
    fn tokens_are_earned_per_interval_up_to_the_burst() {
        check(1, &[0, 0, 99, 100, 199, 200], "+ 100 1 + 1 +");
        check(3, &[0, 0, 0, 0], "+ + + 100");
        // the first use may be late, and nothing is kept beyond the burst
        check(
            2,
            &[5000, 5000, 5000, 60_000, 60_000, 60_000],
            "+ + 100 + + 100",
        );
        // parts of an interval count
        check(2, &[0, 0, 50, 150, 150, 250], "+ + 50 + 50 +");
        check(2, &[0, 30, 100, 130], "+ + + 70");
        check(0, &[0, 0, 100], "+ 100 +");
    }

    #[test]
    fn clock_that_is_set_back_takes_no_token_away() {
        check(2, &[9000, 9000, 500, 550, 600], "+ + 100 50 +");
        check(2, &[9000, 500, 500], "+ + 100");
    }

    #[test]
    fn extreme_intervals_do_not_overflow() {
        let mut bucket = TokenBucket::new(u32::MAX, Duration::ZERO);
        assert!((0..100).all(|_| bucket.try_take(Duration::ZERO)));
        let mut bucket = TokenBucket::new(1, Duration::MAX);
        assert!(bucket.try_take(Duration::MAX));
        assert_eq!(bucket.wait(Duration::MAX), Duration::MAX);
    }
}
