//! Topology hints for devices (upstream `GetTopologyHints`, `GetPodTopologyHints`).

use std::collections::{BTreeMap, BTreeSet};

use windlass_topology::NumaSet;
use windlass_types::PodUid;

use super::{Devices, Resource};
use crate::hints::{Hint, ResourceHints};

/// NUMA nodes with devices of one resource up to which hints are generated: one per subset. The
/// topology manager refuses machines with more than 8 by default.
const MAX_HINT_NODES: usize = 16;

/// A container of a pod, in the order of allocation: init containers first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodContainer {
    /// Name.
    pub name: String,
    /// An init container that is not a sidecar: its devices are free for later containers.
    pub completes: bool,
}

impl Devices {
    /// Devices of earlier containers of a pod that a container can reuse: those of init containers
    /// that no later container has taken.
    pub fn reusable(
        &self,
        pod: &PodUid,
        resource: &str,
        earlier: &[PodContainer],
    ) -> BTreeSet<String> {
        let mut reusable = BTreeSet::new();
        for container in earlier {
            let Some(assigned) = self.assigned(pod, &container.name, resource) else {
                continue;
            };
            let ids = assigned.ids();
            match container.completes {
                true => reusable.extend(ids.into_iter().map(str::to_owned)),
                false => reusable.retain(|id| !ids.contains(id.as_str())),
            }
        }
        reusable
    }

    /// Hints for the request of a container, on a machine with these NUMA nodes.
    pub fn container_hints(
        &self,
        machine: NumaSet,
        (pod, container): (&PodUid, &str),
        (resource, amount): (&str, usize),
        reusable: &BTreeSet<String>,
    ) -> ResourceHints {
        let assigned = self.assigned(pod, container, resource);
        let assigned = assigned.map(super::Assigned::ids).unwrap_or_default();
        self.hints(machine, (resource, amount), &assigned, reusable)
    }

    /// Hints for the request of a whole pod, on a machine with these NUMA nodes.
    pub fn pod_hints(
        &self,
        machine: NumaSet,
        pod: &PodUid,
        (resource, amount): (&str, usize),
    ) -> ResourceHints {
        let containers = self.pods.get(pod).into_iter().flat_map(|it| it.values());
        let assigned = containers.filter_map(|it| it.get(resource));
        let assigned = assigned.flat_map(super::Assigned::ids).collect();
        self.hints(machine, (resource, amount), &assigned, &BTreeSet::new())
    }

    fn hints(
        &self,
        machine: NumaSet,
        (name, amount): (&str, usize),
        assigned: &BTreeSet<&str>,
        reusable: &BTreeSet<String>,
    ) -> ResourceHints {
        let Some(resource) = self.resources.get(name).filter(|it| it.has_topology()) else {
            return ResourceHints::Any;
        };
        if !assigned.is_empty() {
            return match assigned.len() == amount {
                true => resource.hints(machine, amount, assigned, &BTreeSet::new()),
                false => ResourceHints::Of(Vec::new()),
            };
        }
        let in_use = self.in_use(name);
        let healthy = resource.healthy().map(|(id, _)| id.as_str());
        let free: BTreeSet<&str> = healthy.filter(|id| !in_use.contains(id)).collect();
        let reusable: BTreeSet<&str> = reusable.iter().map(String::as_str).collect();
        if free.union(&reusable).count() < amount {
            return ResourceHints::Of(Vec::new());
        }
        resource.hints(machine, amount, &free, &reusable)
    }
}

impl Resource {
    fn has_topology(&self) -> bool {
        self.devices.values().any(|it| !it.nodes.is_empty())
    }

    /// Number of devices by their NUMA nodes.
    fn counts<'a>(&self, ids: impl Iterator<Item = &'a str>) -> BTreeMap<NumaSet, usize> {
        let mut counts = BTreeMap::new();
        for id in ids {
            let nodes = self
                .devices
                .get(id)
                .map_or(NumaSet::default(), |it| it.nodes);
            *counts.entry(nodes).or_default() += 1;
        }
        counts
    }

    /// One hint per set of nodes with enough free and reusable devices, which has all reusable ones.
    /// A hint is preferred if it has as few nodes as any set whose devices, also used ones, suffice.
    fn hints(
        &self,
        machine: NumaSet,
        amount: usize,
        free: &BTreeSet<&str>,
        reusable: &BTreeSet<&str>,
    ) -> ResourceHints {
        let with_devices = self
            .devices
            .values()
            .fold(NumaSet::default(), |all, it| all.or(it.nodes));
        let nodes = match with_devices.and(machine) {
            known if known.is_empty() => machine,
            known => known,
        };
        if nodes.len() > MAX_HINT_NODES {
            return ResourceHints::Any;
        }
        let all = self.counts(self.devices.keys().map(String::as_str));
        let free = self.counts(free.iter().copied());
        let reusable = self.counts(reusable.iter().copied());
        let within = |counts: &BTreeMap<NumaSet, usize>, mask: NumaSet| -> usize {
            let hit = counts
                .iter()
                .filter(|(nodes, _)| !nodes.and(mask).is_empty());
            hit.map(|(_, count)| count).sum()
        };
        let mut min_size = nodes.len();
        let mut found = Vec::new();
        for mask in nodes.subsets() {
            if mask.len() < min_size && within(&all, mask) >= amount {
                min_size = mask.len();
            }
            let mut kept = reusable.keys().filter(|it| !it.is_empty());
            let keeps_all = kept.all(|nodes| !nodes.and(mask).is_empty());
            if keeps_all && within(&free, mask) + within(&reusable, mask) >= amount {
                found.push(mask);
            }
        }
        found.sort_by_cached_key(|mask| (mask.len(), mask.iter().collect::<Vec<_>>()));
        let hint = |mask: NumaSet| Hint {
            nodes: Some(mask),
            preferred: mask.len() == min_size,
        };
        ResourceHints::Of(found.into_iter().map(hint).collect())
    }
}
