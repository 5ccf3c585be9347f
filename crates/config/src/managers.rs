//! Settings of the CPU, memory and topology managers, from fields and feature gates.

use std::collections::BTreeMap;

use windlass_eviction::Amount;
use windlass_resource_managers::cpu::CpuSettings;
use windlass_resource_managers::memory::{
    MemoryConfig, MemoryPolicy, ReservedMemoryError, reserved_memory,
};
use windlass_resource_managers::topology::{TopologyConfig, TopologyOptionError};
use windlass_topology::{CpuSet, Machine};
use windlass_units::quantity::Quantity;

use crate::gates::FeatureGates;
use crate::kubelet::KubeletConfiguration;
use crate::load::Config;

impl Config {
    /// Returns the settings of the CPU manager.
    pub fn cpu_manager(&self) -> CpuSettings {
        cpu_settings(&self.kubelet, &self.gates)
    }

    /// Returns the settings of the topology manager.
    pub fn topology_manager(&self) -> TopologyConfig {
        // a loaded configuration is valid
        topology_config(&self.kubelet).unwrap_or_default()
    }

    /// Returns the settings of the memory manager on a machine with a memory capacity in bytes.
    ///
    /// # Errors
    /// With the policy `Static`, `reservedMemory` differs from what the node reserves, or has a NUMA
    /// node that does not exist.
    pub fn memory_manager(
        &self,
        machine: &Machine,
        capacity: u64,
    ) -> Result<MemoryConfig, ReservedMemoryError> {
        let policy = self.kubelet.memory_manager_policy.parse();
        let policy = policy.unwrap_or(MemoryPolicy::None);
        let reserved = match policy {
            MemoryPolicy::None => Default::default(),
            MemoryPolicy::Static => {
                let node = node_reserved(&self.kubelet, Some(capacity)).unwrap_or_default();
                reserved_memory(&entries(&self.kubelet), &node, machine)?
            }
        };
        let pod_level = manages_pod_level(&self.gates);
        Ok(MemoryConfig {
            policy,
            reserved,
            pod_level,
        })
    }
}

fn manages_pod_level(gates: &FeatureGates) -> bool {
    gates.enabled("PodLevelResourceManagers") && gates.enabled("PodLevelResources")
}

pub(crate) fn cpu_settings(c: &KubeletConfiguration, gates: &FeatureGates) -> CpuSettings {
    let reserved: CpuSet = c.reserved_system_cpus.parse().unwrap_or_default();
    // CPUs by number replace the amounts
    let reserved_milli = match i64::try_from(reserved.len()) {
        Ok(count) if count > 0 => count * 1000,
        _ => amounts(c, "cpu").milli_value(),
    };
    CpuSettings {
        is_static: c.cpu_manager_policy == "static",
        options: c.cpu_manager_policy_options.clone(),
        alpha_options: gates.enabled("CPUManagerPolicyAlphaOptions"),
        beta_options: gates.enabled("CPUManagerPolicyBetaOptions"),
        pod_level: manages_pod_level(gates),
        reserved_milli,
        reserved,
        single_numa_node: c.topology_manager_policy == "single-numa-node",
    }
}

pub(crate) fn topology_config(
    c: &KubeletConfiguration,
) -> Result<TopologyConfig, TopologyOptionError> {
    TopologyConfig::new(
        c.topology_manager_policy.parse().unwrap_or_default(),
        c.topology_manager_scope.parse().unwrap_or_default(),
        &c.topology_manager_policy_options,
    )
}

/// Checks `reservedMemory` without the machine: its NUMA nodes exist, and the sums of memory must
/// not depend on the capacity.
pub(crate) fn check_reserved_memory(c: &KubeletConfiguration) -> Result<(), ReservedMemoryError> {
    let Some(node) = node_reserved(c, None) else {
        return Ok(());
    };
    let entries = entries(c);
    let nodes = entries.iter().filter_map(|it| u32::try_from(it.0).ok());
    let machine = Machine {
        nodes: nodes.map(|node| (node, Default::default())).collect(),
        ..Machine::default()
    };
    reserved_memory(&entries, &node, &machine).map(drop)
}

fn entries(c: &KubeletConfiguration) -> Vec<(i32, BTreeMap<String, Quantity>)> {
    let parse = |(name, amount): (&String, &String)| Some((name.clone(), amount.parse().ok()?));
    let entry = |limits: &BTreeMap<String, String>| limits.iter().filter_map(parse).collect();
    let entries = c.reserved_memory.iter();
    entries
        .map(|it| (it.numa_node, entry(&it.limits)))
        .collect()
}

