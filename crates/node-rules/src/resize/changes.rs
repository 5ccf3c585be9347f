//! What a changed spec requests of its containers.

use windlass_types::corev1::{Container, ResourceRequirements};
use windlass_types::pod::is_sidecar;
use windlass_types::{Pod, PodExt};
use windlass_units::quantity::{Quantity, lookup};

use super::{ResizePolicy, find, is_same};

/// One changed quantity: the labels of `kubelet_container_requested_resizes_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeChange {
    /// `cpu` or `memory`.
    pub resource: &'static str,
    /// `requests` or `limits`.
    pub requirement: &'static str,
    /// `add`, `remove`, `increase` or `decrease`.
    pub operation: &'static str,
}

/// Returns the changed quantities of the containers of a pod, from its previous spec.
pub fn resize_changes(before: &Pod, after: &Pod, policy: ResizePolicy) -> Vec<ResizeChange> {
    let mut changes = Vec::new();
    for old in policy.containers(before) {
        let Some(new) = find(after, old) else {
            continue;
        };
        for resource in ["memory", "cpu"] {
            for requirement in ["requests", "limits"] {
                let amount = |container| amount(container, requirement, resource);
                if let Some(operation) = operation(amount(old), amount(new)) {
                    changes.push(ResizeChange {
                        resource,
                        requirement,
                        operation,
                    });
                }
            }
        }
    }
    changes
}

/// Returns the declared features that the changed sizes of a pod require, sorted.
pub fn required_features(before: &Pod, after: &Pod) -> Vec<&'static str> {
    let pod_level = |pod| PodExt::spec(pod).resources.as_ref();
    let pod_level = !is_same(pod_level(before), pod_level(after));
    let mut inits = before.init_containers().iter().filter(|c| !is_sidecar(c));
    let inits = inits.any(|old| {
        let new = find(after, old).and_then(|new| new.resources.as_ref());
        !is_same(old.resources.as_ref(), new)
    });
    [
        (pod_level, "InPlacePodLevelResourcesVerticalScaling"),
        (inits, "InPlacePodVerticalScalingInitContainers"),
    ]
    .into_iter()
    .filter_map(|(is_required, name)| is_required.then_some(name))
    .collect()
}

/// 0 if absent.
fn amount(container: &Container, requirement: &str, resource: &str) -> Quantity {
    let resources = container.resources.as_ref();
    let list = resources.and_then(|r: &ResourceRequirements| match requirement {
        "requests" => r.requests.as_ref(),
        _ => r.limits.as_ref(),
    });
    let amount = lookup(list, resource).ok().flatten();
    amount.unwrap_or(Quantity::ZERO)
}

fn operation(old: Quantity, new: Quantity) -> Option<&'static str> {
    if old == new {
        return None;
    }
    Some(match (old.is_zero(), new.is_zero()) {
        (_, true) => "remove",
        (true, false) => "add",
        (false, false) if new < old => "decrease",
        (false, false) => "increase",
    })
}
