//! Kernel settings from requests and limits: CPU shares, CFS quota, memory limit, OOM score.

mod memory;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use windlass_types::corev1::{Container, ResourceRequirements};
use windlass_types::cri::LinuxResources;
use windlass_types::{ContainerSizes, Pod, PodExt, names};

use crate::node_facts::NodeFacts;
use windlass_types::pod::is_sidecar;
use windlass_units::quantity::{Quantity, QuantityError, lookup};

pub use memory::{has_swap_share, huge_page_resource, huge_page_unit};

const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;
const SHARES_PER_CPU: i64 = 1024;
/// Min quota in Linux, 1 ms.
const MIN_QUOTA_MICROS: i64 = 1000;

/// OOM score of guaranteed and critical pods, which are killed last.
const OOM_GUARANTEED: i64 = -997;
/// OOM score of best-effort pods, which are killed first.
const OOM_BEST_EFFORT: i64 = 1000;
/// Min priority of critical pods.
pub const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

windlass_types::text_enum! {
    /// `status.qosClass`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum QosClass {
        /// Limits equal requests for CPU and memory in all containers.
        Guaranteed = "Guaranteed",
        /// At least one request or limit.
        Burstable = "Burstable",
        /// No request or limit.
        BestEffort = "BestEffort",
    }
}

/// Invalid quantity in the resources of a pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {source}")]
pub struct ResourceError {
    /// Path of the quantity.
    pub field: String,
    /// Cause.
    pub source: QuantityError,
}

/// Checks every quantity of a pod. The other functions treat an invalid quantity as absent.
///
/// # Errors
/// The first invalid quantity.
pub fn check_amounts(pod: &Pod) -> Result<(), ResourceError> {
    let containers = pod.init_containers().iter().chain(pod.containers());
    for container in containers {
        check_list(
            &format!("container {}", container.name),
            container.resources.as_ref(),
        )?;
    }
    check_list("spec", PodExt::spec(pod).resources.as_ref())?;
    check_map("spec.overhead", PodExt::spec(pod).overhead.as_ref())
}

/// Returns the QoS class (upstream `ComputePodQOS`): of the pod-level resources, if set, else of
/// all containers.
pub fn qos_class(pod: &Pod) -> QosClass {
    let pod_level = PodExt::spec(pod).resources.as_ref();
    let lists: Vec<Option<&ResourceRequirements>> = match pod_level {
        Some(resources) => vec![Some(resources)],
        None => {
            let all = pod.containers().iter().chain(pod.init_containers());
            all.map(|c| c.resources.as_ref()).collect()
        }
    };
    let mut any = false;
    let mut guaranteed = true;
    for resources in lists {
        for name in ["cpu", "memory"] {
            let limit = positive(limit(resources, name));
            let request = positive(request(resources, name));
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && limit == request;
        }
    }
    match (any, guaranteed) {
        (false, _) => QosClass::BestEffort,
        (true, true) => QosClass::Guaranteed,
        (true, false) => QosClass::Burstable,
    }
}

/// Returns the CPU shares of a request; 2 for no request.
pub fn cpu_shares(milli_cpu: i64) -> i64 {
    let shares = milli_cpu.saturating_mul(SHARES_PER_CPU) / 1000;
    shares.clamp(MIN_SHARES, MAX_SHARES)
}

/// Returns the CFS quota of a limit for one period, in microseconds; 0 for no limit.
pub fn cpu_quota(milli_cpu: i64, period_micros: i64) -> i64 {
    if milli_cpu == 0 {
        return 0;
    }
    (milli_cpu.saturating_mul(period_micros) / 1000).max(MIN_QUOTA_MICROS)
}

/// Returns the request in milli-CPU of CPU shares; 0 if they are not set.
pub fn milli_cpu_of_shares(shares: i64) -> i64 {
    if shares < MIN_SHARES {
        return 0;
    }
    let shares = shares.min(MAX_SHARES);
    (shares * 1000 + SHARES_PER_CPU - 1) / SHARES_PER_CPU
}

