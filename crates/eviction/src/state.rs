//! One pass of the eviction manager (upstream `synchronize`).

use std::fmt;
use std::time::Duration;

use windlass_types::ClockReading;
use windlass_units::duration::go_duration;

use crate::interval;
use crate::layout::{FileSystems, NodeReclaim};
use crate::memory_rule::MemoryRule;
use crate::observation::{Observation, Observations};
use crate::pod::PodFigures;
use crate::rank::rank;
use crate::signal::{NodeCondition, Pressure, Signal};
use crate::threshold::{Threshold, Thresholds};
use crate::victim::{MetThreshold, Victim};

/// Settings of the eviction manager.
#[derive(Clone, Debug, PartialEq)]
pub struct EvictionSettings {
    /// Thresholds of the configuration; those of containerfs follow `file_systems`.
    pub thresholds: Thresholds,
    /// File systems of the container runtime.
    pub file_systems: FileSystems,
    /// `evictionPressureTransitionPeriod`: how long a condition stays true.
    pub pressure_transition_period: Duration,
    /// `evictionMaxPodGracePeriod`.
    pub max_pod_grace_period: Duration,
    /// When memory is short.
    pub memory_rule: MemoryRule,
}

/// Thresholds that are met, and conditions, from pass to pass.
#[derive(Clone, Debug, Default)]
pub struct EvictionState {
    /// Thresholds that are met, with the instant since when.
    pub(crate) met: Vec<(Threshold, Duration)>,
    /// Thresholds whose grace period is over and whose minimum reclaim is not reached.
    due: Vec<Threshold>,
    /// Last instant at which each condition was observed, in the order of [`NodeCondition::ALL`].
    observed_conditions: [Option<Duration>; 3],
    /// Observations of the last pass, and its instant.
    last: Option<(Duration, Observations)>,
}

/// Result of a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    /// Conditions of the node.
    pub pressure: Pressure,
    /// Thresholds that are met and whose grace period is over, the first one to handle first. Those
    /// without a new observation are included.
    pub due: Vec<MetThreshold>,
    /// Soft thresholds that are met, with the time until their grace period is over.
    pub waiting: Vec<(MetThreshold, Duration)>,
    /// What to do.
    pub decision: Decision,
    /// When to observe again, if nothing happens before.
    pub next: Duration,
}

/// What a pass decides.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing.
    Idle,
    /// Reclaim these on the node, observe again, and call [`EvictionState::after_reclaim`].
    Reclaim(MetThreshold, &'static [NodeReclaim]),
    /// Measure the pods and evict the one that [`EvictionSettings::choose_victim`] returns.
    Evict(MetThreshold),
}

impl Default for EvictionSettings {
    fn default() -> Self {
        Self {
            thresholds: Thresholds::default(),
            file_systems: FileSystems::default(),
            pressure_transition_period: Duration::from_secs(300),
            max_pod_grace_period: Duration::ZERO,
            memory_rule: MemoryRule::default(),
        }
    }
}

impl EvictionSettings {
    /// Returns the thresholds with those of containerfs.
    pub(crate) fn effective_thresholds(&self) -> Thresholds {
        self.thresholds.with_container_fs(self.file_systems)
    }

    /// Returns the pod to evict for a threshold: one a pass; `None` if all pods are critical or
    /// already evicted.
    pub fn choose_victim(&self, met: &MetThreshold, pods: &[PodFigures]) -> Option<Victim> {
        let ranked = rank(met.signal(), self.file_systems, pods);
        let (pod, rank) = ranked.into_iter().next()?;
        Some(Victim::new(*met, pod, rank, self.max_pod_grace_period))
    }

    /// Returns what counts as the measurement of a signal.
    pub(crate) fn observed(
        &self,
        signal: Signal,
        observations: &Observations,
    ) -> Option<Observation> {
        let observed = *observations.get(signal)?;
        let facts = observations.memory_facts(signal);
        Some(facts.map_or(observed, |facts| self.memory_rule.observe(observed, facts)))
    }

    /// Returns the thresholds that are met. With `reclaim`, also those above the threshold, but
    /// short of its minimum reclaim.
    fn met(
        &self,
        thresholds: impl Iterator<Item = Threshold>,
        observations: &Observations,
        reclaim: bool,
    ) -> Vec<MetThreshold> {
        let met = thresholds.filter_map(|threshold| {
            let signal = threshold.signal;
            let observed = self.observed(signal, observations)?;
            let needed = match reclaim {
                true => threshold.resolved_at(observed.capacity),
                false => threshold.quantity(observed.capacity),
            };
            let is_short = match observations.memory_facts(signal) {
                Some(facts) => self.memory_rule.is_short(signal, needed, &observed, facts),
                None => signal.quantity(observed.available) < needed,
            };
            is_short.then_some(MetThreshold {
                threshold,
                observed,
            })
        });
        met.collect()
    }
}

