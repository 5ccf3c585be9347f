//! Memory and huge pages that containers and pods request.

use std::collections::BTreeMap;

use windlass_types::corev1::{Container, ResourceRequirements};
use windlass_types::pod::is_sidecar;
use windlass_types::{Pod, PodExt};
use windlass_units::quantity::{Quantity, lookup};

use super::AllocationError;

const MEMORY: &str = "memory";
const HUGE_PAGES: &str = "hugepages-";
/// Nano units of a byte in a quantity.
const BYTE: i128 = 1_000_000_000;

/// Bytes by resource.
pub(super) type Requests = BTreeMap<String, u64>;

/// True for a pod with pod-level resources (upstream `IsPodLevelResourcesSet`).
pub(super) fn is_pod_level(pod: &Pod) -> bool {
    let Some(resources) = &PodExt::spec(pod).resources else {
        return false;
    };
    let lists = [&resources.requests, &resources.limits];
    let mut names = lists.into_iter().flatten().flat_map(BTreeMap::keys);
    names.any(|name| name == "cpu" || is_memory(name))
}

/// True for a resource that the memory manager assigns.
pub(super) fn is_memory(name: &str) -> bool {
    name == MEMORY || name.starts_with(HUGE_PAGES)
}

/// Returns the requests of a container. In a pod with pod-level resources only a container whose CPU
/// and memory requests equal its limits has some; the others share the memory of the pod.
pub(super) fn of_container(pod: &Pod, container: &Container) -> Result<Requests, AllocationError> {
    let resources = container.resources.as_ref();
    if is_pod_level(pod) && !is_guaranteed(resources) {
        return Ok(Requests::new());
    }
    amounts(resources)
}

/// Returns the requests of a pod: those of its long-running containers, or the peak of its init
/// containers. Only resources that an app container requests count.
pub(super) fn of_pod(pod: &Pod) -> Result<Requests, AllocationError> {
    if is_pod_level(pod) {
        let mut requests = amounts(PodExt::spec(pod).resources.as_ref())?;
        requests.retain(|_, size| *size > 0);
        return Ok(requests);
    }
    let (mut peak, mut sidecars) = (Requests::new(), Requests::new());
    for init in pod.init_containers() {
        for (name, size) in of_container(pod, init)? {
            let running = sidecars.entry(name.clone()).or_default();
            if is_sidecar(init) {
                *running += size;
            } else {
                let peak = peak.entry(name).or_default();
                *peak = (*peak).max(*running + size);
            }
        }
    }
    let mut total = Requests::new();
    for container in pod.containers() {
        for (name, size) in of_container(pod, container)? {
            *total.entry(name).or_default() += size;
        }
    }
    for (name, size) in &mut total {
        *size += sidecars.get(name).copied().unwrap_or(0);
        *size = (*size).max(peak.get(name).copied().unwrap_or(0));
    }
    Ok(total)
}

/// True if CPU and memory requests are set and equal the limits (upstream
/// `IsContainerEquivalentQOSGuaranteed`).
fn is_guaranteed(resources: Option<&ResourceRequirements>) -> bool {
    let Some(resources) = resources else {
        return false;
    };
    ["cpu", MEMORY].into_iter().all(|name| {
        let amount = |list| lookup(list, name).ok().flatten();
        let limit = amount(resources.limits.as_ref());
        // the default request is the limit
        let request = amount(resources.requests.as_ref()).or(limit);
        request.is_some_and(|amount| !amount.is_zero()) && request == limit
    })
}

fn amounts(resources: Option<&ResourceRequirements>) -> Result<Requests, AllocationError> {
    let Some(resources) = resources else {
        return Ok(Requests::new());
    };
    // the default request is the limit
    let lists = [&resources.limits, &resources.requests];
    let amounts = lists.into_iter().flatten().flatten();
    amounts
        .filter(|(name, _)| is_memory(name))
        .map(|(name, amount)| {
            let amount: Quantity = amount.0.parse().map_err(|_| AllocationError::Quantity)?;
            let size = u64::try_from(amount.value()).ok();
            let size = size.filter(|_| amount.nanos() % BYTE == 0);
            Ok((name.clone(), size.ok_or(AllocationError::Quantity)?))
        })
        .collect()
}
