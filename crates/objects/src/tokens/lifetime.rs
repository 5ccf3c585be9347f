//! Lifetime and renewal of a token.

use std::time::Duration;

use windlass_types::Timestamp;
use windlass_units::hash::fnv1a_64;

/// Maximum age of a token before its renewal.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum jitter between renewals of tokens created at the same time.
const MAX_JITTER_MILLIS: u64 = 10_000;

/// Lifetime of a token, by wall clock and monotonic clock, as the wall clock may be stepped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenLifetime {
    /// Time of the renewal.
    renew_at: Timestamp,
    /// Time of the expiry.
    expires_at: Timestamp,
    /// Age at the renewal.
    renew_age: Duration,
    /// Age at the expiry.
    expiry_age: Duration,
}

/// State of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Served.
    Fresh,
    /// Renewed; served if that fails.
    Due,
    /// Not served.
    Expired,
}

impl TokenLifetime {
    /// Renewal after 80 % of the lifetime or a day, minus a jitter derived from `seed` (upstream
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

    /// Returns the time of the expiry.
    pub(super) fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// Returns the state of a token that was received `age` ago.
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
            let lifetime = TokenLifetime::new(expires_at, seconds, seed);
            let second = lifetime.renew_at.as_second();
            assert!(expected.contains(&second), "{seconds} {seed}: {second}");
        }
    }

    #[test]
    fn token_renewal_is_at_80_percent_or_one_day() {
        check(600, 470..=480);
        check(3600, 2870..=2880);
        check(86_400, 69_110..=69_120);
        // five days: a day is less than four fifths
        check(432_000, 86_390..=86_400);
    }

    #[test]
    fn clock_step_does_not_extend_token_lifetime() {
        let at = |second| Timestamp::from_second(second).expect("time");
        let lifetime = TokenLifetime::new(at(3600), 3600, "seed");
        let check = |now: i64, age: u64, expected: Phase| {
            assert_eq!(
                lifetime.phase(at(now), Duration::from_secs(age)),
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
    fn token_jitter_is_deterministic() {
        let expires_at = Timestamp::from_second(10_000).expect("time");
        let lifetime = |seed| TokenLifetime::new(expires_at, 3600, seed);
        assert_eq!(lifetime("a"), lifetime("a"));
        assert_ne!(lifetime("a"), lifetime("b"));
    }
}
