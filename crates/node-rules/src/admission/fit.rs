//! Whether what a pod requests is still free (upstream `noderesources.Fits`).

use std::fmt;

use windlass_types::corev1::Node;

use super::load::{NodeLoadExcluding, PodRequests, in_units};
use windlass_units::quantity::{Quantity, lookup};

/// A resource of which the node has too little left. CPU is in thousandths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insufficient {
    /// Its name, for example `cpu`.
    pub resource: String,
    /// What the pod requests.
    pub requested: i64,
    /// What the other pods request.
    pub used: i64,
    /// What pods may have.
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

/// Everything the pod would take too much of: the number of pods first, then the node's own
/// resources, then all others by name.
pub(super) fn insufficient(
    demand: &PodRequests,
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
    let others = demand.requests.keys().map(String::as_str);
    for name in own.into_iter().chain(others.filter(|n| !own.contains(n))) {
        let Some(requested) = demand.requests.get(name).copied() else {
            continue;
        };
        let capacity = allocatable(node, name);
        // a resource that only the cluster knows (or one of a DRA driver) is not the node's to
        // count
        if capacity.is_none() && is_extended(name) {
            continue;
        }
        check(name, requested, used.requested(name), capacity.unwrap_or(0));
    }
    missing
}

/// What the node object says pods may have.
fn allocatable(node: &Node, name: &str) -> Option<i64> {
    let list = node.status.as_ref()?.allocatable.as_ref();
    let amount: Option<Quantity> = lookup(list, name).ok().flatten();
    amount.map(|a| in_units(name, a))
}

/// Not one of Kubernetes' own names (upstream `IsExtendedResourceName`).
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}
