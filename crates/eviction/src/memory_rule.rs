//! When memory is short.
//!
//! Upstream counts active page cache as used (kubernetes/kubernetes#43916), so a node that reads
//! many files evicts pods although the kernel could drop the pages at no cost.

use std::str::FromStr;

use windlass_units::quantity::Quantity;

use crate::observation::{MemoryFacts, Observation, Observations, Stall};
use crate::signal::Signal;

/// Share of the last 10 s in which all tasks waited for memory: from here on, page cache is needed.
pub(crate) const MAX_FULL_STALL: f64 = 10.0;
/// As [`MAX_FULL_STALL`], for some tasks.
pub(crate) const MAX_SOME_STALL: f64 = 40.0;

windlass_types::text_enum! {
    /// When a threshold of a memory signal is met. Its text is the name in the configuration.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum MemoryRule {
        /// Capacity minus working set is less than the threshold.
        Upstream = "upstream",
        /// Also, either what is available together with active page cache is less than the threshold,
        /// or tasks wait for memory for more than [`MAX_FULL_STALL`] or [`MAX_SOME_STALL`] percent.
        /// Available is at most `MemAvailable`: with cgroup v2, memory of the kernel is in no working
        /// set, and neither are the pages that it keeps for itself.
        #[default]
        ReclaimableAware = "reclaimable-aware",
    }
}

/// A text that names no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be reclaimable-aware or upstream, got {0:?}")]
pub struct UnknownMemoryRule(pub String);

/// Memory that a process could allocate: available together with active page cache, at most
/// `MemAvailable`.
pub fn obtainable(available: u64, facts: &MemoryFacts) -> u64 {
    let with_cache = available.saturating_add(facts.active_file);
    with_cache.min(facts.mem_available.unwrap_or(u64::MAX))
}

impl MemoryRule {
    /// Returns what counts as available of a memory signal.
    pub(crate) fn observe(self, observed: Observation, facts: &MemoryFacts) -> Observation {
        let limit = match self {
            Self::Upstream => None,
            Self::ReclaimableAware => facts.mem_available,
        };
        Observation {
            available: observed.available.min(limit.unwrap_or(u64::MAX)),
            ..observed
        }
    }

    /// Returns what is available of a signal, by which the time until its threshold is reached is
    /// estimated.
    pub(crate) fn available(
        self,
        signal: Signal,
        observed: &Observation,
        all: &Observations,
    ) -> u64 {
        match all.memory_facts(signal) {
            Some(facts) if self == Self::ReclaimableAware => obtainable(observed.available, facts),
            _ => observed.available,
        }
    }

    /// Returns whether less than `needed` is there of a memory signal, [observed](Self::observe) by
    /// this rule.
    pub(crate) fn is_short(
        self,
        signal: Signal,
        needed: Quantity,
        observed: &Observation,
        facts: &MemoryFacts,
    ) -> bool {
        let below = |amount| signal.quantity(amount) < needed;
        below(observed.available)
            && match self {
                Self::Upstream => true,
                Self::ReclaimableAware => {
                    below(obtainable(observed.available, facts))
                        || facts.stall.is_some_and(Stall::is_high)
                }
            }
    }
}

impl Stall {
    /// Returns whether tasks wait for memory so much that page cache is needed.
    pub(crate) fn is_high(self) -> bool {
        self.full_avg10 > MAX_FULL_STALL || self.some_avg10 > MAX_SOME_STALL
    }
}

impl FromStr for MemoryRule {
    type Err = UnknownMemoryRule;

    fn from_str(text: &str) -> Result<Self, UnknownMemoryRule> {
        Self::from_text(text).ok_or_else(|| UnknownMemoryRule(text.to_owned()))
    }
}

#[cfg(test)]
mod tests;
