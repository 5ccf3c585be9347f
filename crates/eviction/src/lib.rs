//! Eviction decisions: which threshold is met, what the node reclaims, which pod goes and why.
//!
//! For a node agent that measures memory, disks and processes and decides when they are short.
//!
//! # Entry points
//!
//! * [`Thresholds::parse`] reads the thresholds of a `KubeletConfiguration` and reports all errors
//! * [`EvictionState::pass`] evaluates [`Observations`] and returns a [`Pass`]
//! * [`EvictionSettings::choose_victim`] ranks pods and returns the [`Victim`], with the texts of
//!   its status and event
//! * [`local_storage`] has the limits of local storage, which do not depend on thresholds
//! * [`MemoryRule`] is when memory is short: active page cache is not pressure
//! * [`EvictionStatus`] is what users are shown
//!
//! # Example
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::time::Duration;
//!
//! use windlass_eviction::{
//!     EvictionSettings, EvictionState, Observation, Observations, Signal, ThresholdFields,
//!     Thresholds,
//! };
//! use windlass_types::{ClockReading, Timestamp};
//!
//! let hard = BTreeMap::from([("pid.available".to_owned(), "10%".to_owned())]);
//! let none = BTreeMap::new();
//! let fields = ThresholdFields {
//!     hard: &hard,
//!     soft: &none,
//!     soft_grace_period: &none,
//!     minimum_reclaim: &none,
//!     enforces_pods: true,
//! };
//! let settings = EvictionSettings {
//!     thresholds: Thresholds::parse(fields).expect("valid"),
//!     ..EvictionSettings::default()
//! };
//!
//! let at = Timestamp::UNIX_EPOCH;
//! let mut observations = Observations::default();
//! let observed = Observation { available: 500, capacity: 32_768, at };
//! observations.signals.insert(Signal::PidAvailable, observed);
//! let now = ClockReading { wall: at, monotonic: Duration::ZERO };
//! let pass = EvictionState::default().pass(now, &observations, &settings);
//! assert_eq!(
//!     pass.to_string(),
//!     "PIDPressure; due pid.available<10% (500); evict for pid.available"
//! );
//! ```
//!
//! `cargo run -p windlass-eviction --example rank_pods` ranks three pods under memory pressure.
//!
//! # Guarantees
//!
//! The functions are pure: time and measurements are arguments. Texts that upstream's tests compare
//! are upstream's. At most one pod is chosen a pass, never a critical one. Arithmetic saturates.
//!
//! # Limits
//!
//! Nothing is measured, reclaimed or killed.

mod amount;
mod layout;
mod signal;
mod threshold;

mod memory_rule;
mod observation;

mod pod;
mod rank;
mod victim;

#[cfg(test)]
mod test_figures;

mod cadence;
mod interval;
mod state;
mod status;

pub mod local_storage;

pub use amount::Amount;
pub use cadence::Cadence;
pub use layout::{FileSystems, NodeReclaim};
pub use memory_rule::{MemoryRule, UnknownMemoryRule, obtainable};
pub use observation::{MemoryFacts, Observation, Observations, Stall};
pub use pod::{ContainerRequests, ContainerUsage, DiskUsage, PodFigures, PodUsage};
pub use rank::Rank;
pub use signal::{NodeCondition, Pressure, Resource, Signal, UnknownSignal};
pub use state::{Decision, EvictionSettings, EvictionState, Pass};
pub use status::{EvictionRecord, EvictionStatus, SignalStatus, ThresholdState, ThresholdStatus};
pub use threshold::{Threshold, ThresholdError, ThresholdFields, Thresholds};
pub use victim::{EVICTED, Explanation, HARD_GRACE_PERIOD, MetThreshold, Victim};
