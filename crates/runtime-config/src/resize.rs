//! In-place resize: what has to change so that a running pod has its allocated sizes (upstream
//! `doPodResizeAction`).
//!
//! Allocated sizes are compared with those that the runtime and the kernel report. What cannot be
//! read back is compared with the values of the creation or of the last accepted call. Containers
//! that a resize restarts are not part of it.
//!
//! Order: the pod's cgroup grows, containers change (those that only shrink first), the pod's
//! cgroup shrinks. A memory limit is not set below the usage.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_inputs::resources::{
    container_resources, container_sizes, cpu_shares, is_same_quota,
};
use windlass_types::corev1::Container;
use windlass_types::cri::LinuxResources;
use windlass_types::pod::is_sidecar;
use windlass_types::{ContainerId, ContainerState, ObservedContainer, ObservedPod, Pod, PodExt};

use crate::container_config::without_quota;
use crate::pod_cgroup::{CgroupValues, cpu_weight};

/// Size of a page; the kernel rounds memory limits down.
const PAGE: i64 = 4096;

/// Resources of containers that the runtime accepted in this agent run.
pub type AcceptedResources = BTreeMap<ContainerId, LinuxResources>;

/// Input of [`resize_plan`].
#[derive(Clone, Copy, Debug)]
pub struct ResizeInput<'a> {
    /// The pod with its allocated resources.
    pub pod: &'a Pod,
    /// The observed pod.
    pub observed: &'a ObservedPod,
    /// The node.
    pub node: &'a NodeFacts,
    /// Accepted resources: a runtime may report others.
    pub accepted: &'a AcceptedResources,
    /// Containers with exclusive CPUs; they have no CFS quota.
    pub exclusive_cpus: &'a BTreeSet<String>,
    /// Values of the pod's cgroup and those that it should have; `None` without a cgroup.
    pub cgroup: Option<(CgroupValues, CgroupValues)>,
}

/// A running container whose resources change.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerToResize {
    /// ID of the instance.
    pub id: ContainerId,
    /// Name in the pod spec.
    pub name: String,
    /// The resources to set.
    pub resources: LinuxResources,
    /// The memory limit becomes lower.
    pub lowers_memory: bool,
    /// A value grows.
    pub grows: bool,
}

/// Changes of a running pod, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResizePlan {
    /// Values of the pod's cgroup that grow; set first.
    pub raise: CgroupValues,
    /// Containers in the order of their changes.
    pub containers: Vec<ContainerToResize>,
    /// Values of the pod's cgroup that shrink; set last.
    pub lower: CgroupValues,
}

impl ResizePlan {
    /// True without a change.
    pub fn is_empty(&self) -> bool {
        !self.changes_cgroup() && self.containers.is_empty()
    }

    /// True if the pod's cgroup changes.
    pub fn changes_cgroup(&self) -> bool {
        let nothing = CgroupValues::default();
        self.raise != nothing || self.lower != nothing
    }

    /// True if the usage must be checked before.
    pub fn lowers_memory(&self) -> bool {
        self.lower.memory_limit.is_some() || self.containers.iter().any(|c| c.lowers_memory)
    }
}

impl fmt::Display for ResizePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if self.raise != CgroupValues::default() {
            words.push(format!("raise({})", self.raise));
        }
        for container in &self.containers {
            let r = &container.resources;
            words.push(format!(
                "resize({} shares={} quota={} memory={})",
                container.name, r.cpu_shares, r.cpu_quota, r.memory_limit
            ));
        }
        if self.lower != CgroupValues::default() {
            words.push(format!("lower({})", self.lower));
        }
        if words.is_empty() {
            words.push("nothing".to_owned());
        }
        f.write_str(&words.join(" "))
    }
}

/// Returns the changes that a running pod needs.
pub fn resize_plan(input: ResizeInput<'_>) -> ResizePlan {
    let specs = resizable_containers(input.pod, input.node);
    let mut containers: Vec<_> = specs.filter_map(|spec| container(input, spec)).collect();
    // what only shrinks leaves room for the others
    containers.sort_by_key(|c| (c.grows, !c.lowers_memory));
    let (raise, lower) = match input.cgroup {
        Some((current, wanted)) => cgroup_steps(&current, &wanted, input.node.cgroup_v2),
        None => Default::default(),
    };
    ResizePlan {
        raise,
        containers,
        lower,
    }
}

