//! Growth of a log: when its size is read next.
//!
//! A log is read again after half of the time in which it would reach its maximum size at its
//! current rate, so that it is read ever more often as it approaches the maximum. The first write
//! after a check may be the begin of a burst; the caller notices it and reads the log early.

use std::fmt;
use std::time::Duration;

/// Minimum interval between two checks of a log. It bounds the size of a rotated file: a container
/// exceeds the maximum by what it writes in this time and during the rotation.
pub const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Interval after the first write to a log that was quiet: its rate is not known yet.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// Minimum interval between the last check and one because of a write. Logs with a few lines per
/// second cost at most one check per second.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes per second above which rotated files are not compressed: gzip is slower, and the next
/// rotations would remove the files before it has finished.
const MAX_COMPRESSED_RATE: u64 = 32 << 20;

/// What is known about the growth of a log. Times are those of a monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogGrowth {
    size: u64,
    /// When the size was read; `None` before the first time.
    at: Option<Duration>,
    /// Bytes per second.
    rate: u64,
}

impl LogGrowth {
    /// Records the size of a log; returns its growth and the delay of the next check, at most
    /// `interval`.
    #[must_use]
    pub fn next_check(
        self,
        (size, now): (u64, Duration),
        max_size: u64,
        interval: Duration,
    ) -> (Self, Duration) {
        let elapsed = self.at.map(|at| now.saturating_sub(at));
        // a log that shrank was truncated
        let grown = size.checked_sub(self.size).unwrap_or(size);
        let rate = match elapsed {
            Some(elapsed) => per_second(grown, elapsed).max(self.rate / 2),
            None => 0,
        };
        let growth = Self {
            size,
            at: Some(now),
            rate,
        };
        let delay = time_to_write(max_size.saturating_sub(size), rate) / 2;
        // the average of a long time says nothing about a burst that has just begun
        let was_quiet = elapsed.is_none_or(|elapsed| elapsed > WRITE_INTERVAL * 2);
        let delay = match grown > 0 && was_quiet {
            true => delay.min(PROBE_INTERVAL),
            false => delay,
        };
        (
            growth,
            delay.clamp(MIN_CHECK_INTERVAL.min(interval), interval),
        )
    }

    /// The log was renamed, and the runtime writes to a new one; the rate is unchanged. Returns the
    /// growth and the delay of the next check.
    #[must_use]
    pub fn rotated(self, now: Duration, max_size: u64, interval: Duration) -> (Self, Duration) {
        let growth = Self {
            size: 0,
            at: Some(now),
            rate: self.rate,
        };
        // writes to the new file are noticed from the next check on
        let delay = (time_to_write(max_size, self.rate) / 2).min(PROBE_INTERVAL);
        (
            growth,
            delay.clamp(MIN_CHECK_INTERVAL.min(interval), interval),
        )
    }

    /// Returns the delay of the check because of a write.
    pub fn check_after_write(self, now: Duration) -> Duration {
        self.at.map_or(Duration::ZERO, |at| {
            at.saturating_add(WRITE_INTERVAL).saturating_sub(now)
        })
    }

    /// True if the log grows faster than its rotated files can be compressed.
    pub fn outruns_compression(self) -> bool {
        self.rate > MAX_COMPRESSED_RATE
    }
}

impl fmt::Display for LogGrowth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B, {} B/s", self.size, self.rate)
    }
}

fn per_second(bytes: u64, elapsed: Duration) -> u64 {
    let millis = elapsed.as_millis().max(1);
    u64::try_from(u128::from(bytes) * 1000 / millis).unwrap_or(u64::MAX)
}