/// Returns the limit in milli-CPU of a CFS quota; 0 for no limit.
pub fn milli_cpu_of_quota(quota_micros: i64, period_micros: i64) -> i64 {
    if quota_micros <= 0 || period_micros <= 0 {
        return 0;
    }
    quota_micros.saturating_mul(1000) / period_micros
}

/// Returns `oom_score_adj` of a container: a larger memory request gives a lower score. A sidecar
/// has at most the score of the smallest app container. Pod-level requests beyond the sum of the
/// containers count for each container in equal parts.
pub fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity: i64) -> i64 {
    if is_node_critical(pod) {
        return OOM_GUARANTEED;
    }
    match qos_class(pod) {
        QosClass::Guaranteed => return OOM_GUARANTEED,
        QosClass::BestEffort => return OOM_BEST_EFFORT,
        QosClass::Burstable => {}
    }
    let memory = |c: &Container| request(c.resources.as_ref(), "memory").map_or(0, Quantity::value);
    let score = |bytes: i64| {
        let share = 1000 * i128::from(bytes) / i128::from(memory_capacity.max(1));
        OOM_BEST_EFFORT - i64::try_from(share).unwrap_or(i64::MAX)
    };
    let spare = spare_memory_of_each(pod);
    let mut adjust = score(memory(container) + spare);
    // an app container may have a restart policy too
    let is_init = pod
        .init_containers()
        .iter()
        .any(|c| c.name == container.name);
    if is_init && is_sidecar(container) {
        let smallest = pod.containers().iter().map(memory).min().unwrap_or(0);
        adjust = adjust.min(score(smallest + spare));
    }
    adjust.clamp(OOM_BEST_EFFORT + OOM_GUARANTEED, OOM_BEST_EFFORT - 1)
}

/// Returns the part of each container in the pod-level memory request beyond the sum of the
/// containers (upstream `remainingPodMemReqPerContainer`).
fn spare_memory_of_each(pod: &Pod) -> i64 {
    let pod_level = request(PodExt::spec(pod).resources.as_ref(), "memory");
    let Some(pod_level) = positive(pod_level) else {
        return 0;
    };
    let containers = pod.containers().len() + pod.init_containers().len();
    let requested = containers_total(pod, "memory", request).map_or(0, Quantity::value);
    (pod_level.value() - requested) / i64::try_from(containers).unwrap_or(i64::MAX).max(1)
}

/// Returns the kernel settings of a container.
pub fn container_resources(pod: &Pod, container: &Container, node: &NodeFacts) -> LinuxResources {
    let own = container.resources.as_ref();
    let pod_level = PodExt::spec(pod).resources.as_ref();
    // the pod-level limit is the default
    let limit_of = |name| positive(limit(own, name)).or_else(|| positive(limit(pod_level, name)));
    let mut resources = linux_resources(
        Amounts {
            cpu_request: request(own, "cpu"),
            cpu_limit: limit_of("cpu"),
            memory_limit: limit_of("memory"),
        },
        node,
    );
    resources.oom_score_adj = oom_score_adj(pod, container, node.memory_capacity);
    memory::set_limits(&mut resources, pod, container, node);
    resources
}

/// Returns the CPU shares of a container. The default of its request is its limit; a request of 0 is
/// none.
pub fn container_cpu_shares(pod: &Pod, container: &Container) -> i64 {
    let own = container.resources.as_ref();
    let pod_level = PodExt::spec(pod).resources.as_ref();
    let amount = request(own, "cpu")
        .or_else(|| positive(limit(own, "cpu")))
        .or_else(|| positive(limit(pod_level, "cpu")));
    cpu_shares(amount.map_or(0, Quantity::milli_value))
}

