//! What users are shown of eviction.

use std::fmt;

use serde::{Deserialize, Serialize};
use windlass_types::{ClockReading, PodUid, Timestamp};
use windlass_units::duration::go_duration;
use windlass_units::quantity::Quantity;

use crate::memory_rule::{MemoryRule, obtainable};
use crate::observation::{Observation, Observations, Stall};
use crate::signal::{Pressure, Signal};
use crate::state::{EvictionSettings, EvictionState, Pass};
use crate::threshold::Threshold;
use crate::victim::Victim;

/// Snapshot of the eviction manager.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvictionStatus {
    /// When the last pass ended; `None` before the first.
    pub at: Option<Timestamp>,
    /// When memory is short.
    pub memory_rule: MemoryRule,
    /// Conditions of the node.
    pub pressure: Pressure,
    /// Signals with a threshold or an observation, in their order.
    pub signals: Vec<SignalStatus>,
    /// The last evictions, the newest last.
    pub evictions: Vec<EvictionRecord>,
}

/// One signal.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalStatus {
    /// What is measured.
    pub signal: Signal,
    /// The observation; `None` if it could not be measured.
    pub observed: Option<Observation>,
    /// Memory that could be allocated, with active page cache, in bytes.
    pub obtainable: Option<u64>,
    /// Stall times of memory.
    pub stall: Option<Stall>,
    /// Its thresholds.
    pub thresholds: Vec<ThresholdStatus>,
}

/// One threshold.
#[derive(Clone, Debug, PartialEq)]
pub struct ThresholdStatus {
    /// The threshold.
    pub threshold: Threshold,
    /// The threshold as an amount; `None` if the capacity is unknown.
    pub quantity: Option<Quantity>,
    /// What is available above it; less than 0 below it.
    pub distance: Option<i64>,
    /// Whether it is met.
    pub state: ThresholdState,
}

/// Whether a threshold is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdState {
    /// Not measured.
    Unknown,
    /// Not met.
    Ok,
    /// Below the threshold only by page cache, which [`MemoryRule::ReclaimableAware`] does not
    /// count.
    PageCache,
    /// Met; pods are evicted after this time.
    Waiting(std::time::Duration),
    /// Met; pods are evicted.
    Met,
}

/// A pod that was evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictionRecord {
    /// UID.
    pub uid: PodUid,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// When.
    pub at: Timestamp,
    /// Why, in one sentence.
    pub explanation: String,
}

impl EvictionStatus {
    /// Max number of evictions that are kept.
    pub const MAX_RECORDS: usize = 100;

    /// Adds an eviction, and drops the oldest beyond [`Self::MAX_RECORDS`].
    pub fn record(&mut self, eviction: EvictionRecord) {
        if self.evictions.len() >= Self::MAX_RECORDS {
            self.evictions.remove(0);
        }
        self.evictions.push(eviction);
    }

    /// Returns the eviction of a pod.
    pub fn eviction(&self, uid: &PodUid) -> Option<&EvictionRecord> {
        self.evictions
            .iter()
            .rev()
            .find(|record| record.uid == *uid)
    }

    /// Replaces what a pass found; the evictions stay.
    pub fn update(
        &mut self,
        now: ClockReading,
        state: &EvictionState,
        pass: &Pass,
        observations: &Observations,
        settings: &EvictionSettings,
    ) {
        self.at = Some(now.wall);
        self.memory_rule = settings.memory_rule;
        self.pressure = pass.pressure;
        let thresholds = settings.effective_thresholds();
        self.signals.clear();
        for signal in Signal::ALL {
            let observed = settings.observed(signal, observations);
            let of_signal: Vec<ThresholdStatus> = thresholds
                .for_signal(signal)
                .map(|threshold| threshold_status(threshold, now, state, observed))
                .collect();
            if observed.is_none() && of_signal.is_empty() {
                continue;
            }
            let facts = observations.memory_facts(signal);
            self.signals.push(SignalStatus {
                signal,
                observed,
                obtainable: facts
                    .zip(observed)
                    .map(|(facts, observed)| obtainable(observed.available, facts)),
                stall: facts.and_then(|facts| facts.stall),
                thresholds: of_signal,
            });
        }
    }
}

impl EvictionRecord {
    /// Creates the record of a victim.
    pub fn new(victim: &Victim, at: Timestamp) -> Self {
        Self {
            uid: victim.uid.clone(),
            namespace: victim.namespace.clone(),
            name: victim.name.clone(),
            at,
            explanation: victim.explanation.to_string(),
        }
    }
}

fn threshold_status(
    threshold: &Threshold,
    now: ClockReading,
    state: &EvictionState,
    observed: Option<Observation>,
) -> ThresholdStatus {
    let quantity = observed.map(|observed| threshold.quantity(observed.capacity));
    let distance = observed.zip(quantity).map(|(observed, quantity)| {
        let available = i64::try_from(observed.available).unwrap_or(i64::MAX);
        available.saturating_sub(quantity.value())
    });
    let is_met = state.met.iter().any(|(met, _)| met == threshold);
    let state = match (distance, is_met) {
        (None, _) => ThresholdState::Unknown,
        (Some(_), true) => match state.grace_left(threshold, now.monotonic) {
            Some(left) => ThresholdState::Waiting(left),
            None => ThresholdState::Met,
        },
        (Some(distance), false) if distance < 0 => ThresholdState::PageCache,
        (Some(_), false) => ThresholdState::Ok,
    };
    ThresholdStatus {
        threshold: *threshold,
        quantity,
        distance,
        state,
    }
}

impl fmt::Display for ThresholdState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("not measured"),
            Self::Ok => f.write_str("ok"),
            Self::PageCache => f.write_str("page cache only"),
            Self::Waiting(left) => write!(f, "evicts in {}", go_duration(*left)),
            Self::Met => f.write_str("evicting"),
        }
    }
}

#[cfg(test)]
mod tests;