impl EvictionState {
    /// Evaluates the thresholds. `now` is the instant of the observations.
    pub fn pass(
        &mut self,
        now: ClockReading,
        observations: &Observations,
        settings: &EvictionSettings,
    ) -> Pass {
        let now = now.monotonic;
        let thresholds = settings.effective_thresholds();
        let met = self.thresholds_met(&thresholds, observations, settings);
        self.track(&met, now);
        let pressure = self.pressure(&met, settings.pressure_transition_period, now);

        let is_waiting = |met: &MetThreshold| self.grace_left(&met.threshold, now);
        let waiting: Vec<_> = met
            .iter()
            .filter_map(|met| Some((*met, is_waiting(met)?)))
            .collect();
        let mut due = met;
        due.retain(|met| is_waiting(met).is_none());
        due.sort_by_key(|met| {
            let threshold = &met.threshold;
            let signal = threshold.signal;
            (!signal.is_memory(), !threshold.is_hard(), signal)
        });
        self.due = due.iter().map(|met| met.threshold).collect();

        let decision = due.iter().find(|met| self.is_updated(met));
        let decision = decision.map_or(Decision::Idle, |met| {
            match settings.file_systems.node_reclaim(met.signal()) {
                [] => Decision::Evict(*met),
                steps => Decision::Reclaim(*met, steps),
            }
        });
        let previous = self
            .last
            .as_ref()
            .map(|(at, last)| (now.saturating_sub(*at), last));
        let rule = settings.memory_rule;
        let next = interval::until_next(&thresholds, rule, observations, previous, &waiting);
        self.last = Some((now, observations.clone()));
        Pass {
            pressure,
            due,
            waiting,
            decision,
            next,
        }
    }

    /// Decides again after the reclaim on the node, with new observations: [`Decision::Idle`] if
    /// the disk thresholds are resolved, including their minimum reclaim, else
    /// [`Decision::Evict`].
    pub fn after_reclaim(
        &mut self,
        now: ClockReading,
        met: &MetThreshold,
        observations: &Observations,
        settings: &EvictionSettings,
    ) -> Decision {
        let is_disk = |t: &Threshold| t.signal.condition() == NodeCondition::DiskPressure;
        let due = self.due.iter().copied().filter(is_disk);
        let unresolved = settings.met(due, observations, true);
        let thresholds = settings.effective_thresholds();
        let hard = thresholds.iter().copied();
        let hard = hard.filter(|t| is_disk(t) && t.is_hard());
        let newly_met = settings.met(hard, observations, false);
        self.last = Some((now.monotonic, observations.clone()));
        match unresolved.is_empty() && newly_met.is_empty() {
            true => Decision::Idle,
            false => Decision::Evict(*met),
        }
    }

    fn thresholds_met(
        &self,
        thresholds: &Thresholds,
        observations: &Observations,
        settings: &EvictionSettings,
    ) -> Vec<MetThreshold> {
        let mut met = settings.met(thresholds.iter().copied(), observations, false);
        let kept = self.due.iter().copied();
        let kept = kept.filter(|due| thresholds.iter().any(|t| t == due));
        for unresolved in settings.met(kept, observations, true) {
            if !met.contains(&unresolved) {
                met.push(unresolved);
            }
        }
        met
    }

    fn track(&mut self, met: &[MetThreshold], now: Duration) {
        let since = |threshold: &Threshold| {
            let known = self.met.iter().find(|(known, _)| known == threshold);
            known.map_or(now, |(_, since)| *since)
        };
        self.met = met
            .iter()
            .map(|met| (met.threshold, since(&met.threshold)))
            .collect();
    }

    /// Returns the rest of the grace period of a met threshold; `None` if it is over.
    pub(crate) fn grace_left(&self, threshold: &Threshold, now: Duration) -> Option<Duration> {
        let (_, since) = self.met.iter().find(|(met, _)| met == threshold)?;
        let left = threshold.grace?.saturating_sub(now.saturating_sub(*since));
        (!left.is_zero()).then_some(left)
    }

    fn pressure(&mut self, met: &[MetThreshold], period: Duration, now: Duration) -> Pressure {
        let mut pressure = Pressure::default();
        let conditions = NodeCondition::ALL
            .into_iter()
            .zip(&mut self.observed_conditions);
        for (condition, observed_at) in conditions {
            if met.iter().any(|met| met.signal().condition() == condition) {
                *observed_at = Some(now);
            }
            if observed_at.is_some_and(|at| now.saturating_sub(at) < period) {
                pressure.set(condition);
            }
        }
        pressure
    }

    /// Returns whether an observation is new.
    fn is_updated(&self, met: &MetThreshold) -> bool {
        let last = self.last.as_ref();
        let last = last.and_then(|(_, last)| last.get(met.signal()));
        last.is_none_or(|last| last.at != met.observed.at)
    }
}

/// `MemoryPressure; due memory.available<100Mi (90Mi); evict; next 1s`.
impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.pressure.names();
        match names.is_empty() {
            true => f.write_str("no pressure")?,
            false => f.write_str(&names.join(" "))?,
        }
        for due in &self.due {
            write!(f, "; due {due}")?;
        }
        for (waiting, left) in &self.waiting {
            write!(f, "; {waiting} in {}", go_duration(*left))?;
        }
        write!(f, "; {}", self.decision)
    }
}

/// `reclaim dead containers, unused images for nodefs.available`.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("idle"),
            Self::Reclaim(met, steps) => {
                let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
                write!(f, "reclaim {} for {}", steps.join(", "), met.signal())
            }
            Self::Evict(met) => write!(f, "evict for {}", met.signal()),
        }
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
