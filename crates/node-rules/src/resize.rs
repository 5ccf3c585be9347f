//! Allocation of the changed sizes of a pod (upstream `allocation.Manager`).
//!
//! A pod keeps its allocated resources until the node has allocated those of its spec. A resize that
//! only lacks room is deferred, one that this node can never do is infeasible.

mod changes;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::fmt;

use windlass_pod_inputs::resources::{
    QosClass, check_amounts, has_swap_share, pod_request, qos_class,
};
use windlass_types::corev1::{Container, PodCondition, ResourceRequirements};
use windlass_types::metav1::Time;
use windlass_types::names::RESIZE_PENDING;
use windlass_types::pod::{is_sidecar, restarts_on_resize};
use windlass_types::{Pod, PodExt, SharedPod, Timestamp};
use windlass_units::quantity::{Quantity, lookup};

use crate::admission::{AdmissionInput, Rejection, admit};

pub use changes::{ResizeChange, required_features, resize_changes};

/// What node and configuration allow resizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizePolicy {
    /// Feature gate `InPlacePodVerticalScalingInitContainers`.
    pub init_containers: bool,
    /// Feature gate `InPlacePodLevelResourcesVerticalScaling`.
    pub pod_level: bool,
    /// Guaranteed pods have exclusive CPUs, which cannot be resized.
    pub exclusive_cpus: bool,
    /// Guaranteed pods have exclusive memory, which cannot be resized.
    pub exclusive_memory: bool,
    /// Containers may use swap (`LimitedSwap`).
    pub swap: bool,
}

impl Default for ResizePolicy {
    fn default() -> Self {
        Self {
            init_containers: true,
            pod_level: true,
            exclusive_cpus: false,
            exclusive_memory: false,
            swap: false,
        }
    }
}

impl ResizePolicy {
    /// Returns the containers that can be resized.
    fn containers(self, pod: &Pod) -> impl Iterator<Item = &Container> {
        let inits = pod.init_containers().iter();
        let inits = inits.filter(move |c| self.init_containers || is_sidecar(c));
        pod.containers().iter().chain(inits)
    }
}

/// Decision about the resize of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeDecision {
    /// The spec has the allocated resources.
    Unchanged,
    /// The resources of the spec are allocated.
    Allocate,
    /// The resize waits until the node admits it.
    Deferred(Rejection),
    /// The node cannot do it.
    Infeasible(Infeasible),
}

impl fmt::Display for ResizeDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unchanged => f.write_str("unchanged"),
            Self::Allocate => f.write_str("allocate"),
            Self::Deferred(rejection) => write!(f, "deferred({})", rejection.reason),
            Self::Infeasible(infeasible) => write!(f, "infeasible({})", infeasible.detail),
        }
    }
}

/// Why a node can never do a resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Infeasible {
    /// Label `reason_detail` of `kubelet_pod_infeasible_resizes_total`.
    pub detail: &'static str,
    /// Message of the condition.
    pub message: String,
}

impl Infeasible {
    fn new(detail: &'static str, message: impl Into<String>) -> Self {
        Self {
            detail,
            message: message.into(),
        }
    }
}

windlass_types::text_enum! {
    /// Why a resize is not allocated: the reason of the condition [`PendingResize`].
    ///
    /// Its text is the value in the API.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum PendingReason {
        /// It is retried.
        Deferred = "Deferred",
        /// It is not retried until the spec changes.
        Infeasible = "Infeasible",
    }
}

/// A resize that is not allocated: the condition `PodResizePending`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingResize {
    /// Why.
    pub reason: PendingReason,
    /// The cause in one sentence.
    pub message: String,
    /// Generation of the spec that requests it.
    pub generation: Option<i64>,
    /// When it became pending for this reason.
    pub since: Timestamp,
}

impl PendingResize {
    /// Reads the condition of a pod.
    pub fn from_pod(pod: &Pod) -> Option<Self> {
        let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
        let condition = conditions.find(|c| c.type_ == RESIZE_PENDING)?;
        Some(Self {
            reason: match condition.reason.as_deref() {
                Some("Infeasible") => PendingReason::Infeasible,
                _ => PendingReason::Deferred,
            },
            message: condition.message.clone().unwrap_or_default(),
            generation: condition.observed_generation,
            since: condition.last_transition_time.as_ref()?.0,
        })
    }

