//! The memory manager: blocks of memory and huge pages on NUMA nodes for Guaranteed pods.

mod checkpoint;
mod pod_level;
mod requests;
mod reserved;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use windlass_pod_inputs::resources::{QosClass, qos_class};
use windlass_topology::{Machine, NumaSet};
use windlass_types::corev1::Container;
use windlass_types::pod::is_sidecar;
use windlass_types::{Pod, PodExt};

use crate::hints::{Hint, NotAdmitted, ProviderHints, ResourceHints};
use requests::Requests;
use state::State;

pub use crate::cpu::Restored;
pub use reserved::{ReservedMemory, ReservedMemoryError, reserved_memory};
pub use state::Block;

/// Name of the state file in the root directory.
pub const STATE_FILE: &str = "memory_manager_state";

/// NUMA nodes up to which all sets of nodes are considered; beyond, only small sets.
const MAX_ENUMERATED_NODES: usize = 16;

windlass_types::text_enum! {
    /// `memoryManagerPolicy`. Its text is the value in the configuration and in the state file.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum MemoryPolicy {
        /// No assignments.
        #[default]
        None = "None",
        /// Assigns NUMA nodes to containers of Guaranteed pods.
        Static = "Static",
    }
}

/// Configuration of the memory manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Policy.
    pub policy: MemoryPolicy,
    /// Memory that no pod is assigned, from [`reserved_memory`].
    pub reserved: ReservedMemory,
    /// Pods with pod-level resources get assignments (gate `PodLevelResourceManagers`).
    pub pod_level: bool,
}

/// Assignments of memory to containers, and the decisions about them.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryManager {
    config: MemoryConfig,
    state: State,
    /// The state without assignments.
    unused: State,
    /// Memory of init containers that later containers of the pod can use, by pod.
    reusable: BTreeMap<String, Reusable>,
}

/// Bytes by nodes and resource.
type Reusable = BTreeMap<(NumaSet, String), u64>;

/// Why memory cannot be allocated, as upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum AllocationError {
    #[error(
        "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough \
         memory is available"
    )]
    NoDefault,
    #[error("[memorymanager] failed to find the default preferred hint")]
    DefaultNotPreferred,
    #[error("[memorymanager] failed to find NUMA nodes to extend the current topology hint")]
    NoExtension,
    #[error("[memorymanager] failed to find the extended preferred hint")]
    ExtensionNotPreferred,
    #[error("[memorymanager] preferred hint violates NUMA node allocation")]
    Violation,
    #[error("[memorymanager] failed to represent quantity as int64")]
    Quantity,
}

impl MemoryManager {
    /// Creates a manager without assignments.
    pub fn new(config: MemoryConfig, machine: &Machine) -> Self {
        let state = match config.policy {
            MemoryPolicy::None => State::default(),
            MemoryPolicy::Static => State::new(machine, &config.reserved),
        };
        Self {
            config,
            unused: state.clone(),
            state,
            reusable: BTreeMap::new(),
        }
    }

    /// The configuration.
    pub fn config(&self) -> &MemoryConfig {
        &self.config
    }

    /// True for a pod with pod-level resources that gets assignments (gate
    /// `PodLevelResourceManagers`).
    pub fn is_pod_level(&self, pod: &Pod) -> bool {
        self.config.pod_level && requests::is_pod_level(pod)
    }

    /// UIDs of the pods with assignments.
    pub fn pods(&self) -> impl Iterator<Item = &str> {
        self.state.entries.keys().map(String::as_str)
    }

    /// Blocks of a container, by resource name; empty without an assignment.
    pub fn blocks(&self, uid: &str, container: &str) -> &[Block] {
        self.state.blocks(uid, container).unwrap_or_default()
    }

