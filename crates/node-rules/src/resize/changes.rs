//! What a changed spec requests of its containers.

use windlass_types::Pod;
use windlass_types::corev1::{Container, ResourceRequirements};
use windlass_units::quantity::{Quantity, lookup};

use super::{ResizePolicy, find};

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
