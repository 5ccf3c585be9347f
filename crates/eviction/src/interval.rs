//! How soon to observe again.
//!
//! A resource is observed twice before it can reach its threshold, at the rate at which it was
//! last consumed, or at a rate that one pod can reach on usual hardware, whichever is higher.

use std::time::Duration;

use crate::observation::{Observation, Observations};
use crate::signal::{Resource, Signal};
use crate::threshold::{Threshold, Thresholds};
use crate::victim::MetThreshold;

/// Interval close to a threshold, or when one is met.
pub(crate) const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// Interval far from all thresholds (upstream `evictionMonitoringPeriod`).
pub(crate) const MAX_INTERVAL: Duration = Duration::from_secs(10);
/// Age below which a rate means nothing.
const MIN_AGE: Duration = Duration::from_millis(100);
/// Bytes a second.
const BURST_BYTES: f64 = 1e9;
/// Inodes a second.
const BURST_INODES: f64 = 1e5;
/// Processes a second.
const BURST_PROCESSES: f64 = 1e4;

/// Returns the time until the next pass. `previous` are earlier observations and their age.
pub(crate) fn until_next(
    thresholds: &Thresholds,
    observations: &Observations,
    previous: Option<(Duration, &Observations)>,
    waiting: &[(MetThreshold, Duration)],
) -> Duration {
    let until_crossed = thresholds.iter().filter_map(|threshold| {
        let observed = observations.get(threshold.signal)?;
        let previous = previous.and_then(|(age, all)| Some((age, all.get(threshold.signal)?)));
        Some(half_way(threshold, observed, previous))
    });
    let until_due = waiting.iter().map(|(_, left)| *left);
    let next = until_crossed.chain(until_due).min();
    next.unwrap_or(MAX_INTERVAL)
        .clamp(MIN_INTERVAL, MAX_INTERVAL)
}

/// Returns half the time in which a signal can reach its threshold.
fn half_way(
    threshold: &Threshold,
    observed: &Observation,
    previous: Option<(Duration, &Observation)>,
) -> Duration {
    let needed = threshold.quantity(observed.capacity).value();
    let margin = observed
        .available
        .saturating_sub(u64::try_from(needed).unwrap_or(0));
    let rate = previous.map_or(0.0, |(age, previous)| {
        let consumed = previous.available.saturating_sub(observed.available);
        consumed as f64 / age.max(MIN_AGE).as_secs_f64()
    });
    let seconds = margin as f64 / rate.max(burst(threshold.signal)) / 2.0;
    Duration::from_secs_f64(seconds.min(MAX_INTERVAL.as_secs_f64()))
}

fn burst(signal: Signal) -> f64 {
    match signal.resource() {
        Resource::Memory | Resource::EphemeralStorage => BURST_BYTES,
        Resource::Inodes => BURST_INODES,
        Resource::Pids => BURST_PROCESSES,
    }
}

#[cfg(test)]
mod tests;