/// Containers that change while they run: app containers, sidecars and, with their feature gate,
/// the other init containers.
fn resizable_containers<'a>(pod: &'a Pod, node: &NodeFacts) -> impl Iterator<Item = &'a Container> {
    let all_init = node.resize_init_containers;
    let init = pod.init_containers().iter();
    init.filter(move |c| all_init || is_sidecar(c))
        .chain(pod.containers())
}

fn container(input: ResizeInput<'_>, spec: &Container) -> Option<ContainerToResize> {
    let instance = input.observed.latest(&spec.name)?;
    if instance.state != ContainerState::Running {
        return None;
    }
    let wanted = wanted_resources(input, spec);
    let current = current_resources(input, spec, instance);
    if let Some(current) = &current
        && is_in_force(&wanted, current)
    {
        return None;
    }
    // a runtime that rounds is not asked again
    let accepted = input.accepted.get(&instance.id);
    if accepted.is_some_and(|accepted| is_in_force(&wanted, accepted)) {
        return None;
    }
    let current = current.unwrap_or_default();
    let quota = |resources: &LinuxResources| (resources.cpu_quota, resources.cpu_period);
    let grows_quota = wanted.cpu_quota > 0 && is_larger_quota(quota(&wanted), quota(&current));
    let grows_memory = current.memory_limit > 0 && wanted.memory_limit > current.memory_limit;
    Some(ContainerToResize {
        id: instance.id.clone(),
        name: spec.name.clone(),
        lowers_memory: wanted.memory_limit > 0
            && (current.memory_limit <= 0 || wanted.memory_limit < current.memory_limit),
        grows: grows_quota || grows_memory || wanted.cpu_shares > current.cpu_shares,
        resources: wanted,
    })
}

fn wanted_resources(input: ResizeInput<'_>, spec: &Container) -> LinuxResources {
    let mut wanted = container_resources(input.pod, spec, input.node);
    if input.exclusive_cpus.contains(&spec.name) {
        without_quota(&mut wanted);
    }
    wanted
}

/// Returns the resources of a running instance: as the runtime reports them, else as they were
/// accepted or created. `None` if nothing is known.
fn current_resources(
    input: ResizeInput<'_>,
    spec: &Container,
    instance: &ObservedContainer,
) -> Option<LinuxResources> {
    let reported = instance.resources.clone();
    let accepted = || input.accepted.get(&instance.id).cloned();
    let created = || {
        let sizes = instance.created_sizes?;
        let wanted = wanted_resources(input, spec);
        let asked = container_sizes(input.pod, spec);
        // what has not changed since the creation is as it would be created
        let same_cpu = (sizes.cpu_request, sizes.cpu_limit) == (asked.cpu_request, asked.cpu_limit);
        let same_memory = sizes.memory_limit == asked.memory_limit;
        let mut current = wanted;
        if !same_cpu {
            // without a request they were perhaps those of the limit: set once too often
            current.cpu_shares = cpu_shares(sizes.cpu_request);
            current.cpu_quota = sizes.cpu_limit.saturating_mul(current.cpu_period) / 1000;
        }
        if !same_memory {
            current.memory_limit = sizes.memory_limit;
        }
        Some(current)
    };
    reported.or_else(accepted).or_else(created)
}

/// True if `current` has all that is set in `wanted`. Limits cannot be removed.
fn is_in_force(wanted: &LinuxResources, current: &LinuxResources) -> bool {
    let quota = wanted.cpu_quota <= 0
        || is_same_quota(
            (wanted.cpu_quota, wanted.cpu_period),
            (current.cpu_quota, current.cpu_period),
        );
    let unified = |(key, value): (&String, &String)| current.unified.get(key) == Some(value);
    quota
        && wanted.cpu_shares == current.cpu_shares
        && (wanted.memory_limit <= 0 || wanted.memory_limit == current.memory_limit)
        && (current.unified.is_empty() || wanted.unified.iter().all(unified))
}