/// Returns the amounts of a container that an in-place resize may change; the pod-level limit is the
/// default of its limit (upstream `containerResourcesFromRequirements`).
pub fn container_sizes(pod: &Pod, container: &Container) -> ContainerSizes {
    let own = container.resources.as_ref();
    let pod_level = PodExt::spec(pod).resources.as_ref();
    let limit_of = |name| positive(limit(own, name)).or_else(|| positive(limit(pod_level, name)));
    let milli = |amount: Option<Quantity>| amount.map_or(0, Quantity::milli_value);
    let bytes = |amount: Option<Quantity>| amount.map_or(0, Quantity::value);
    ContainerSizes {
        cpu_request: milli(request(own, "cpu")),
        cpu_limit: milli(limit_of("cpu")),
        memory_request: bytes(request(own, "memory")),
        memory_limit: bytes(limit_of("memory")),
    }
}

/// Returns whether a quota allows the same CPU time as another: in microseconds, with their
/// periods. A quota of 0 or less is unlimited.
pub fn is_same_quota(a: (i64, i64), b: (i64, i64)) -> bool {
    if a.0 <= 0 || b.0 <= 0 {
        return a.0 <= 0 && b.0 <= 0;
    }
    i128::from(a.0) * i128::from(b.1) == i128::from(b.0) * i128::from(a.1)
}

/// Returns the kernel settings of a pod without its overhead, for runtimes that create a VM.
pub fn sandbox_resources(pod: &Pod, node: &NodeFacts) -> LinuxResources {
    linux_resources(
        Amounts {
            cpu_request: pod_total(pod, "cpu", request),
            cpu_limit: pod_total(pod, "cpu", limit),
            memory_limit: pod_total(pod, "memory", limit),
        },
        node,
    )
}

/// Returns the kernel settings of `spec.overhead`, `None` without overhead.
pub fn overhead_resources(pod: &Pod, node: &NodeFacts) -> Option<LinuxResources> {
    let overhead = PodExt::spec(pod).overhead.as_ref()?;
    let amount = |name| lookup(Some(overhead), name).ok().flatten();
    Some(linux_resources(
        Amounts {
            cpu_request: amount("cpu"),
            cpu_limit: amount("cpu"),
            memory_limit: amount("memory"),
        },
        node,
    ))
}

/// Returns the request of a pod for one resource (upstream `PodRequests` without overhead): the sum
/// of app containers and sidecars, or the peak of the init containers.
pub fn pod_request(pod: &Pod, name: &str) -> Option<Quantity> {
    pod_total(pod, name, request)
}

/// Returns the limit of a pod for one resource (upstream `PodLimits` without overhead).
pub fn pod_limit(pod: &Pod, name: &str) -> Option<Quantity> {
    pod_total(pod, name, limit)
}

/// Adds the overhead of a pod to an amount of one resource.
pub fn with_overhead(pod: &Pod, name: &str, amount: Option<Quantity>) -> Option<Quantity> {
    let overhead = lookup(PodExt::spec(pod).overhead.as_ref(), name);
    match (amount, overhead.ok().flatten()) {
        (Some(amount), Some(overhead)) => Some(amount + overhead),
        (amount, overhead) => amount.or(overhead),
    }
}

/// Returns whether the pod is critical with class `system-node-critical`.
pub(crate) fn is_node_critical(pod: &Pod) -> bool {
    let class = PodExt::spec(pod).priority_class_name.as_deref();
    is_critical(pod) && class == Some("system-node-critical")
}

/// True if a container (`None`: any) gets an extended resource through the resource claim that the
/// scheduler made for it: no device plugin provides it, and no node capacity limits it.
pub fn is_from_claim(pod: &Pod, container: Option<&str>, resource: &str) -> bool {
    let status = pod.status.as_ref();
    let claim = status.and_then(|it| it.extended_resource_claim_status.as_ref());
    let mut mappings = claim.into_iter().flat_map(|it| &it.request_mappings);
    mappings.any(|it| {
        it.resource_name == resource && container.is_none_or(|name| it.container_name == name)
    })
}

