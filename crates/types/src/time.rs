//! Moments on the wall clock.

use std::time::Duration;

/// A moment on the wall clock. Decisions receive it as an argument and never read a clock.
pub type Timestamp = jiff::Timestamp;

/// `delay` after `at`, at most [`Timestamp::MAX`].
pub fn later(at: Timestamp, delay: Duration) -> Timestamp {
    at.saturating_add(delay).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_added_and_no_delay_reaches_beyond_the_end_of_time() {
        let at = Timestamp::UNIX_EPOCH;
        assert_eq!(later(at, Duration::from_secs(3)).as_second(), 3);
        assert_eq!(later(at, Duration::MAX), Timestamp::MAX);
        assert_eq!(
            later(Timestamp::MAX, Duration::from_secs(1)),
            Timestamp::MAX
        );
    }
}
