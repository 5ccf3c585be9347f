//! Swap, memory protection and huge pages of a container (upstream
//! `configureContainerSwapResources`, `GetHugepageLimitsFromResources`, feature gate `MemoryQoS`).

use std::collections::BTreeMap;

use windlass_types::corev1::Container;
use windlass_types::cri::LinuxResources;
use windlass_types::{Pod, PodExt};
use windlass_units::quantity::{Quantity, QuantityFormat};

use super::{QosClass, is_critical, limit, qos_class, request};
use crate::node_facts::{MemoryQos, NodeFacts};

const MEMORY: &str = "memory";
/// Units of page sizes in the names of cgroup files.
const PAGE_UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];

/// Returns the name of the resource for huge pages of a size in bytes, such as `hugepages-2Mi`.
pub fn huge_page_resource(page_size: u64) -> String {
    let size = i64::try_from(page_size).unwrap_or(i64::MAX);
    let size = Quantity::from_units(size, QuantityFormat::BinarySi);
    format!("hugepages-{size}")
}

/// Returns a page size in bytes as cgroup files and CRI name it, such as `2MB`.
pub fn huge_page_unit(page_size: u64) -> String {
    let mut size = page_size;
    let mut units = PAGE_UNITS.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    while size > 0 && size.is_multiple_of(1024) {
        let Some(next) = units.next() else { break };
        (size, unit) = (size / 1024, next);
    }
    format!("{size}{unit}")
}

/// Sets swap, memory protection and huge pages; the memory limit is set.
pub(super) fn set_limits(
    resources: &mut LinuxResources,
    pod: &Pod,
    container: &Container,
    node: &NodeFacts,
) {
    resources.huge_page_limits = huge_page_limits(pod, container, &node.memory.huge_page_sizes);
    if let Some(qos) = node.memory.qos {
        let protection = protection(qos_class(pod), container, qos);
        resources.unified.extend(protection);
    }
    if !node.memory.swap_controller {
        return;
    }
    if node.cgroup_v2 {
        let swap = swap_limit(pod, container, node).to_string();
        resources.unified.insert("memory.swap.max".to_owned(), swap);
    } else {
        // no swap beyond the memory limit
        resources.memory_swap_limit = resources.memory_limit;
    }
}

/// True for a container that gets a share of the swap where pods may swap: its pod is Burstable and
/// not critical, and its memory request differs from its limit (upstream
/// `GetContainerSwapBehavior`).
pub fn has_swap_share(pod: &Pod, container: &Container) -> bool {
    let own = container.resources.as_ref();
    let amount = |amount: Option<Quantity>| amount.unwrap_or(Quantity::ZERO);
    qos_class(pod) == QosClass::Burstable
        && !is_critical(pod)
        && amount(request(own, MEMORY)) != amount(limit(own, MEMORY))
}

fn may_swap(pod: &Pod, container: &Container, node: &NodeFacts) -> bool {
    let is_enabled = node.memory.limited_swap && node.memory.swap_controller && node.cgroup_v2;
    is_enabled && has_swap_share(pod, container)
}

/// Returns the swap limit in bytes: the share of the node's swap that the container requests of the
/// node's memory.
fn swap_limit(pod: &Pod, container: &Container, node: &NodeFacts) -> i64 {
    let capacity = node.memory_capacity;
    let request = request(container.resources.as_ref(), MEMORY).map_or(0, Quantity::value);
    if !may_swap(pod, container, node) || capacity <= 0 || request > capacity {
        return 0;
    }
    let share = request as f64 / capacity as f64;
    (share * node.memory.swap_capacity as f64) as i64
}

/// Returns the values of cgroup v2 for `MemoryQoS`: protection of the request, and throttling
/// between request and limit. A value that a previous policy has set is reset.
fn protection(class: QosClass, container: &Container, qos: MemoryQos) -> BTreeMap<String, String> {
    let own = container.resources.as_ref();
    let bytes = |amount: Option<Quantity>| amount.map_or(0, Quantity::value);
    let (request, limit) = (bytes(request(own, MEMORY)), bytes(limit(own, MEMORY)));
    let mut values = BTreeMap::new();
    let mut set = |key: &str, value: i64| drop(values.insert(key.to_owned(), value.to_string()));
    match class {
        _ if request == 0 || !qos.protects_requests => {
            set("memory.min", 0);
            set("memory.low", 0);
        }
        QosClass::Guaranteed => set("memory.min", request),
        QosClass::Burstable | QosClass::BestEffort => set("memory.low", request),
    }
    let ceiling = if limit == 0 { qos.allocatable } else { limit };
    let throttled = (ceiling - request) as f64 * qos.throttling_factor;
    let high = (request as f64 + throttled) as i64 / qos.page_size.max(1) * qos.page_size.max(1);
    if request != limit && ceiling > 0 && high > request {
        set("memory.high", high);
    }
    values
}

/// Returns a limit for each page size: of the container, else of the pod, else 0.
fn huge_page_limits(pod: &Pod, container: &Container, sizes: &[u64]) -> BTreeMap<String, u64> {
    let pod_level = PodExt::spec(pod).resources.as_ref();
    let limits = sizes.iter().map(|size| {
        let name = huge_page_resource(*size);
        let own = limit(container.resources.as_ref(), &name);
        let bytes = own.or_else(|| limit(pod_level, &name));
        let bytes = bytes.map_or(0, Quantity::value);
        (huge_page_unit(*size), u64::try_from(bytes).unwrap_or(0))
    });
    limits.collect()
}

#[cfg(test)]
mod tests;