/// Returns the values of a pod's cgroup that grow and those that shrink.
fn cgroup_steps(
    current: &CgroupValues,
    wanted: &CgroupValues,
    v2: bool,
) -> (CgroupValues, CgroupValues) {
    let (mut raise, mut lower) = (CgroupValues::default(), CgroupValues::default());
    let weight = |shares| if v2 { cpu_weight(shares) } else { shares };
    if let Some(shares) = wanted.cpu_shares {
        let (old, new) = (current.cpu_shares.map_or(0, weight), weight(shares));
        if new > old {
            raise.cpu_shares = Some(shares);
        } else if new < old {
            lower.cpu_shares = Some(shares);
        }
    }
    if let Some(quota) = wanted.cpu_quota {
        let old = current.cpu_quota.unwrap_or((-1, quota.1));
        if !is_same_quota(quota, old) {
            match is_larger_quota(quota, old) {
                true => raise.cpu_quota = Some(quota),
                false => lower.cpu_quota = Some(quota),
            }
        }
    }
    if let Some(bytes) = wanted.memory_limit {
        let old = current.memory_limit.map_or(i64::MAX, |limit| limit / PAGE);
        if bytes / PAGE > old {
            raise.memory_limit = Some(bytes);
        } else if bytes / PAGE < old {
            lower.memory_limit = Some(bytes);
        }
    }
    if wanted.pids_limit.is_some() && wanted.pids_limit != current.pids_limit {
        raise.pids_limit = wanted.pids_limit;
    }
    (raise.memory_min, lower.memory_min) = protection(current.memory_min, wanted.memory_min);
    (raise.memory_low, lower.memory_low) = protection(current.memory_low, wanted.memory_low);
    (raise, lower)
}

/// Returns protected memory that grows or shrinks; it is 0 in a new cgroup.
fn protection(current: Option<i64>, wanted: Option<i64>) -> (Option<i64>, Option<i64>) {
    let old = current.unwrap_or(0);
    (
        wanted.filter(|bytes| bytes / PAGE > old / PAGE),
        wanted.filter(|bytes| bytes / PAGE < old / PAGE),
    )
}

fn is_larger_quota(a: (i64, i64), b: (i64, i64)) -> bool {
    match (a.0 > 0, b.0 > 0) {
        (false, _) => true,
        (true, false) => false,
        (true, true) => i128::from(a.0) * i128::from(b.1) > i128::from(b.0) * i128::from(a.1),
    }
}

/// Memory usage of a running pod in bytes, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Of its cgroup.
    pub pod: Option<i64>,
    /// Of containers by their ID.
    pub containers: BTreeMap<ContainerId, i64>,
}

/// Checks that no memory limit is set below the usage (upstream `validateMemoryResizeAction`).
///
/// # Errors
/// A limit is below the usage, or the usage is unknown: nothing of the plan is done.
pub fn check_memory(plan: &ResizePlan, usage: &MemoryUsage) -> Result<(), String> {
    let mut errors = Vec::new();
    let mut check = |what: &str, limit: i64, used: Option<i64>| match used {
        None => errors.push(format!("missing {what} memory usage")),
        Some(used) if used >= limit => errors.push(format!(
            "attempting to set {what} memory limit ({limit}) below current usage ({used})"
        )),
        Some(_) => {}
    };
    if let Some(limit) = plan.lower.memory_limit {
        check("pod", limit, usage.pod);
    }
    for container in plan.containers.iter().filter(|c| c.lowers_memory) {
        let used = usage.containers.get(&container.id).copied();
        let what = format!("container {:?}", container.name);
        check(&what, container.resources.memory_limit, used);
    }
    match errors.as_slice() {
        [] => Ok(()),
        [error] => Err(format!("cannot decrease memory limits: {error}")),
        errors => Err(format!(
            "cannot decrease memory limits: [{}]",
            errors.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests;
