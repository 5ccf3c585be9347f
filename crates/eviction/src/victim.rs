//! The pod to evict, with the texts of upstream.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use windlass_types::{Phase, PhaseOverride, PodUid};
use windlass_units::duration::go_duration;
use windlass_units::quantity::Quantity;

use crate::observation::Observation;
use crate::pod::PodFigures;
use crate::rank::Rank;
use crate::signal::{Resource, Signal};
use crate::threshold::Threshold;

/// `status.reason` of an evicted pod, and the reason of its event.
pub const EVICTED: &str = "Evicted";
/// Grace period of a hard eviction (upstream `immediateEvictionGracePeriodSeconds`).
pub const HARD_GRACE_PERIOD: Duration = Duration::from_secs(1);
/// Annotation of the event: containers above their request, joined by commas.
pub(crate) const OFFENDING_CONTAINERS: &str = "offending_containers";
/// Annotation of the event: what those containers use.
pub(crate) const OFFENDING_CONTAINERS_USAGE: &str = "offending_containers_usage";
/// Annotation of the event: the pod, if its pod-level request is compared.
pub(crate) const OFFENDING_POD: &str = "offending_pod";
/// Annotation of the event: what that pod uses.
pub(crate) const OFFENDING_POD_USAGE: &str = "offending_pod_usage";
/// Annotation of the event: the resource that is short.
pub(crate) const STARVED_RESOURCE: &str = "starved_resource";

/// A threshold that is met, with the observation that met it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetThreshold {
    /// The threshold.
    pub threshold: Threshold,
    /// What was observed.
    pub observed: Observation,
}

/// A pod to evict.
#[derive(Clone, Debug, PartialEq)]
pub struct Victim {
    /// UID.
    pub uid: PodUid,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Grace period that overrides that of the pod.
    pub grace: Duration,
    /// `status.message`, message of the event and of the condition `DisruptionTarget`.
    pub message: String,
    /// Annotations of the event.
    pub annotations: BTreeMap<String, String>,
    /// Why it is evicted.
    pub explanation: Explanation,
}

/// Why a pod was evicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The threshold, and what was available.
    pub met: MetThreshold,
    /// How the pod ranked.
    pub rank: Rank,
}

impl MetThreshold {
    /// True if the memory of its victim must not grow in the grace period: a hard threshold of
    /// memory.
    pub fn holds_memory(&self) -> bool {
        self.signal().resource() == Resource::Memory && self.threshold.grace.is_none()
    }

    /// Returns the signal.
    pub fn signal(&self) -> Signal {
        self.threshold.signal
    }

    /// Returns the threshold as an amount.
    pub fn quantity(&self) -> Quantity {
        self.threshold.quantity(self.observed.capacity)
    }

    /// Returns how much is available.
    pub fn available(&self) -> Quantity {
        self.signal().quantity(self.observed.available)
    }

    /// Returns how much is missing; 0 if only the minimum reclaim is.
    pub(crate) fn shortfall(&self) -> Quantity {
        let resource = self.signal().resource();
        resource.difference(self.quantity(), self.available())
    }

    /// Returns the message of the event on the node.
    pub fn event_message(&self) -> String {
        format!("Attempting to reclaim {}", self.signal().resource())
    }
}

/// `memory.available<100Mi (90Mi)`.
impl fmt::Display for MetThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.threshold, self.available())
    }
}

impl Victim {
    pub(crate) fn new(
        met: MetThreshold,
        pod: &PodFigures,
        rank: Rank,
        max_grace: Duration,
    ) -> Self {
        let (message, annotations) = message(&met, pod);
        Self {
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            grace: grace(&met.threshold, pod, max_grace),
            message,
            annotations,
            explanation: Explanation { met, rank },
        }
    }

    /// Returns the status of the evicted pod.
    pub fn phase_override(&self) -> PhaseOverride {
        PhaseOverride {
            phase: Phase::Failed,
            reason: EVICTED.to_owned(),
            message: self.message.clone(),
            disruption: Some(self.message.clone()),
        }
    }
}

/// `evict shop/web in 1s: Container …`.
impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grace = go_duration(self.grace);
        write!(f, "evict {}/{} in {grace}", self.namespace, self.name)
    }
}

/// `memory.available was 90Mi, 10Mi below its threshold of 100Mi; ranked because …`.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (met, signal) = (&self.met, self.met.signal());
        write!(f, "{signal} was {}, ", met.available())?;
        if met.shortfall().is_zero() {
            let resolved = met.threshold.resolved_at(met.observed.capacity);
            let missing = signal.resource().difference(resolved, met.available());
            write!(
                f,
                "{missing} less than the threshold and its minimum reclaim require ({resolved})"
            )?;
        } else {
            let (missing, quantity) = (met.shortfall(), met.quantity());
            write!(f, "{missing} below the threshold of {quantity}")?;
        }
        write!(f, "; ranked because {}", self.rank)
    }
}

fn grace(threshold: &Threshold, pod: &PodFigures, max_grace: Duration) -> Duration {
    if threshold.is_hard() {
        return HARD_GRACE_PERIOD;
    }
    let of_pod = pod.termination_grace.unwrap_or(max_grace);
    of_pod.min(max_grace).max(HARD_GRACE_PERIOD)
}

/// Returns message and annotations of an eviction (upstream `evictionMessage`).
fn message(met: &MetThreshold, pod: &PodFigures) -> (String, BTreeMap<String, String>) {
    let resource = met.signal().resource();
    let mut text = format!(
        "The node was low on resource: {resource}. Threshold quantity: {}, available: {}. ",
        met.quantity(),
        met.available()
    );
    let mut annotations = BTreeMap::new();
    let Some(usage) = &pod.usage else {
        return (text, annotations);
    };
    let mut annotate = |name: &str, value: String| {
        annotations.insert(name.to_owned(), value);
    };
    if let (Resource::Memory, Some(request), Some(used)) =
        (resource, pod.pod_level_memory_request, usage.memory)
    {
        let used = resource.quantity(used);
        text.push_str(&consumption("Pod", &pod.name, used, request, resource));
        annotate(OFFENDING_POD, pod.name.clone());
        annotate(OFFENDING_POD_USAGE, used.to_string());
    }
    let (mut names, mut amounts) = (Vec::new(), Vec::new());
    for container in &usage.containers {
        let requests = pod.containers.get(&container.name);
        let Some((requests, used)) = requests.zip(container.of(resource)) else {
            continue;
        };
        let (used, request) = (resource.quantity(used), requests.of(resource));
        if used > request {
            let name = container.name.as_str();
            text.push_str(&consumption("Container", name, used, request, resource));
            names.push(name);
            amounts.push(used.to_string());
        }
    }
    annotate(OFFENDING_CONTAINERS, names.join(","));
    annotate(OFFENDING_CONTAINERS_USAGE, amounts.join(","));
    annotate(STARVED_RESOURCE, resource.to_string());
    (text, annotations)
}

fn consumption(
    kind: &str,
    name: &str,
    used: Quantity,
    request: Quantity,
    resource: Resource,
) -> String {
    format!(
        "{kind} {name} was using {used}, request is {request}, \
         has larger consumption of {resource}. "
    )
}

#[cfg(test)]
mod tests;
