//! Compares requests with available resources (upstream `noderesources.Fits`).

use std::fmt;

use windlass_types::corev1::Node;

use super::load::{NodeLoadExcluding, PodRequests, in_units};
use windlass_units::quantity::{Quantity, lookup};

/// A resource that the node lacks. CPU is in thousandths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insufficient {
    /// Name, for example `cpu`.
    pub resource: String,
    /// Request of the pod.
    pub requested: i64,
    /// Requests of other pods.
    pub used: i64,
    /// Allocatable.
    pub capacity: i64,
}

impl fmt::Display for Insufficient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Node didn't have enough resource: {}, requested: {}, used: {}, capacity: {}",
            self.resource, self.requested, self.used, self.capacity
        )
    }
}

/// Returns all resources that the node lacks: pods, then native resources, then others by name.
pub(super) fn insufficient(
    requests: &PodRequests,
    used: NodeLoadExcluding<'_>,
    node: &Node,
) -> Vec<Insufficient> {
    let mut missing = Vec::new();
    let mut check = |resource: &str, requested: i64, used: i64, capacity: i64| {
        if requested > capacity.saturating_sub(used) {
            missing.push(Insufficient {
                resource: resource.to_owned(),
                requested,
                used,
                capacity,
            });
        }
    };
    check(
        "pods",
        1,
        used.pods(),
        allocatable(node, "pods").unwrap_or(0),
    );
    let own = ["cpu", "memory", "ephemeral-storage"];
    let others = requests.resources.keys().map(String::as_str);
    for name in own.into_iter().chain(others.filter(|n| !own.contains(n))) {
        let Some(requested) = requests.resources.get(name).copied() else {
            continue;
        };
        let capacity = allocatable(node, name);
        // an extended resource without allocatable is counted by the scheduler only
        if capacity.is_none() && is_extended(name) {
            continue;
        }
        check(name, requested, used.requested(name), capacity.unwrap_or(0));
    }
    missing
}

fn allocatable(node: &Node, name: &str) -> Option<i64> {
    let list = node.status.as_ref()?.allocatable.as_ref();
    let amount: Option<Quantity> = lookup(list, name).ok().flatten();
    amount.map(|a| in_units(name, a))
}

/// Upstream `IsExtendedResourceName`.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}
