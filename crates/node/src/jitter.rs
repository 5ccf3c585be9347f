//! Deterministic jitter: the same node gets the same sequence.

use std::time::Duration;

use windlass_units::hash::fnv1a_64;

/// Returns a fraction in `0..1` for the `n`th occurrence of `what` on a node.
pub(crate) fn fraction(node: &str, what: &str, n: u64) -> f64 {
    let seed = fnv1a_64(format!("{node}/{what}/{n}").as_bytes());
    (seed % 4096) as f64 / 4096.0
}

/// Returns `period` lengthened by at most `part` of it (upstream `wait.JitterUntil`).
pub(crate) fn lengthened(period: Duration, part: f64, fraction: f64) -> Duration {
    period.mul_f64(1.0 + part * fraction)
}

/// Returns the back-off after the `failures`th consecutive failure: 100 ms, doubling, at most 7 s
/// (upstream, for registration and lease).
pub(crate) fn retry_backoff(failures: u32) -> Duration {
    const INITIAL: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(7);
    (INITIAL * 2u32.pow(failures.saturating_sub(1).min(10))).min(MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_seven_seconds() {
        let delays: Vec<_> = (1..10).map(|n| retry_backoff(n).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 6400, 7000, 7000]);
    }

    #[test]
    fn fractions_spread_over_the_whole_range() {
        let all: Vec<_> = (0..200).map(|n| fraction("n1", "x", n)).collect();
        assert!(all.iter().all(|f| (0.0..1.0).contains(f)));
        let low = all.iter().filter(|f| **f < 0.5).count();
        assert!((70..130).contains(&low), "{low}");
    }
}