    /// NUMA nodes of a container, for `cpuset.mems`; `None` is any node.
    pub fn memory_nodes(&self, uid: &str, container: &str) -> Option<NumaSet> {
        let blocks = self.blocks(uid, container).iter();
        let nodes = blocks.fold(NumaSet::default(), |all, block| all.or(block.nodes));
        Some(nodes).filter(|nodes| !nodes.is_empty())
    }

    /// Memory that containers can get, by node and resource; empty with the policy `None`.
    pub fn allocatable(&self) -> Vec<Block> {
        self.state.allocatable()
    }

    /// Returns the possible placements of a container.
    pub fn hints(&self, pod: &Pod, container: &Container) -> ProviderHints {
        if !self.manages(pod) {
            return ProviderHints::new();
        }
        let Ok(requests) = requests::of_container(pod, container) else {
            return ProviderHints::new();
        };
        match self.state.blocks(pod.uid().as_str(), &container.name) {
            Some(blocks) => assigned_hints(blocks, &requests),
            None => self.new_hints(pod, &requests),
        }
    }

    /// Returns the possible placements of all containers of a pod together.
    pub fn pod_hints(&self, pod: &Pod) -> ProviderHints {
        if !self.manages(pod) {
            return ProviderHints::new();
        }
        let Ok(requests) = requests::of_pod(pod) else {
            return ProviderHints::new();
        };
        if requests::is_pod_level(pod) && pod_level::check_shared_pool(pod).is_err() {
            let none = || ResourceHints::Of(Vec::new());
            return requests.into_keys().map(|name| (name, none())).collect();
        }
        let uid = pod.uid();
        let mut containers = pod.init_containers().iter().chain(pod.containers());
        match containers.find_map(|it| self.state.blocks(uid.as_str(), &it.name)) {
            Some(blocks) => assigned_hints(blocks, &requests),
            None => self.new_hints(pod, &requests),
        }
    }

    /// Assigns memory to a container, at the placement that the topology manager selected. A
    /// container with an assignment keeps it.
    ///
    /// # Errors
    /// No memory there, or the node is used by containers that span other nodes.
    pub fn allocate(
        &mut self,
        pod: &Pod,
        container: &Container,
        hint: Hint,
    ) -> Result<(), NotAdmitted> {
        if !self.manages(pod) {
            return Ok(());
        }
        if let Some(blocks) = self.state.blocks(pod.uid().as_str(), &container.name) {
            let blocks = blocks.to_vec();
            self.update_reusable(pod, container, &blocks);
            return Ok(());
        }
        let requests = requests::of_container(pod, container).map_err(NotAdmitted::unexpected)?;
        if requests.is_empty() {
            return Ok(());
        }
        let nodes = self
            .nodes_for(pod, &requests, hint)
            .map_err(NotAdmitted::unexpected)?;
        let blocks: Vec<Block> = requests
            .iter()
            .map(|(resource, size)| Block::new(nodes, resource, *size))
            .collect();
        for block in &blocks {
            let reusable = self.reusable(pod, nodes, &block.resource);
            let size = block.size.saturating_sub(reusable);
            self.state.take(nodes, &block.resource, size);
        }
        self.update_reusable(pod, container, &blocks);
        self.shrink_init_blocks(pod, container, &blocks);
        let uid = pod.uid().to_string();
        self.state.set_blocks(uid, &container.name, blocks);
        Ok(())
    }

    /// Frees the memory of the init containers before a container that has started: they have ended
    /// (upstream `AddContainer`). True if there was any.
    pub fn container_started(&mut self, pod: &Pod, container: &str) -> bool {
        let uid = pod.uid();
        let before = pod.init_containers().iter();
        let before = before.take_while(|it| it.name != container);
        let ended = before.filter(|it| !is_sidecar(it));
        let freed = ended.filter(|init| self.release_container(uid.as_str(), &init.name));
        freed.count() > 0
    }

    /// Frees the memory of a pod; true if it had any.
    pub fn release(&mut self, uid: &str) -> bool {
        self.reusable.remove(uid);
        let Some(entries) = self.state.entries.get(uid) else {
            return false;
        };
        let containers: Vec<String> = entries.keys().cloned().collect();
        for container in containers {
            self.release_container(uid, &container);
        }
        true
    }

