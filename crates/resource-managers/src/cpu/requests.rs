//! Exclusive CPUs that a pod requests.

use windlass_pod_inputs::resources::{QosClass, qos_class};
use windlass_types::corev1::{Container, ResourceRequirements};
use windlass_types::pod::is_sidecar;
use windlass_types::{Pod, PodExt};
use windlass_units::quantity::{Quantity, lookup};

/// Exclusive CPUs that a container requests; 0 if it belongs to the shared pool (upstream
/// `guaranteedCPUs`).
pub(super) fn of_container(pod: &Pod, container: &Container, pod_level: bool) -> usize {
    let resources = container.resources.as_ref();
    if qos_class(pod) != QosClass::Guaranteed
        || pod_level && has_pod_level_resources(pod) && !is_guaranteed(resources)
    {
        return 0;
    }
    whole(request(resources, "cpu"))
}

/// Exclusive CPUs that a pod needs at any time (upstream `podGuaranteedCPUs`).
pub(super) fn of_pod(pod: &Pod, pod_level: bool) -> usize {
    if pod_level && has_pod_level_resources(pod) {
        return match qos_class(pod) {
            QosClass::Guaranteed => whole(request(PodExt::spec(pod).resources.as_ref(), "cpu")),
            _ => 0,
        };
    }
    let (mut sidecars, mut max_init) = (0, 0);
    for container in pod.init_containers() {
        let cpus = of_container(pod, container, pod_level);
        match is_sidecar(container) {
            true => sidecars += cpus,
            false => max_init = max_init.max(sidecars + cpus),
        }
    }
    let apps = pod.containers().iter();
    let apps: usize = apps.map(|it| of_container(pod, it, pod_level)).sum();
    max_init.max(sidecars + apps)
}

/// Upstream `IsPodLevelResourcesSet`.
pub(super) fn has_pod_level_resources(pod: &Pod) -> bool {
    let is_supported =
        |name: &String| name == "cpu" || name == "memory" || name.starts_with("hugepages-");
    let resources = PodExt::spec(pod).resources.as_ref();
    let lists = resources.map(|it| [it.requests.as_ref(), it.limits.as_ref()]);
    let mut names = lists
        .into_iter()
        .flatten()
        .flatten()
        .flat_map(|it| it.keys());
    names.any(is_supported)
}

/// Requests equal limits for CPU and memory.
pub(super) fn is_guaranteed(resources: Option<&ResourceRequirements>) -> bool {
    ["cpu", "memory"].into_iter().all(|name| {
        let request = request(resources, name).filter(|it| !it.is_zero());
        request.is_some() && request == limit(resources, name)
    })
}

/// CPUs of a quantity without fractions, else 0.
fn whole(quantity: Option<Quantity>) -> usize {
    let Some(quantity) = quantity else {
        return 0;
    };
    match quantity.value().checked_mul(1000) == Some(quantity.milli_value()) {
        true => usize::try_from(quantity.value()).unwrap_or(0),
        false => 0,
    }
}

fn request(resources: Option<&ResourceRequirements>, name: &str) -> Option<Quantity> {
    lookup(resources?.requests.as_ref(), name).ok()?
}

fn limit(resources: Option<&ResourceRequirements>, name: &str) -> Option<Quantity> {
    lookup(resources?.limits.as_ref(), name).ok()?
}

/// The CPU limit has no fraction (upstream `resourcesQualifyForExclusiveCPUs`).
pub(super) fn has_whole_limit(resources: Option<&ResourceRequirements>) -> bool {
    whole(limit(resources, "cpu")) > 0
}
