//! How soon to observe again.
//!
//! A resource is observed twice before it can reach its threshold, at the rate at which it was
//! last consumed, or at a rate that one pod can reach on usual hardware, whichever is higher.

use std::time::Duration;

use crate::memory_rule::MemoryRule;
use crate::observation::Observations;
use crate::signal::{Resource, Signal};
use crate::threshold::{Threshold, Thresholds};
use crate::victim::MetThreshold;

/// Interval when a threshold is met, or close to one of inodes or processes.
pub(crate) const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// Interval close to a threshold of bytes: a pod that allocates [`BURST_BYTES`] is noticed while
/// most of a usual threshold of 100 MiB is left.
pub(crate) const URGENT_INTERVAL: Duration = Duration::from_millis(50);
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
    rule: MemoryRule,
    observations: &Observations,
    previous: Option<(Duration, &Observations)>,
    waiting: &[(MetThreshold, Duration)],
) -> Duration {
    let until_crossed = thresholds.iter().filter_map(|threshold| {
        let signal = threshold.signal;
        let available = |all: &Observations| Some(rule.available(signal, all.get(signal)?, all));
        let capacity = observations.get(signal)?.capacity;
        let previous = previous.and_then(|(age, all)| Some((age, available(all)?)));
        Some(half_way(
            threshold,
            capacity,
            available(observations)?,
            previous,
        ))
    });
    let until_due = waiting.iter().map(|(_, left)| (*left).max(MIN_INTERVAL));
    let next = until_crossed.chain(until_due).min();
    next.unwrap_or(MAX_INTERVAL).min(MAX_INTERVAL)
}

/// Returns half the time in which a signal can reach its threshold, within its bounds.
fn half_way(
    threshold: &Threshold,
    capacity: u64,
    available: u64,
    previous: Option<(Duration, u64)>,
) -> Duration {
    let needed = threshold.quantity(capacity).value();
    let margin = available.saturating_sub(u64::try_from(needed).unwrap_or(0));
    let least = match threshold.signal.resource() {
        _ if margin == 0 => MIN_INTERVAL,
        Resource::Memory | Resource::EphemeralStorage => URGENT_INTERVAL,
        Resource::Inodes | Resource::Pids => MIN_INTERVAL,
    };
    let rate = previous.map_or(0.0, |(age, previous)| {
        let consumed = previous.saturating_sub(available);
        consumed as f64 / age.max(MIN_AGE).as_secs_f64()
    });
    let seconds = margin as f64 / rate.max(burst(threshold.signal)) / 2.0;
    Duration::from_secs_f64(seconds.min(MAX_INTERVAL.as_secs_f64())).max(least)
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