    fn release_container(&mut self, uid: &str, container: &str) -> bool {
        let Some(blocks) = self.state.remove_blocks(uid, container) else {
            return false;
        };
        let Some(pod) = self.state.pod_entries.get(uid) else {
            self.state.give_back(&blocks);
            return true;
        };
        // pod-level memory is freed with the last container
        if !self.state.entries.contains_key(uid) {
            let blocks = pod.memory_blocks.clone();
            self.state.pod_entries.remove(uid);
            self.state.give_back(&blocks);
        }
        true
    }

    fn manages(&self, pod: &Pod) -> bool {
        self.config.policy == MemoryPolicy::Static
            && qos_class(pod) == QosClass::Guaranteed
            && (self.config.pod_level || !requests::is_pod_level(pod))
    }

    /// Returns the nodes for a request: those of the hint, or of the best hint of this manager if
    /// the topology manager has no preference, or more if those have not enough memory.
    fn nodes_for(
        &self,
        pod: &Pod,
        requests: &Requests,
        hint: Hint,
    ) -> Result<NumaSet, AllocationError> {
        let mut preferred = hint.preferred;
        let mut nodes = match hint.nodes {
            Some(nodes) => nodes,
            None => {
                let hints = self.possible(pod, requests).into_iter();
                let (best, is_preferred) = best(hints).ok_or(AllocationError::NoDefault)?;
                if preferred && !is_preferred {
                    return Err(AllocationError::DefaultNotPreferred);
                }
                preferred = is_preferred;
                best
            }
        };
        if !self.state.has_free(nodes, requests) {
            let hints = self.possible(pod, requests).into_iter();
            let wider = hints.filter(|(set, _)| nodes.is_subset(*set));
            let (best, is_preferred) = best(wider).ok_or(AllocationError::NoExtension)?;
            if preferred && !is_preferred {
                return Err(AllocationError::ExtensionNotPreferred);
            }
            nodes = best;
        }
        match self.state.can_group(nodes) {
            true => Ok(nodes),
            false => Err(AllocationError::Violation),
        }
    }

    fn new_hints(&self, pod: &Pod, requests: &Requests) -> ProviderHints {
        let possible = self.possible(pod, requests).into_iter();
        let hints: Vec<Hint> = possible
            .map(|(nodes, preferred)| Hint {
                nodes: Some(nodes),
                preferred,
            })
            .collect();
        if hints.is_empty() {
            // as upstream, no preference; the allocation fails
            return ProviderHints::new();
        }
        let names = requests.keys().cloned();
        names
            .map(|name| (name, ResourceHints::Of(hints.clone())))
            .collect()
    }

    /// Returns the sets of nodes with enough free memory, and whether each is preferred: has as few
    /// nodes as an empty machine needs.
    fn possible(&self, pod: &Pod, requests: &Requests) -> Vec<(NumaSet, bool)> {
        let all: NumaSet = self.state.machine.keys().copied().collect();
        let large_enough: Vec<NumaSet> = candidates(all)
            .into_iter()
            .filter(|nodes| self.state.has_allocatable(*nodes, requests))
            .collect();
        let fewest = large_enough.iter().map(|nodes| nodes.len()).min();
        let is_free = |nodes: &NumaSet| {
            let left = requests.iter().map(|(name, size)| {
                let reusable = self.reusable(pod, *nodes, name);
                (name.clone(), size.saturating_sub(reusable))
            });
            self.state.is_new_group_allowed(*nodes) && self.state.has_free(*nodes, &left.collect())
        };
        let free = large_enough.into_iter().filter(is_free);
        free.map(|nodes| (nodes, Some(nodes.len()) == fewest))
            .collect()
    }