    /// Returns the condition that follows `before`, which keeps the time of the same reason, and
    /// whether it is new: its reason or generation has changed.
    pub fn following(mut self, before: Option<&Self>) -> (Self, bool) {
        let Some(before) = before.filter(|before| before.reason == self.reason) else {
            return (self, true);
        };
        self.since = before.since;
        let is_new = before.generation != self.generation;
        (self, is_new)
    }

    /// Replaces the condition of a pod; `None` removes it. Returns false if the pod has it already.
    pub fn set(pending: Option<&Self>, pod: &mut SharedPod) -> bool {
        if Self::from_pod(pod).as_ref() == pending {
            return false;
        }
        let status = SharedPod::make_mut(pod).status.get_or_insert_default();
        let conditions = status.conditions.get_or_insert_default();
        conditions.retain(|condition| condition.type_ != RESIZE_PENDING);
        conditions.extend(pending.map(|pending| PodCondition {
            type_: RESIZE_PENDING.to_owned(),
            status: "True".to_owned(),
            reason: Some(pending.reason.as_str().to_owned()),
            message: Some(pending.message.clone()),
            observed_generation: pending.generation,
            last_transition_time: Some(Time(pending.since)),
            last_probe_time: None,
        }));
        true
    }
}

/// Decides whether the resources in the spec of `input.pod` are allocated.
pub fn decide_resize(input: AdmissionInput<'_>, allocated: &Pod) -> ResizeDecision {
    let (live, policy) = (input.pod, input.policy.resize);
    if !is_resized(live, allocated, policy) {
        return ResizeDecision::Unchanged;
    }
    if let Err(infeasible) = feasible(live, allocated, policy) {
        return ResizeDecision::Infeasible(infeasible);
    }
    match admit(input) {
        Ok(()) => ResizeDecision::Allocate,
        Err(rejection) => ResizeDecision::Deferred(rejection),
    }
}

/// True if the resources in the spec are not those that are allocated.
pub fn is_resized(live: &Pod, allocated: &Pod, policy: ResizePolicy) -> bool {
    let pod_level = |pod| PodExt::spec(pod).resources.as_ref();
    !is_same(pod_level(live), pod_level(allocated))
        || policy.containers(live).any(|container| {
            let other = find(allocated, container);
            !is_same(
                container.resources.as_ref(),
                other.and_then(|c| c.resources.as_ref()),
            )
        })
}

/// Order in which the resizes of pods are tried: those that request no more first, then by
/// priority, class and time since they are deferred.
pub fn resize_order(live: &Pod, allocated: &Pod) -> impl Ord + use<> {
    let since = PendingResize::from_pod(allocated).map(|pending| pending.since);
    (
        is_growing(live, allocated),
        Reverse(PodExt::spec(live).priority.unwrap_or_default()),
        qos_class(live) != QosClass::Guaranteed,
        since.is_none(),
        since,
    )
}

/// True if the pod requests more CPU or memory than it is allocated.
fn is_growing(live: &Pod, allocated: &Pod) -> bool {
    let grows = |name| pod_request(live, name) > pod_request(allocated, name);
    grows("cpu") || grows("memory")
}