/// Returns whether a pod is critical: static, a mirror pod, or of priority 2 000 000 000 or more
/// (upstream `IsCriticalPod`).
pub fn is_critical(pod: &Pod) -> bool {
    let priority = PodExt::spec(pod).priority;
    pod.is_static()
        || pod.annotation(names::ANN_CONFIG_MIRROR).is_some()
        || priority.is_some_and(|p| p >= SYSTEM_CRITICAL_PRIORITY)
}

/// Input of [`linux_resources`].
#[derive(Clone, Copy)]
struct Amounts {
    cpu_request: Option<Quantity>,
    cpu_limit: Option<Quantity>,
    memory_limit: Option<Quantity>,
}

fn linux_resources(amounts: Amounts, node: &NodeFacts) -> LinuxResources {
    let milli = |q: Option<Quantity>| q.map_or(0, Quantity::milli_value);
    let cpu_limit = milli(amounts.cpu_limit);
    let mut resources = LinuxResources {
        cpu_shares: cpu_shares(milli(amounts.cpu_request.or(amounts.cpu_limit))),
        memory_limit: amounts.memory_limit.map_or(0, Quantity::value),
        ..LinuxResources::default()
    };
    if node.cpu_cfs_quota {
        resources.cpu_period = micros(node.cpu_cfs_quota_period);
        resources.cpu_quota = cpu_quota(cpu_limit, resources.cpu_period);
    }
    if node.cgroup_v2 && !node.single_process_oom_kill {
        resources
            .unified
            .insert("memory.oom.group".to_owned(), "1".to_owned());
    }
    resources
}

type Pick = fn(Option<&ResourceRequirements>, &str) -> Option<Quantity>;

fn pod_total(pod: &Pod, name: &str, pick: Pick) -> Option<Quantity> {
    let pod_level = PodExt::spec(pod).resources.as_ref();
    if let Some(amount) = pick(pod_level, name) {
        return Some(amount);
    }
    containers_total(pod, name, pick)
}

/// As [`pod_total`], without pod-level resources (upstream `AggregateContainerRequests`).
fn containers_total(pod: &Pod, name: &str, pick: Pick) -> Option<Quantity> {
    let amount = |c: &Container| pick(c.resources.as_ref(), name);
    let mut total = pod
        .containers()
        .iter()
        .filter_map(amount)
        .reduce(|a, b| a + b);
    let mut sidecars: Option<Quantity> = None;
    let mut peak: Option<Quantity> = None;
    for container in pod.init_containers() {
        let own = amount(container);
        let while_running = if is_sidecar(container) {
            sidecars = plus(sidecars, own);
            sidecars
        } else {
            plus(own, sidecars)
        };
        peak = peak.max(while_running);
    }
    total = plus(total, sidecars);
    total.max(peak)
}

fn plus(a: Option<Quantity>, b: Option<Quantity>) -> Option<Quantity> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    }
}

fn limit(resources: Option<&ResourceRequirements>, name: &str) -> Option<Quantity> {
    lookup(resources?.limits.as_ref(), name).ok().flatten()
}

/// The default request is the limit, as in the API server.
fn request(resources: Option<&ResourceRequirements>, name: &str) -> Option<Quantity> {
    let own = lookup(resources?.requests.as_ref(), name).ok().flatten();
    own.or_else(|| limit(resources, name))
}

fn positive(amount: Option<Quantity>) -> Option<Quantity> {
    amount.filter(|q| *q > Quantity::ZERO)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn check_list(owner: &str, resources: Option<&ResourceRequirements>) -> Result<(), ResourceError> {
    let Some(resources) = resources else {
        return Ok(());
    };
    check_map(
        &format!("{owner} resources.requests"),
        resources.requests.as_ref(),
    )?;
    check_map(
        &format!("{owner} resources.limits"),
        resources.limits.as_ref(),
    )
}

fn check_map(
    field: &str,
    amounts: Option<&BTreeMap<String, ApiQuantity>>,
) -> Result<(), ResourceError> {
    for (name, amount) in amounts.into_iter().flatten() {
        let parsed = amount.0.parse::<Quantity>();
        parsed.map_err(|source| ResourceError {
            field: format!("{field}.{name}"),
            source,
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