/// Returns what node allocatable subtracts from the memory; `None` if it is a share of a capacity
/// that is not known.
fn node_reserved(
    c: &KubeletConfiguration,
    capacity: Option<u64>,
) -> Option<BTreeMap<String, Quantity>> {
    let threshold = c.eviction_hard.get("memory.available");
    let threshold = threshold.and_then(|text| Amount::parse_threshold(text).ok().flatten());
    let eviction = match (threshold, capacity) {
        (None, _) => Quantity::ZERO,
        (Some(Amount::Quantity(amount)), _) => amount,
        (Some(share), capacity) => share.resolve(capacity?),
    };
    let memory = amounts(c, "memory") + eviction;
    Some(BTreeMap::from([("memory".to_owned(), memory)]))
}

/// Returns the sum of `systemReserved` and `kubeReserved`.
fn amounts(c: &KubeletConfiguration, name: &str) -> Quantity {
    let of = |list: &BTreeMap<String, String>| -> Quantity {
        let amount = list.get(name).and_then(|amount| amount.parse().ok());
        amount.unwrap_or_default()
    };
    of(&c.system_reserved) + of(&c.kube_reserved)
}

#[cfg(test)]
mod tests {
    //! From flags to settings.

    use windlass_resource_managers::topology::{TopologyPolicy, TopologyScope};
    use windlass_topology::NumaNode;

    use super::*;
    use crate::flags::KubeletFlags;
    use crate::load::load;

    fn config(args: &[&str]) -> Config {
        let args = std::iter::once("windlass").chain(args.iter().copied());
        let flags = KubeletFlags::from_args(args.map(Into::into)).expect("flags");
        load(&flags).expect("valid")
    }

    #[test]
    fn managers_are_off_by_default() {
        let config = config(&[]);
        assert!(!config.cpu_manager().is_static);
        assert_eq!(config.topology_manager(), TopologyConfig::default());
        let memory = config.memory_manager(&Machine::default(), 0);
        assert_eq!(memory, Ok(MemoryConfig::default()));
    }

    #[test]
    fn fields_and_gates_become_settings() {
        let config = config(&[
            "--cpu-manager-policy=static",
            "--cpu-manager-policy-options=align-by-socket=true",
            "--feature-gates=CPUManagerPolicyAlphaOptions=true,PodLevelResourceManagers=true",
            "--kube-reserved=cpu=200m",
            "--system-reserved=cpu=1,memory=924Mi",
            "--topology-manager-policy=restricted",
            "--topology-manager-scope=pod",
            "--topology-manager-policy-options=max-allowable-numa-nodes=10",
            "--memory-manager-policy=Static",
            "--reserved-memory=0:memory=512Mi;1:memory=512Mi",
        ]);
        let cpu = config.cpu_manager();
        assert!(cpu.is_static && cpu.alpha_options && cpu.beta_options && cpu.pod_level);
        assert_eq!((cpu.reserved_milli, cpu.reserved.is_empty()), (1200, true));
        let topology = config.topology_manager();
        assert_eq!(topology.policy, TopologyPolicy::Restricted);
        assert_eq!(topology.scope, TopologyScope::Pod);
        assert_eq!((topology.prefer_closest, topology.max_nodes), (false, 10));

        let mut machine = Machine::default();
        machine.nodes.insert(0, NumaNode::default());
        let error = config.memory_manager(&machine, 8 << 30).unwrap_err();
        assert!(
            error.to_string().contains("references a NUMA node 1"),
            "{error}"
        );
        machine.nodes.insert(1, NumaNode::default());
        let memory = config.memory_manager(&machine, 8 << 30).expect("adds up");
        assert_eq!(
            (memory.policy, memory.pod_level),
            (MemoryPolicy::Static, true)
        );
    }

    #[test]
    fn numbered_cpus_replace_reserved_amounts() {
        let cpu = config(&["--reserved-cpus=0,2-3", "--kube-reserved=cpu=500m"]).cpu_manager();
        assert_eq!(
            (cpu.reserved_milli, cpu.reserved.to_string()),
            (3000, "0,2-3".to_owned())
        );
    }

    #[test]
    fn share_of_capacity_is_added_on_the_machine() {
        let config = config(&[
            "--memory-manager-policy=Static",
            "--eviction-hard=memory.available<25%",
            "--reserved-memory=0:memory=2Gi",
        ]);
        let mut machine = Machine::default();
        machine.nodes.insert(0, NumaNode::default());
        assert!(config.memory_manager(&machine, 8 << 30).is_ok());
        let error = config.memory_manager(&machine, 4 << 30).unwrap_err();
        assert!(error.to_string().contains("\"2Gi\""), "{error}");
        assert!(error.to_string().contains("\"1Gi\""), "{error}");
    }
}
