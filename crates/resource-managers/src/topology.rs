//! The topology manager: one placement from the hints of all providers.

mod config;
mod merge;
#[cfg(test)]
mod tests;

use std::fmt;

use windlass_topology::{Machine, NumaSet};

use crate::hints::{Hint, NotAdmitted, ProviderHints};

pub use config::{
    TopologyConfig, TopologyOptionError, TopologyPolicy, TopologyScope, UnknownValue,
};

/// `status.reason` of a pod that cannot be aligned.
const AFFINITY_ERROR: &str = "TopologyAffinityError";

/// Merges hints under a policy on one machine.
#[derive(Clone, Debug)]
pub struct TopologyManager {
    config: TopologyConfig,
    all: NumaSet,
    machine: Machine,
}

/// The machine does not allow the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// More NUMA nodes than `max-allowable-numa-nodes`.
    #[error(
        "topologyManagerPolicy: {policy} is unsupported on machines with more than {max} NUMA \
         Nodes, and this one has {nodes}; set topologyManagerPolicy: none, or the option \
         max-allowable-numa-nodes in topologyManagerPolicyOptions"
    )]
    TooManyNodes {
        /// Policy.
        policy: TopologyPolicy,
        /// Allowed number.
        max: usize,
        /// Number of the machine.
        nodes: usize,
    },
    /// The kernel tells no distances, which `prefer-closest-numa-nodes` compares.
    #[error(
        "topologyManagerPolicyOptions: cannot discover NUMA topology: no distances of NUMA node \
         {0}; remove prefer-closest-numa-nodes"
    )]
    NoDistances(u32),
}

/// The placement that a policy selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedHint {
    /// The placement, for the allocation in each provider.
    pub hint: Hint,
    /// The policy admits it.
    pub admitted: bool,
}

impl TopologyManager {
    /// Creates the manager of a machine.
    ///
    /// # Errors
    /// The machine has too many NUMA nodes, or no distances although an option compares them. The
    /// policy `none` has no errors.
    pub fn new(config: TopologyConfig, machine: &Machine) -> Result<Self, TopologyError> {
        if config.policy != TopologyPolicy::None {
            let blind = machine.nodes.iter().find(|it| it.1.distances.is_empty());
            if let Some((node, _)) = blind.filter(|_| config.prefer_closest) {
                return Err(TopologyError::NoDistances(*node));
            }
            let nodes = machine.nodes.len();
            if nodes > config.max_nodes {
                return Err(TopologyError::TooManyNodes {
                    policy: config.policy,
                    max: config.max_nodes,
                    nodes,
                });
            }
        }
        Ok(Self {
            config,
            all: machine.all_nodes(),
            machine: machine.clone(),
        })
    }

    /// The configuration.
    pub fn config(&self) -> &TopologyConfig {
        &self.config
    }

    /// Selects the best placement for a container or pod from the hints of each provider. The policy
    /// `none` ignores the hints, so they need not be computed.
    pub fn merge(&self, providers: &[ProviderHints]) -> MergedHint {
        if self.config.policy == TopologyPolicy::None {
            let (nodes, preferred) = (None, false);
            let hint = Hint { nodes, preferred };
            return MergedHint {
                hint,
                admitted: true,
            };
        }
        let mut lists = merge::hint_lists(providers);
        let single = self.config.policy == TopologyPolicy::SingleNumaNode;
        if single {
            lists.iter_mut().for_each(merge::keep_single_node);
        }
        let mut hint = self.best(&lists);
        if single && hint.nodes == Some(self.all) {
            hint.nodes = None;
        }
        MergedHint {
            hint,
            admitted: self.config.policy == TopologyPolicy::BestEffort || hint.preferred,
        }
    }

    /// Selects the placement as [`Self::merge`]. `pod_level` is true for a pod with pod-level
    /// resources that the managers allocate (gate `PodLevelResourceManagers`).
    ///
    /// # Errors
    /// The policy does not admit the best placement: `TopologyAffinityError`.
    pub fn place(&self, providers: &[ProviderHints], pod_level: bool) -> Result<Hint, NotAdmitted> {
        let merged = self.merge(providers);
        if merged.admitted {
            return Ok(merged.hint);
        }
        let message = match (pod_level, self.config.scope) {
            (false, _) => "Resources cannot be allocated with Topology locality",
            (true, TopologyScope::Pod) => {
                "Pod Scope pod with pod-level resources failed admission under pod-scope topology \
                 manager"
            }
            (true, TopologyScope::Container) => {
                "Pod Scope pod with pod-level resources failed admission with a container-level \
                 topology manager"
            }
        };
        Err(NotAdmitted {
            reason: AFFINITY_ERROR.to_owned(),
            message: message.to_owned(),
        })
    }

    fn best(&self, lists: &[Vec<Hint>]) -> Hint {
        let compares_distances =
            self.config.prefer_closest && self.config.policy != TopologyPolicy::SingleNumaNode;
        let distance = |set: NumaSet| match compares_distances {
            true => self.distance(set),
            false => 0,
        };
        let preferred = merge::preferred_sets(lists, self.all);
        let best = preferred
            .into_iter()
            .min_by_key(|set| (set.len(), distance(*set), *set));
        if let Some(nodes) = best {
            return Hint {
                nodes: Some(nodes),
                preferred: true,
            };
        }
        let wanted = merge::wanted_nodes(lists);
        let best = merge::reachable_sets(lists, self.all)
            .into_iter()
            .min_by_key(|set| {
                let rank = merge::rank_by_size(set.len(), wanted);
                (rank, distance(*set), *set)
            });
        Hint {
            nodes: Some(best.unwrap_or(self.all)),
            preferred: false,
        }
    }

    /// Sum of the distances between all pairs of nodes, which orders sets of the same size as their
    /// average does.
    fn distance(&self, set: NumaSet) -> u64 {
        let of_node = |from: u32| self.machine.nodes.get(&from).map(|node| &node.distances);
        let rows = set.iter().filter_map(of_node);
        let distances = rows.flat_map(|row| set.iter().filter_map(|to| row.get(&to)));
        distances.map(|distance| u64::from(*distance)).sum()
    }
}

impl fmt::Display for MergedHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.admitted { "admit" } else { "reject" })?;
        match self.hint.nodes {
            None => f.write_str(" any node")?,
            Some(nodes) => write!(f, " nodes {nodes}")?,
        }
        f.write_str(if self.hint.preferred {
            ", preferred"
        } else {
            ""
        })
    }
}