fn feasible(live: &Pod, allocated: &Pod, policy: ResizePolicy) -> Result<(), Infeasible> {
    valid(live)?;
    if policy.swap && resizes_swap(live, allocated) {
        return Err(Infeasible::new(
            "swap_limitation",
            "In-place resize of containers with swap is not supported.",
        ));
    }
    let pod_level = |pod| PodExt::spec(pod).resources.as_ref();
    if !policy.pod_level && !is_same(pod_level(live), pod_level(allocated)) {
        return Err(Infeasible::new(
            "plr_feature_gate_off",
            "InPlacePodLevelResourcesVerticalScaling is disabled",
        ));
    }
    if qos_class(live) != qos_class(allocated) {
        return Err(Infeasible::new(
            "qos_class",
            "Pod QOS Class may not change as a result of resizing",
        ));
    }
    let is_guaranteed = qos_class(live) == QosClass::Guaranteed;
    for (exclusive, resource, manager, detail) in [
        (
            policy.exclusive_cpus,
            "cpu",
            "CPU Manager policy \"static\"",
            "guaranteed_pod_cpu_manager_static_policy",
        ),
        (
            policy.exclusive_memory,
            "memory",
            "Memory Manager policy \"Static\"",
            "guaranteed_pod_memory_manager_static_policy",
        ),
    ] {
        if exclusive && is_guaranteed && requests_differ(live, allocated, resource, policy) {
            let message = format!("Resize is infeasible for Guaranteed Pods alongside {manager}");
            return Err(Infeasible::new(detail, message));
        }
    }
    Ok(())
}

/// Rejects quantities that no API server accepts; elsewhere they would count as absent.
fn valid(live: &Pod) -> Result<(), Infeasible> {
    let invalid = |message: String| Infeasible::new("invalid_resources", message);
    check_amounts(live).map_err(|error| invalid(error.to_string()))?;
    let containers = live.containers().iter().chain(live.init_containers());
    let lists = containers.filter_map(|c| c.resources.as_ref());
    let lists = lists.chain(PodExt::spec(live).resources.as_ref());
    let mut amounts = lists
        .flat_map(|r| [&r.requests, &r.limits])
        .flatten()
        .flatten();
    let negative = amounts.find(|(_, amount)| {
        let amount = amount.0.parse::<Quantity>();
        amount.is_ok_and(|amount| amount < Quantity::ZERO)
    });
    match negative {
        Some((name, amount)) => Err(invalid(format!("{name}: {} is negative", amount.0))),
        None => Ok(()),
    }
}

/// True if the memory request of a container changes without a restart, and it may use swap before
/// or after that.
fn resizes_swap(live: &Pod, allocated: &Pod) -> bool {
    let mut containers = live.containers().iter().chain(live.init_containers());
    containers.any(|new| {
        let Some(old) = find(allocated, new) else {
            return false;
        };
        !restarts_on_resize(old, "memory")
            && own_request(new, "memory") != own_request(old, "memory")
            && (has_swap_share(live, new) || has_swap_share(allocated, old))
    })
}

fn requests_differ(live: &Pod, allocated: &Pod, name: &str, policy: ResizePolicy) -> bool {
    policy.containers(live).any(|container| {
        let old = find(allocated, container).and_then(|c| own_request(c, name));
        own_request(container, name) != old
    })
}

fn own_request(container: &Container, name: &str) -> Option<Quantity> {
    let requests = container.resources.as_ref()?.requests.as_ref();
    lookup(requests, name).ok().flatten()
}

/// Finds the app or init container with the same name.
fn find<'a>(pod: &'a Pod, container: &Container) -> Option<&'a Container> {
    let mut all = pod.containers().iter().chain(pod.init_containers());
    all.find(|other| other.name == container.name)
}

/// True for the same quantities, however they are written.
fn is_same(a: Option<&ResourceRequirements>, b: Option<&ResourceRequirements>) -> bool {
    if a == b {
        return true;
    }
    let requests = |r: Option<&ResourceRequirements>| r.and_then(|r| r.requests.clone());
    let limits = |r: Option<&ResourceRequirements>| r.and_then(|r| r.limits.clone());
    [(requests(a), requests(b)), (limits(a), limits(b))]
        .into_iter()
        .all(|(a, b)| {
            let (a, b) = (a.unwrap_or_default(), b.unwrap_or_default());
            let amount = |list, name: &str| lookup(Some(list), name).ok().flatten();
            a.len() == b.len()
                && a.iter().all(|(name, quantity)| {
                    b.get(name) == Some(quantity)
                        || amount(&a, name)
                            .is_some_and(|amount_a| amount(&b, name) == Some(amount_a))
                })
        })
}
