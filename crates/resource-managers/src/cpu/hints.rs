//! Topology hints for CPUs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use windlass_topology::{CpuSet, NumaSet};
use windlass_types::corev1::Container;
use windlass_types::{Pod, PodExt};

use super::settings::Static;
use super::{CpuManager, check_pool_of_pod, requests};
use crate::hints::{Hint, ProviderHints, ResourceHints};

impl CpuManager {
    /// NUMA nodes that could serve a container. Empty for one without exclusive CPUs.
    pub fn container_hints(&self, pod: &Pod, container: &Container) -> ProviderHints {
        let Some(policy) = self.policy_for(pod) else {
            return ProviderHints::new();
        };
        let count = requests::of_container(pod, container, policy.pod_level);
        if count == 0 {
            return ProviderHints::new();
        }
        match self.assigned_to(&pod.uid(), &container.name) {
            Some(cpus) if cpus.len() != count => hints_of(Vec::new()),
            Some(cpus) => hints_of(self.hints(policy, cpus, &CpuSet::new(), count)),
            None => {
                let free = &self.state.shared - &policy.reserved;
                hints_of(self.hints(policy, &free, &self.reusable(pod), count))
            }
        }
    }

    /// NUMA nodes that could serve all containers of a pod. Empty for one without exclusive CPUs.
    pub fn pod_hints(&self, pod: &Pod) -> ProviderHints {
        let Some(policy) = self.policy_for(pod) else {
            return ProviderHints::new();
        };
        let count = requests::of_pod(pod, policy.pod_level);
        if count == 0 {
            return ProviderHints::new();
        }
        let uid = pod.uid();
        // the containers have parts of these CPUs
        if let Some(cpus) = self.state.pods.get(&uid).filter(|it| it.len() == count) {
            return hints_of(self.hints(policy, cpus, &CpuSet::new(), count));
        }
        if requests::has_pod_level_resources(pod) && check_pool_of_pod(pod).is_err() {
            return hints_of(Vec::new());
        }
        let mut assigned = CpuSet::new();
        for container in pod.init_containers().iter().chain(pod.containers()) {
            let Some(cpus) = self.assigned_to(&uid, &container.name) else {
                continue;
            };
            if cpus.len() != requests::of_container(pod, container, policy.pod_level) {
                return hints_of(Vec::new());
            }
            assigned.extend(cpus.iter());
        }
        if assigned.len() == count {
            return hints_of(self.hints(policy, &assigned, &CpuSet::new(), count));
        }
        let free = &self.state.shared - &policy.reserved;
        let reusable = &self.reusable(pod) | &assigned;
        hints_of(self.hints(policy, &free, &reusable, count))
    }

    fn policy_for(&self, pod: &Pod) -> Option<&Static> {
        let policy = self.policy.as_ref()?;
        (policy.pod_level || !requests::has_pod_level_resources(pod)).then_some(policy)
    }

    /// Sets of NUMA nodes with enough CPUs, smallest first. All reusable CPUs must be in them.
    /// Preferred are those with the fewest nodes that would do on an idle machine.
    fn hints(&self, policy: &Static, free: &CpuSet, reusable: &CpuSet, count: usize) -> Vec<Hint> {
        let all = self.machine.cpu_nodes();
        let (total, free) = (self.by_node(&self.machine.all_cpus()), self.by_node(free));
        let reusable_nodes = self.machine.nodes_of_cpus(reusable);
        let mut sets: Vec<NumaSet> = all.subsets().collect();
        // upstream's order: by size, then by the lowest node
        sets.sort_unstable_by_key(|it| (it.len(), Reverse(it.bits().reverse_bits())));
        let fits = |set: &&NumaSet| sum(&total, **set) >= count;
        let min = sets.iter().find(fits).map_or(all.len(), |set| set.len());
        let enough = sets.into_iter().filter(|set| {
            reusable_nodes.is_subset(*set) && sum(&free, *set) + reusable.len() >= count
        });
        enough
            .map(|set| Hint {
                nodes: Some(set),
                preferred: set.len() == min || policy.by_socket && self.is_socket_aligned(set, min),
            })
            .collect()
    }

    fn by_node(&self, cpus: &CpuSet) -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        for cpu in cpus.iter().filter_map(|cpu| self.machine.cpus.get(&cpu)) {
            *counts.entry(cpu.numa).or_default() += 1;
        }
        counts
    }

    /// The nodes are in no more sockets than the fewest nodes need.
    fn is_socket_aligned(&self, nodes: NumaSet, min_nodes: usize) -> bool {
        let nodes_per_socket = self.machine.cpu_nodes().len() / self.machine.sockets().len().max(1);
        let sockets = self
            .machine
            .sockets_of_cpus(&self.machine.cpus_of_nodes(nodes));
        nodes_per_socket > 0 && sockets.len() == min_nodes.div_ceil(nodes_per_socket)
    }
}

fn sum(counts: &BTreeMap<u32, usize>, nodes: NumaSet) -> usize {
    nodes.iter().filter_map(|node| counts.get(&node)).sum()
}

fn hints_of(hints: Vec<Hint>) -> ProviderHints {
    ProviderHints::from([("cpu".to_owned(), ResourceHints::Of(hints))])
}