fn time_to_write(bytes: u64, rate: u64) -> Duration {
    match bytes.saturating_mul(1000).checked_div(rate) {
        Some(millis) => Duration::from_millis(millis),
        None => Duration::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 10 << 20;
    const INTERVAL: Duration = Duration::from_secs(10);

    /// Checks a log at `(milliseconds, size)` and compares the growth and the next delay.
    #[track_caller]
    fn check(sizes: &[(u64, u64)], expected: &str) {
        let (mut growth, mut delay) = (LogGrowth::default(), Duration::ZERO);
        for (millis, size) in sizes {
            let now = Duration::from_millis(*millis);
            (growth, delay) = growth.next_check((*size, now), MAX, INTERVAL);
        }
        assert_eq!(format!("{growth}, {delay:?}"), expected, "{sizes:?}");
    }

    #[test]
    fn idle_log_is_checked_once_per_interval() {
        check(&[(0, 0)], "0 B, 0 B/s, 10s");
        check(&[(0, 0), (10_000, 0)], "0 B, 0 B/s, 10s");
        check(&[(0, 5000), (10_000, 5000)], "5000 B, 0 B/s, 10s");
    }

    #[test]
    fn first_write_is_followed_by_a_probe() {
        check(&[(0, 5000)], "5000 B, 0 B/s, 100ms");
        check(&[(0, 0), (10_000, 1)], "1 B, 0 B/s, 100ms");
        // which finds a slow log, or a fast one
        check(
            &[(0, 0), (10_000, 1), (10_100, 101)],
            "101 B, 1000 B/s, 10s",
        );
        let fast = 4 << 20;
        check(
            &[(0, 0), (10_000, 1), (10_100, fast)],
            "4194304 B, 41943030 B/s, 75ms",
        );
    }

    #[test]
    fn delay_is_half_of_the_time_to_the_maximum() {
        let mib = 1 << 20;
        check(&[(0, 0), (1000, mib)], "1048576 B, 1048576 B/s, 4.5s");
        check(
            &[(0, 0), (1000, 5 * mib), (1100, 5 * mib + mib / 2)],
            "5767168 B, 5242880 B/s, 450ms",
        );
        // close to it, and beyond
        check(&[(0, 0), (100, MAX - 1)], "10485759 B, 104857590 B/s, 50ms");
        check(&[(0, 0), (100, MAX * 9)], "94371840 B, 943718400 B/s, 50ms");
    }

    #[test]
    fn rate_decays_after_a_burst() {
        let burst = [(0, 0), (100, 4 << 20), (200, 4 << 20), (300, 4 << 20)];
        check(&burst, "4194304 B, 10485760 B/s, 300ms");
        let quiet: Vec<(u64, u64)> = (0..30).map(|it| (100 + it * 100, 4 << 20)).collect();
        let all: Vec<(u64, u64)> = [(0, 0)].into_iter().chain(quiet).collect();
        check(&all, "4194304 B, 0 B/s, 10s");
    }

    #[test]
    fn truncated_log_and_clock_without_progress_are_harmless() {
        check(&[(0, 5000), (1000, 100)], "100 B, 100 B/s, 10s");
        check(
            &[(1000, 0), (1000, u64::MAX)],
            "18446744073709551615 B, 18446744073709551615 B/s, 50ms",
        );
        check(&[(1000, 0), (0, 10)], "10 B, 10000 B/s, 10s");
    }

    #[test]
    fn check_after_write_waits_a_second_after_the_last() {
        let second = Duration::from_secs;
        let unknown = LogGrowth::default();
        assert_eq!(unknown.check_after_write(second(5)), Duration::ZERO);
        let (known, _) = unknown.next_check((0, second(5)), MAX, INTERVAL);
        assert_eq!(known.check_after_write(second(5)), second(1));
        assert_eq!(
            known.check_after_write(Duration::from_millis(5600)),
            Duration::from_millis(400)
        );
        assert_eq!(known.check_after_write(second(9)), Duration::ZERO);
    }

    #[test]
    fn rotated_log_keeps_its_rate() {
        let now = Duration::from_millis;
        let growth = LogGrowth::default();
        let (growth, _) = growth.next_check((0, now(0)), MAX, INTERVAL);
        let (growth, _) = growth.next_check((MAX * 5, now(100)), MAX, INTERVAL);
        assert!(growth.outruns_compression());
        let (growth, delay) = growth.rotated(now(110), MAX, INTERVAL);
        assert_eq!(format!("{growth}, {delay:?}"), "0 B, 524288000 B/s, 50ms");
        let (growth, _) = growth.next_check((1000, now(200)), MAX, INTERVAL);
        assert!(growth.outruns_compression());
        let slow = LogGrowth::default()
            .next_check((1000, now(0)), MAX, INTERVAL)
            .0;
        assert!(!slow.outruns_compression());
        assert_eq!(slow.rotated(now(5), MAX, INTERVAL).1, now(100));
    }
}