    fn reusable(&self, pod: &Pod, nodes: NumaSet, resource: &str) -> u64 {
        let of_pod = self.reusable.get(pod.uid().as_str());
        let size = of_pod.and_then(|all| all.get(&(nodes, resource.to_owned())));
        size.copied().unwrap_or(0)
    }

    /// Adds the blocks of an init container to the reusable memory, or subtracts those of another
    /// container.
    fn update_reusable(&mut self, pod: &Pod, container: &Container, blocks: &[Block]) {
        let is_init = pod
            .init_containers()
            .iter()
            .any(|it| it.name == container.name && !is_sidecar(it));
        let reusable = self.reusable.entry(pod.uid().to_string()).or_default();
        for block in blocks {
            let key = (block.nodes, block.resource.clone());
            match is_init {
                true => {
                    let size = reusable.entry(key).or_default();
                    *size = (*size).max(block.size);
                }
                false => {
                    if let Some(size) = reusable.get_mut(&key) {
                        *size = size.saturating_sub(block.size);
                    }
                }
            }
        }
        reusable.retain(|_, size| *size > 0);
        if reusable.is_empty() {
            self.reusable.remove(pod.uid().as_str());
        }
    }

    /// Subtracts what a container reuses from the blocks of the init containers before it, so that
    /// the blocks of a pod add up to its memory.
    fn shrink_init_blocks(&mut self, pod: &Pod, container: &Container, blocks: &[Block]) {
        let Some(entries) = self.state.entries.get_mut(pod.uid().as_str()) else {
            return;
        };
        let entries = Arc::make_mut(entries);
        for block in blocks {
            let mut left = block.size;
            let before = pod.init_containers().iter();
            for init in before.take_while(|it| it.name != container.name) {
                if is_sidecar(init) {
                    continue;
                }
                let own = entries.get_mut(&init.name).into_iter().flatten();
                let is_same =
                    |it: &&mut Block| it.resource == block.resource && it.nodes == block.nodes;
                for own in own.filter(is_same) {
                    let reused = own.size.min(left);
                    own.size -= reused;
                    left -= reused;
                }
            }
        }
    }
}

/// Returns the sets of nodes to consider.
fn candidates(all: NumaSet) -> Vec<NumaSet> {
    if all.len() <= MAX_ENUMERATED_NODES {
        return all.subsets().collect();
    }
    let pairs = all
        .iter()
        .flat_map(|a| all.iter().map(move |b| NumaSet::from_iter([a, b])));
    let mut sets: Vec<NumaSet> = pairs.chain([all]).collect();
    sets.sort_unstable();
    sets.dedup();
    sets
}

/// Returns the preferred set with the fewest nodes, else the one with the fewest nodes.
fn best(hints: impl Iterator<Item = (NumaSet, bool)>) -> Option<(NumaSet, bool)> {
    hints.min_by_key(|(nodes, preferred)| (!preferred, nodes.len(), *nodes))
}

/// Returns the placement that a container has; no preference if its request changed (upstream
/// `regenerateHints`).
fn assigned_hints(blocks: &[Block], requests: &Requests) -> ProviderHints {
    let is_as_requested = |block: &Block| requests.get(&block.resource) == Some(&block.size);
    if blocks.len() != requests.len() || !blocks.iter().all(is_as_requested) {
        return ProviderHints::new();
    }
    let hint = |block: &Block| Hint {
        nodes: Some(block.nodes),
        preferred: true,
    };
    blocks
        .iter()
        .map(|block| (block.resource.clone(), ResourceHints::Of(vec![hint(block)])))
        .collect()
}

/// A text that is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("memoryManagerPolicy: must be one of None, Static, got {0:?}")]
pub struct UnknownMemoryPolicy(String);

impl FromStr for MemoryPolicy {
    type Err = UnknownMemoryPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownMemoryPolicy> {
        Self::from_text(text).ok_or_else(|| UnknownMemoryPolicy(text.to_owned()))
    }
}
