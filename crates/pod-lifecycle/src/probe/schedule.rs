//! When a question is due.
//!
//! Upstream's workers tick from the moment the pod was added, so the first question after the
//! initial delay waits for the next tick. Here it is put when the delay is over.

use std::time::Duration;

use windlass_types::{PodUid, ProbeKind, Timestamp, later};

use super::ProbeSpec;
use windlass_units::hash::fnv1a_64;

/// The first question to an instance that began at `started_at`. A `spread` is added, if given:
/// see [`spread`].
pub fn first(
    spec: &ProbeSpec,
    started_at: Timestamp,
    spread: Option<Duration>,
    now: Timestamp,
) -> Timestamp {
    let due = later(started_at, spec.initial_delay).max(now);
    // a start in the future is a clock that was set back: nobody waits longer than the delay
    let latest = later(now, spec.initial_delay);
    later(due.min(latest), spread.unwrap_or_default())
}

/// The question after the one that was due at `due`. If that took longer than a period, it is
/// due now.
pub fn next(spec: &ProbeSpec, due: Timestamp, now: Timestamp) -> Timestamp {
    let next = later(due, spec.period);
    next.max(now).min(later(now, spec.period))
}

/// How long a probe that is found at the agent's start waits, less than a period: so that not
/// all of them are asked at once. The same for the same probe.
pub fn spread(spec: &ProbeSpec, kind: ProbeKind, uid: &PodUid, container: &str) -> Duration {
    let seed = fnv1a_64(format!("{uid}/{container}/{kind}").as_bytes());
    spec.period.mul_f64((seed % 1024) as f64 / 1024.0)
}
