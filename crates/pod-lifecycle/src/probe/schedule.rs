//! Times of probe attempts.
//!
//! Unlike upstream, the first attempt starts at the end of the initial delay, not at the next
//! period.

use std::time::Duration;

use windlass_types::{PodUid, ProbeKind, Timestamp, later};

use super::ProbeSpec;
use windlass_units::hash::fnv1a_64;

/// Returns the time of the first attempt for an instance started at `started_at`, plus `spread`.
pub fn first(
    spec: &ProbeSpec,
    started_at: Timestamp,
    spread: Option<Duration>,
    now: Timestamp,
) -> Timestamp {
    let due = later(started_at, spec.initial_delay).max(now);
    // after a clock was set back the start may be in the future: wait at most the delay
    let latest = later(now, spec.initial_delay);
    later(due.min(latest), spread.unwrap_or_default())
}

/// Returns the time of the attempt after the one due at `due`, at least `now`.
pub fn next(spec: &ProbeSpec, due: Timestamp, now: Timestamp) -> Timestamp {
    let next = later(due, spec.period);
    next.max(now).min(later(now, spec.period))
}

/// Returns the deterministic jitter, less than a period, of a probe found at agent start.
pub fn spread(spec: &ProbeSpec, kind: ProbeKind, uid: &PodUid, container: &str) -> Duration {
    let seed = fnv1a_64(format!("{uid}/{container}/{kind}").as_bytes());
    spec.period.mul_f64((seed % 1024) as f64 / 1024.0)
}
