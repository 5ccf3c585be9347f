//! Memory of each NUMA node, and what containers have of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use windlass_pod_inputs::resources::huge_page_resource;
use windlass_topology::{Machine, NumaSet};

use super::requests::Requests;
use super::reserved::ReservedMemory;

/// Memory of one resource on some NUMA nodes together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// NUMA nodes.
    #[serde(rename = "numaAffinity", with = "node_list")]
    pub nodes: NumaSet,
    /// `memory` or `hugepages-<size>`.
    #[serde(rename = "type")]
    pub resource: String,
    /// Bytes.
    pub size: u64,
}

impl Block {
    pub(super) fn new(nodes: NumaSet, resource: &str, size: u64) -> Self {
        Self {
            nodes,
            resource: resource.to_owned(),
            size,
        }
    }
}

/// One resource of a NUMA node, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MemoryTable {
    pub total: u64,
    pub system_reserved: u64,
    pub allocatable: u64,
    pub reserved: u64,
    pub free: u64,
}

/// Memory of one NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeState {
    /// Blocks that use the node.
    pub number_of_assignments: i64,
    pub memory_map: BTreeMap<String, MemoryTable>,
    /// The node and those that blocks use together with it.
    #[serde(with = "node_list")]
    pub cells: NumaSet,
}

/// Pod-level blocks of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodEntry {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory_blocks: Vec<Block>,
}

/// Memory by NUMA node.
pub(super) type MachineState = BTreeMap<u32, NodeState>;
/// Blocks by pod UID and container name. Copies of the state share what does not change.
pub(super) type Entries = BTreeMap<String, Arc<BTreeMap<String, Vec<Block>>>>;

/// Memory of the machine, and the blocks of containers and pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub machine: MachineState,
    pub entries: Entries,
    pub pod_entries: BTreeMap<String, PodEntry>,
}

impl State {
    /// Returns the state of an unused machine.
    pub(super) fn new(machine: &Machine, reserved: &ReservedMemory) -> Self {
        let mut nodes = MachineState::new();
        for (number, node) in &machine.nodes {
            let table = |resource: &str, total: u64, other: u64| {
                let system_reserved = reserved.of(*number, resource);
                let allocatable = total.saturating_sub(system_reserved + other);
                MemoryTable {
                    total,
                    system_reserved,
                    allocatable,
                    reserved: 0,
                    free: allocatable,
                }
            };
            let huge = node.huge_pages.iter();
            let huge = huge.map(|(size, count)| (huge_page_resource(*size), size * count));
            let huge: Vec<(String, u64)> = huge.collect();
            let in_huge_pages = huge.iter().map(|(_, total)| total).sum();
            let mut memory_map: BTreeMap<_, _> = huge
                .into_iter()
                .map(|(name, total)| (name.clone(), table(&name, total, 0)))
                .collect();
            let memory = table("memory", node.memory, in_huge_pages);
            memory_map.insert("memory".to_owned(), memory);
            let state = NodeState {
                number_of_assignments: 0,
                memory_map,
                cells: NumaSet::from_iter([*number]),
            };
            nodes.insert(*number, state);
        }
        Self {
            machine: nodes,
            ..Self::default()
        }
    }

    pub(super) fn blocks(&self, uid: &str, container: &str) -> Option<&[Block]> {
        self.entries.get(uid)?.get(container).map(Vec::as_slice)
    }

    pub(super) fn set_blocks(&mut self, uid: String, container: &str, blocks: Vec<Block>) {
        let entries = Arc::make_mut(self.entries.entry(uid).or_default());
        entries.insert(container.to_owned(), blocks);
    }

    pub(super) fn remove_blocks(&mut self, uid: &str, container: &str) -> Option<Vec<Block>> {
        let entries = Arc::make_mut(self.entries.get_mut(uid)?);
        let blocks = entries.remove(container);
        if entries.is_empty() {
            self.entries.remove(uid);
        }
        blocks
    }

    pub(super) fn allocatable(&self) -> Vec<Block> {
        let tables = self
            .machine
            .iter()
            .flat_map(|(node, state)| state.memory_map.iter().map(move |it| (*node, it)));
        tables
            .filter(|(_, (_, table))| table.allocatable > 0)
            .map(|(node, (name, table))| {
                Block::new(NumaSet::from_iter([node]), name, table.allocatable)
            })
            .collect()
    }

    /// True if nodes have enough free memory.
    pub(super) fn has_free(&self, nodes: NumaSet, requests: &Requests) -> bool {
        self.has(nodes, requests, |table| table.free)
    }

    /// True if nodes would have enough memory on an unused machine.
    pub(super) fn has_allocatable(&self, nodes: NumaSet, requests: &Requests) -> bool {
        self.has(nodes, requests, |table| table.allocatable)
    }

    fn has(
        &self,
        nodes: NumaSet,
        requests: &Requests,
        amount: impl Fn(&MemoryTable) -> u64,
    ) -> bool {
        requests.iter().all(|(name, size)| {
            let states = nodes.iter().filter_map(|node| self.machine.get(&node));
            let tables = states.filter_map(|state| state.memory_map.get(name));
            tables.map(&amount).sum::<u64>() >= *size
        })
    }

    /// True if blocks can use nodes together: a node has blocks of one node or of one group.
    pub(super) fn is_new_group_allowed(&self, nodes: NumaSet) -> bool {
        let mut states = nodes.iter().filter_map(|node| self.machine.get(&node));
        match nodes.len() {
            1 => states.all(|state| state.cells.len() <= 1),
            _ => self.can_group(nodes),
        }
    }

    /// True if no node is used alone or in another group; one node is not checked (upstream
    /// `isAffinityViolatingNUMAAllocations`).
    pub(super) fn can_group(&self, nodes: NumaSet) -> bool {
        let mut states = nodes.iter().filter_map(|node| self.machine.get(&node));
        nodes.len() == 1
            || states.all(|state| state.number_of_assignments == 0 || state.cells == nodes)
    }

    /// Takes memory from nodes, the lowest first.
    pub(super) fn take(&mut self, nodes: NumaSet, resource: &str, size: u64) {
        let mut left = size;
        for node in nodes.iter() {
            let Some(state) = self.machine.get_mut(&node) else {
                continue;
            };
            state.number_of_assignments += 1;
            state.cells = nodes;
            if let Some(table) = state.memory_map.get_mut(resource) {
                let part = table.free.min(left);
                table.free -= part;
                table.reserved += part;
                left -= part;
            }
        }
    }

    /// Returns the memory of blocks to their nodes.
    pub(super) fn give_back(&mut self, blocks: &[Block]) {
        for block in blocks {
            let mut left = block.size;
            for node in block.nodes.iter() {
                let Some(state) = self.machine.get_mut(&node) else {
                    continue;
                };
                state.number_of_assignments -= 1;
                if state.number_of_assignments == 0 {
                    state.cells = NumaSet::from_iter([node]);
                }
                if let Some(table) = state.memory_map.get_mut(&block.resource) {
                    let part = table.reserved.min(left);
                    table.reserved -= part;
                    table.free += part;
                    left -= part;
                }
            }
        }
    }
}

mod node_list {
    //! A set of nodes as a list in JSON.

    use serde::{Deserialize, Deserializer, Serializer};
    use windlass_topology::NumaSet;

    pub(super) fn serialize<S: Serializer>(nodes: &NumaSet, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(nodes.iter())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<NumaSet, D::Error> {
        let nodes = Option::<Vec<u32>>::deserialize(from)?;
        Ok(nodes.into_iter().flatten().collect())
    }
}
