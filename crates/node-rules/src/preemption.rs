//! Which pods a critical pod preempts (upstream `CriticalPodAdmissionHandler`).
//!
//! A critical pod that lacks only resources preempts other pods: as few as possible of the
//! Guaranteed class, then of the Burstable class, then of the BestEffort class. Within a class the
//! pod whose requests are closest to what is lacking is first.

#[cfg(test)]
mod tests;

use std::fmt;

use windlass_pod_inputs::resources::{QosClass, is_critical, qos_class};
use windlass_types::{Phase, PhaseOverride, Pod, PodExt, PodUid};

use crate::admission::{Insufficient, PodRequests};

/// `status.reason` of a preempted pod.
pub const PREEMPTING: &str = "Preempting";
/// `status.message` of a preempted pod, and message of its event.
pub const PREEMPTED: &str = "Preempted in order to admit critical pod";
/// Message of the condition `DisruptionTarget` of a preempted pod.
const DISRUPTION: &str = "Pod was preempted by Kubelet to accommodate a critical pod.";

/// The pods to preempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreemptionPlan {
    /// UIDs: BestEffort, Burstable, then Guaranteed pods.
    pub victims: Vec<PodUid>,
    /// First resource that the critical pod lacks; label of `kubelet_preemptions`.
    pub signal: String,
}

impl fmt::Display for PreemptionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let victims: Vec<&str> = self.victims.iter().map(PodUid::as_str).collect();
        write!(f, "preempt({} for {})", victims.join(" "), self.signal)
    }
}

/// No set of pods frees enough resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreemptionError {
    /// Resource and amount that would still be lacking.
    lacking: Vec<(String, i64)>,
}

impl std::error::Error for PreemptionError {}

/// The text of upstream, with its trailing comma.
impl fmt::Display for PreemptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no set of running pods found to reclaim resources: [")?;
        for (resource, amount) in &self.lacking {
            write!(f, "(res: {resource}, q: {amount}), ")?;
        }
        f.write_str("]")
    }
}

/// Returns the status of a preempted pod.
pub fn preempted() -> PhaseOverride {
    PhaseOverride {
        phase: Phase::Failed,
        reason: PREEMPTING.to_owned(),
        message: PREEMPTED.to_owned(),
        disruption: Some(DISRUPTION.to_owned()),
    }
}

/// Chooses the pods that `preemptor` preempts. `running` are the pods that can free resources,
/// `lacking` is what the preemptor lacks beside them.
///
/// # Errors
/// All pods of lower priority together free too little.
pub fn plan_preemption<'a>(
    preemptor: &Pod,
    running: impl IntoIterator<Item = &'a Pod>,
    lacking: &[Insufficient],
) -> Result<PreemptionPlan, PreemptionError> {
    let signal = lacking.first().map(|lack| lack.resource.clone());
    let needed = Needed::new(lacking);
    let mut classes = Classes::default();
    for pod in running.into_iter().filter(|pod| preempts(preemptor, pod)) {
        classes.of(qos_class(pod)).push(Candidate::new(pod));
    }
    let Classes {
        guaranteed,
        burstable,
        best_effort,
    } = classes;
    needed
        .without(best_effort.iter().chain(&burstable).chain(&guaranteed))
        .met()?;
    // each class gives only what the classes below it cannot
    let guaranteed = closest(
        guaranteed,
        needed.without(best_effort.iter().chain(&burstable)),
    )?;
    let burstable = closest(
        burstable,
        needed.without(best_effort.iter().chain(&guaranteed)),
    )?;
    let best_effort = closest(
        best_effort,
        needed.without(burstable.iter().chain(&guaranteed)),
    )?;
    let victims = best_effort.into_iter().chain(burstable).chain(guaranteed);
    Ok(PreemptionPlan {
        victims: victims.map(|victim| victim.uid).collect(),
        signal: signal.unwrap_or_default(),
    })
}

