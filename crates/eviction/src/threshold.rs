//! Thresholds from the configuration, and the rules that it must keep.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use windlass_units::duration::{GoDuration, go_duration};
use windlass_units::quantity::Quantity;

use crate::amount::Amount;
use crate::layout::FileSystems;
use crate::signal::Signal;

/// The fields of `KubeletConfiguration` that thresholds come from, by signal name.
#[derive(Clone, Copy, Debug)]
pub struct ThresholdFields<'a> {
    /// `evictionHard`, with the defaults merged.
    pub hard: &'a BTreeMap<String, String>,
    /// `evictionSoft`.
    pub soft: &'a BTreeMap<String, String>,
    /// `evictionSoftGracePeriod`.
    pub soft_grace_period: &'a BTreeMap<String, String>,
    /// `evictionMinimumReclaim`.
    pub minimum_reclaim: &'a BTreeMap<String, String>,
    /// `enforceNodeAllocatable` contains `pods`: the memory of all pods has a threshold too.
    pub enforces_pods: bool,
}

/// A field that violates a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct ThresholdError {
    /// Name of the field.
    pub field: &'static str,
    /// What is wrong and what to set instead.
    pub message: String,
}

/// A signal is short when its observation is less than the threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// What is measured.
    pub signal: Signal,
    /// Least amount.
    pub value: Amount,
    /// How long a soft threshold must be met before pods are evicted; `None` for a hard one.
    pub grace: Option<Duration>,
    /// How far above the threshold a shortage ends.
    pub min_reclaim: Option<Amount>,
}

/// All thresholds: hard ones, then soft ones, by signal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thresholds(Vec<Threshold>);

const HARD: &str = "evictionHard";
const SOFT: &str = "evictionSoft";
const GRACE: &str = "evictionSoftGracePeriod";
const RECLAIM: &str = "evictionMinimumReclaim";
const AMOUNT_EXAMPLE: &str = "100Mi or 5%";

impl Threshold {
    /// Returns whether pods are evicted at once. A soft threshold without a period counts as hard,
    /// as upstream.
    pub(crate) fn is_hard(&self) -> bool {
        self.grace.is_none_or(|grace| grace.is_zero())
    }

    /// Returns the amount below which the threshold is met.
    pub fn quantity(&self, capacity: u64) -> Quantity {
        self.value.resolve(capacity)
    }

    /// Returns the amount from which a met threshold is resolved.
    pub(crate) fn resolved_at(&self, capacity: u64) -> Quantity {
        let reclaim = self.min_reclaim.map(|amount| amount.resolve(capacity));
        self.quantity(capacity) + reclaim.unwrap_or(Quantity::ZERO)
    }
}

/// `memory.available<100Mi`, for a soft threshold with its period.
impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}<{}", self.signal, self.value)?;
        if let Some(grace) = self.grace {
            write!(f, " for {}", go_duration(grace))?;
        }
        Ok(())
    }
}

impl Thresholds {
    /// Reads the configuration. `0%` and `100%` disable a threshold, as upstream.
    ///
    /// # Errors
    /// All violations: unknown signals, amounts and periods that cannot be read, are negative or
    /// exceed 100 %, soft thresholds without a grace period.
    pub fn parse(fields: ThresholdFields<'_>) -> Result<Self, Vec<ThresholdError>> {
        let mut parser = Parser::default();
        let hard = parser.amounts(HARD, fields.hard);
        let soft = parser.amounts(SOFT, fields.soft);
        let periods = parser.periods(fields.soft_grace_period);
        let reclaims = parser.reclaims(fields.minimum_reclaim);
        let threshold = |signal, value, grace| Threshold {
            signal,
            value,
            grace,
            min_reclaim: reclaims.get(&signal).copied(),
        };
        let mut all: Vec<Threshold> = hard
            .into_iter()
            .map(|(signal, value)| threshold(signal, value, None))
            .collect();
        for (signal, value) in soft {
            if !fields.soft_grace_period.contains_key(signal.as_str()) {
                let message = format!("{signal} requires a period in {GRACE}, for example 90s");
                parser.reject(SOFT, message);
            }
            all.push(threshold(signal, value, periods.get(&signal).copied()));
        }
        if !parser.errors.is_empty() {
            return Err(parser.errors);
        }
        if fields.enforces_pods {
            all.extend(allocatable(&all));
        }
        Ok(Self(all).sorted())
    }

    /// Returns the thresholds with those of containerfs, which follow the file system that writable
    /// layers are on (upstream `UpdateContainerFsThresholds`): nodefs, or imagefs where containers
    /// and images share a file system of their own. Configured ones of containerfs are replaced.
    #[must_use]
    pub(crate) fn with_container_fs(&self, file_systems: FileSystems) -> Self {
        let mut all = self.0.clone();
        all.retain(|threshold| container_source(file_systems, threshold.signal).is_none());
        let derived = Signal::ALL.into_iter().filter_map(|signal| {
            container_source(file_systems, signal).map(|source| (signal, source))
        });
        for (signal, source) in derived {
            let of_source = self.0.iter().filter(|t| t.signal == source);
            all.extend(of_source.map(|t| Threshold { signal, ..*t }));
        }
        Self(all).sorted()
    }

