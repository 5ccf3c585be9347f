//! When a token is renewed.

use std::time::Duration;

use windlass_units::hash::fnv1a_64;
use windlass_types::Timestamp;

/// A token is renewed after this even if it lives longer.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// Tokens made at the same time are renewed up to this much apart.
const MAX_JITTER_MILLIS: u64 = 10_000;

/// The life of a token, by two clocks: the wall clock may be stepped, and time that passed by the
/// other one has passed all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    /// It is to be renewed from now on.
    renew_at: Timestamp,
    /// It is worth nothing from now on.
    expires_at: Timestamp,
    /// Age at which it is to be renewed.
    renew_age: Duration,
    /// Age at which it is worth nothing.
    expiry_age: Duration,
}

/// How a token is to be treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is handed out.
    Fresh,
    /// It is renewed, and handed out if that fails.
    Due,
    /// It is worth nothing.
    Expired,
}

impl Life {
    /// Renewal at 80 % of the life or after a day, less a jitter that `seed` decides (upstream
    /// `requiresRefresh`).
    pub(super) fn new(expires_at: Timestamp, seconds: i64, seed: &str) -> Self {
        let expiry_age = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        let jitter = Duration::from_millis(fnv1a_64(seed.as_bytes()) % MAX_JITTER_MILLIS);
        let renew_age = (expiry_age * 4 / 5).min(MAX_AGE).saturating_sub(jitter);
        let renew_at = expires_at.checked_sub(expiry_age.saturating_sub(renew_age));
        Self {
            renew_at: renew_at.unwrap_or(Timestamp::MIN),
            expires_at,
            renew_age,
            expiry_age,
        }
    }

    /// It is worth nothing from then on.
    pub(super) fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// What to do with a token that was received `age` ago.
    pub(super) fn phase(&self, now: Timestamp, age: Duration) -> Phase {
        if now >= self.expires_at || age >= self.expiry_age {
            Phase::Expired
        } else if now >= self.renew_at || age >= self.renew_age {
            Phase::Due
        } else {
            Phase::Fresh
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(seconds: i64, expected: std::ops::RangeInclusive<i64>) {
        let start = Timestamp::UNIX_EPOCH;
        let expires_at = start
            .checked_add(Duration::from_secs(seconds.unsigned_abs()))
            .expect("time");
        for seed in ["a", "b", "c"] {
            let life = Life::new(expires_at, seconds, seed);
            let second = life.renew_at.as_second();
            assert!(expected.contains(&second), "{seconds} {seed}: {second}");
        }
    }

    #[test]
    fn a_token_is_renewed_at_80_percent_or_after_a_day() {
        check(600, 470..=480);
        check(3600, 2870..=2880);
        check(86_400, 69_110..=69_120);
        // five days: a day is less than four fifths
        check(432_000, 86_390..=86_400);
    }

    #[test]
    fn a_clock_that_is_stepped_back_makes_no_token_live_longer() {
        let at = |second| Timestamp::from_second(second).expect("time");
        let life = Life::new(at(3600), 3600, "seed");
        let check = |now: i64, age: u64, expected: Phase| {
            assert_eq!(
                life.phase(at(now), Duration::from_secs(age)),
                expected,
                "{now} {age}"
            );
        };
        check(0, 0, Phase::Fresh);
        check(2860, 2860, Phase::Fresh);
        check(2880, 2880, Phase::Due);
        check(3600, 3600, Phase::Expired);
        check(-5000, 2860, Phase::Fresh);
        check(-5000, 2880, Phase::Due);
        check(-5000, 3600, Phase::Expired);
        check(3000, 10, Phase::Due);
        check(9000, 10, Phase::Expired);
    }

    #[test]
    fn the_jitter_of_a_token_is_always_the_same() {
        let expires_at = Timestamp::from_second(10_000).expect("time");
        let life = |seed| Life::new(expires_at, 3600, seed);
        assert_eq!(life("a"), life("a"));
        assert_ne!(life("a"), life("b"));
    }
}