/// True if a pod may preempt another (upstream `Preemptable`).
fn preempts(preemptor: &Pod, other: &Pod) -> bool {
    let priority = |pod| PodExt::spec(pod).priority;
    is_critical(preemptor) && !is_critical(other)
        || priority(preemptor)
            .zip(priority(other))
            .is_some_and(|(own, others)| own > others)
}

#[derive(Debug)]
struct Candidate {
    uid: PodUid,
    requests: PodRequests,
}

impl Candidate {
    fn new(pod: &Pod) -> Self {
        Self {
            uid: pod.uid(),
            requests: PodRequests::from_pod(pod),
        }
    }

    /// Request of a resource in its unit; each pod counts as one of `pods`.
    fn request(&self, resource: &str) -> i64 {
        match resource {
            "pods" => 1,
            _ => self.requests.resources.get(resource).copied().unwrap_or(0),
        }
    }

    /// Orders candidates of equal distance: by memory, then CPU.
    fn size(&self) -> (i64, i64) {
        (self.request("memory"), self.request("cpu"))
    }
}

#[derive(Debug, Default)]
struct Classes {
    guaranteed: Vec<Candidate>,
    burstable: Vec<Candidate>,
    best_effort: Vec<Candidate>,
}

impl Classes {
    fn of(&mut self, class: QosClass) -> &mut Vec<Candidate> {
        match class {
            QosClass::Guaranteed => &mut self.guaranteed,
            QosClass::Burstable => &mut self.burstable,
            QosClass::BestEffort => &mut self.best_effort,
        }
    }
}

/// Amounts above 0 that are still lacking, by resource.
#[derive(Clone, Debug)]
struct Needed(Vec<(String, i64)>);

impl Needed {
    fn new(lacking: &[Insufficient]) -> Self {
        let amounts = lacking.iter().map(|lack| {
            let free = lack.capacity.saturating_sub(lack.used);
            (lack.resource.clone(), lack.requested.saturating_sub(free))
        });
        Self(amounts.collect())
    }

    /// Returns what is lacking without these pods.
    fn without<'a>(&self, pods: impl Iterator<Item = &'a Candidate> + Clone) -> Self {
        let left = self.0.iter().filter_map(|(resource, amount)| {
            let freed = pods
                .clone()
                .map(|pod| pod.request(resource))
                .fold(0, i64::saturating_add);
            let left = amount.saturating_sub(freed);
            (left > 0).then(|| (resource.clone(), left))
        });
        Self(left.collect())
    }

    /// Sum of the squared shares that a pod leaves unmet: each resource has the same weight.
    fn distance(&self, pod: &Candidate) -> f64 {
        let shares = self.0.iter().map(|(resource, amount)| {
            let left = amount.saturating_sub(pod.request(resource)).max(0);
            (left as f64 / *amount as f64).powi(2)
        });
        shares.sum()
    }

    fn met(self) -> Result<(), PreemptionError> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(PreemptionError { lacking: self.0 })
    }
}

/// Takes the pod of the smallest distance, of equals the smaller one, until nothing is lacking.
fn closest(
    mut pods: Vec<Candidate>,
    mut needed: Needed,
) -> Result<Vec<Candidate>, PreemptionError> {
    let mut victims = Vec::new();
    while !needed.0.is_empty() {
        let by_distance = |a: &Candidate, b: &Candidate| {
            let distances = needed.distance(a).total_cmp(&needed.distance(b));
            distances.then_with(|| a.size().cmp(&b.size()))
        };
        let best = (0..pods.len()).min_by(|a, b| by_distance(&pods[*a], &pods[*b]));
        let Some(best) = best else {
            return Err(PreemptionError { lacking: needed.0 });
        };
        let victim = pods.swap_remove(best);
        needed = needed.without(std::iter::once(&victim));
        victims.push(victim);
    }
    Ok(victims)
}
