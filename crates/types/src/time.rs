//! Wall-clock time.

use std::time::Duration;

/// Wall-clock time. Decisions receive it as an argument and never read a clock.
pub type Timestamp = jiff::Timestamp;

/// One instant on two clocks. Durations are measured on the monotonic clock, because the wall clock
/// can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Wall clock: for texts and API objects.
    pub wall: Timestamp,
    /// Monotonic clock, from any fixed instant of this agent run: for back-off and deadlines.
    pub monotonic: Duration,
}

/// Returns `at` plus `delay`, at most [`Timestamp::MAX`].
pub fn later(at: Timestamp, delay: Duration) -> Timestamp {
    at.saturating_add(delay).unwrap_or(Timestamp::MAX)
}

/// Formats `at` as the API does: whole seconds, UTC (upstream `metav1.Time`).
pub fn api_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_adds_delay_and_saturates() {
        let at = Timestamp::UNIX_EPOCH;
        assert_eq!(later(at, Duration::from_secs(3)).as_second(), 3);
        assert_eq!(later(at, Duration::MAX), Timestamp::MAX);
        assert_eq!(
            later(Timestamp::MAX, Duration::from_secs(1)),
            Timestamp::MAX
        );
    }

    #[test]
    fn api_time_truncates_to_seconds() {
        let at = Timestamp::UNIX_EPOCH + Duration::from_millis(1_999);
        assert_eq!(api_time(at), "1970-01-01T00:00:01Z");
    }
}