    /// Returns soft thresholds that are not above the hard one of their signal, which is met first.
    /// Upstream accepts them.
    pub fn unreachable(&self) -> impl Iterator<Item = (&Threshold, &Threshold)> {
        let soft = self.0.iter().filter(|threshold| !threshold.is_hard());
        soft.filter_map(|soft| {
            let mut of_signal = self.for_signal(soft.signal);
            let hard = of_signal.find(|t| t.is_hard() && soft.value.is_at_most(t.value))?;
            Some((soft, hard))
        })
    }

    /// Returns the thresholds of one signal.
    pub fn for_signal(&self, signal: Signal) -> impl Iterator<Item = &Threshold> {
        self.0.iter().filter(move |t| t.signal == signal)
    }

    /// Returns all thresholds.
    pub fn iter(&self) -> impl Iterator<Item = &Threshold> {
        self.0.iter()
    }

    /// Returns whether there are no thresholds.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn sorted(mut self) -> Self {
        self.0.sort_by_key(|t| (!t.is_hard(), t.signal));
        self
    }
}

/// `memory.available<100Mi, nodefs.available<10%`.
impl fmt::Display for Thresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&all.join(", "))
    }
}

/// Returns the threshold of the pods' cgroup for each hard one of the node (upstream
/// `addAllocatableThresholds`).
fn allocatable(all: &[Threshold]) -> Vec<Threshold> {
    let of_node = all
        .iter()
        .filter(|t| t.signal == Signal::MemoryAvailable && t.is_hard());
    of_node
        .map(|t| Threshold {
            signal: Signal::AllocatableMemoryAvailable,
            grace: None,
            ..*t
        })
        .collect()
}

/// Returns the signal whose thresholds a signal of containerfs takes over.
fn container_source(file_systems: FileSystems, signal: Signal) -> Option<Signal> {
    let with_images = file_systems == FileSystems::SeparateImages;
    match signal {
        Signal::ContainerFsAvailable if with_images => Some(Signal::ImageFsAvailable),
        Signal::ContainerFsAvailable => Some(Signal::NodeFsAvailable),
        Signal::ContainerFsInodesFree if with_images => Some(Signal::ImageFsInodesFree),
        Signal::ContainerFsInodesFree => Some(Signal::NodeFsInodesFree),
        _ => None,
    }
}

#[derive(Default)]
struct Parser {
    errors: Vec<ThresholdError>,
}

impl Parser {
    fn reject(&mut self, field: &'static str, message: String) {
        self.errors.push(ThresholdError { field, message });
    }

    fn invalid(&mut self, field: &'static str, signal: &str, text: &str, why: &str, example: &str) {
        let message = format!("{signal}: invalid value {text:?}{why}; set for example {example}");
        self.reject(field, message);
    }

    fn signal(&mut self, field: &'static str, name: &str) -> Option<Signal> {
        let signal = name.parse();
        signal
            .map_err(|unknown: crate::signal::UnknownSignal| {
                self.reject(field, unknown.to_string());
            })
            .ok()
    }

    fn amounts(
        &mut self,
        field: &'static str,
        map: &BTreeMap<String, String>,
    ) -> BTreeMap<Signal, Amount> {
        let mut amounts = BTreeMap::new();
        for (name, text) in map {
            let signal = self.signal(field, name);
            match Amount::parse_threshold(text) {
                Ok(amount) => {
                    if let Some((signal, amount)) = signal.zip(amount) {
                        amounts.insert(signal, amount);
                    }
                }
                Err(why) => self.invalid(field, name, text, why, AMOUNT_EXAMPLE),
            }
        }
        amounts
    }

    fn reclaims(&mut self, map: &BTreeMap<String, String>) -> BTreeMap<Signal, Amount> {
        let mut amounts = BTreeMap::new();
        for (name, text) in map {
            let signal = self.signal(RECLAIM, name);
            match (Amount::parse_reclaim(text), signal) {
                (Ok(amount), Some(signal)) => {
                    amounts.insert(signal, amount);
                }
                (Ok(_), None) => {}
                (Err(why), _) => self.invalid(RECLAIM, name, text, why, AMOUNT_EXAMPLE),
            }
        }
        amounts
    }

    fn periods(&mut self, map: &BTreeMap<String, String>) -> BTreeMap<Signal, Duration> {
        let mut periods = BTreeMap::new();
        for (name, text) in map {
            let signal = self.signal(GRACE, name);
            match (text.parse::<GoDuration>(), signal) {
                (Ok(period), _) if period < GoDuration::ZERO => {
                    self.invalid(GRACE, name, text, ", less than 0", "90s");
                }
                (Ok(period), Some(signal)) => {
                    periods.insert(signal, period.to_std());
                }
                (Ok(_), None) => {}
                (Err(_), _) => self.invalid(GRACE, name, text, "", "90s"),
            }
        }
        periods
    }
}

#[cfg(test)]
mod tests;
