//! `reservedMemory`: its sums must be what the node reserves.

use std::collections::{BTreeMap, BTreeSet};

use windlass_topology::Machine;
use windlass_units::quantity::Quantity;

use super::requests::is_memory;

/// Memory that no pod is assigned, in bytes by NUMA node and resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservedMemory(BTreeMap<u32, BTreeMap<String, u64>>);

/// `reservedMemory` does not fit the machine or the other reservations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReservedMemoryError {
    /// No such NUMA node.
    #[error(
        "reservedMemory: the reserved memory configuration references a NUMA node {0} that does \
         not exist on this machine; its NUMA nodes are {1}"
    )]
    UnknownNode(i32, String),
    /// The sum differs from what the node reserves.
    #[error(
        "reservedMemory: the total amount {sum:?} of type {resource:?} is not equal to the value \
         {expected:?} determined by Node Allocatable feature; change reservedMemory, or \
         systemReserved, kubeReserved and evictionHard, so that both are equal"
    )]
    Sum {
        /// Sum over the NUMA nodes.
        sum: String,
        /// Resource.
        resource: String,
        /// Sum of `systemReserved`, `kubeReserved` and the threshold of `evictionHard`.
        expected: String,
    },
    /// A quantity is not a number of bytes.
    #[error("reservedMemory: {0} of NUMA node {1} is not a number of bytes; set for example 1Gi")]
    Quantity(String, i32),
    /// No memory is reserved, which the policy `Static` requires.
    #[error(
        "reservedMemory: you should specify the system reserved memory; set the memory of each \
         NUMA node that memoryManagerPolicy: Static does not assign"
    )]
    Missing,
}

impl ReservedMemory {
    pub(super) fn of(&self, node: u32, resource: &str) -> u64 {
        let node = self.0.get(&node);
        node.and_then(|it| it.get(resource)).copied().unwrap_or(0)
    }
}

/// Checks `reservedMemory` (NUMA node and limits of each entry) for the policy `Static`.
/// `node_reserved` has the amounts that node allocatable subtracts, by resource: the sums of
/// `systemReserved`, `kubeReserved` and the threshold of `memory.available` in `evictionHard`.
///
/// # Errors
/// A NUMA node that does not exist, sums that differ, or no memory.
pub fn reserved_memory(
    entries: &[(i32, BTreeMap<String, Quantity>)],
    node_reserved: &BTreeMap<String, Quantity>,
    machine: &Machine,
) -> Result<ReservedMemory, ReservedMemoryError> {
    let mut sums: BTreeMap<&str, Quantity> = BTreeMap::new();
    let mut reserved = ReservedMemory::default();
    for (number, limits) in entries {
        let node = u32::try_from(*number).ok();
        let node = node.filter(|it| machine.nodes.contains_key(it));
        let unknown = || ReservedMemoryError::UnknownNode(*number, machine.all_nodes().to_string());
        let of_node = reserved.0.entry(node.ok_or_else(unknown)?).or_default();
        for (name, amount) in limits {
            let sum = sums.entry(name).or_insert(Quantity::ZERO);
            *sum = *sum + *amount;
            let bytes = u64::try_from(amount.value());
            let bytes = bytes.map_err(|_| ReservedMemoryError::Quantity(name.clone(), *number))?;
            of_node.insert(name.clone(), bytes);
        }
    }
    let names = node_reserved.keys().map(String::as_str);
    let names: BTreeSet<&str> = names
        .filter(|it| is_memory(it))
        .chain(sums.keys().copied())
        .collect();
    for name in names {
        let sum = sums.get(name).copied().unwrap_or(Quantity::ZERO);
        let expected = node_reserved.get(name).copied().unwrap_or(Quantity::ZERO);
        if sum != expected {
            return Err(ReservedMemoryError::Sum {
                sum: sum.to_string(),
                resource: name.to_owned(),
                expected: expected.to_string(),
            });
        }
    }
    match sums.get("memory").is_some_and(|sum| !sum.is_zero()) {
        true => Ok(reserved),
        false => Err(ReservedMemoryError::Missing),
    }
}
