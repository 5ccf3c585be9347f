//! The topology of a machine as a value.

use std::collections::{BTreeMap, BTreeSet};

use crate::{CpuSet, NumaSet};

/// One logical CPU (a hardware thread).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Physical core: the lowest CPU number of its threads, so unique on the machine.
    pub core: u32,
    /// Socket (`physical_package_id`).
    pub socket: u32,
    /// NUMA node.
    pub numa: u32,
    /// Group of CPUs that share the last level (uncore) cache: its cache ID.
    pub uncore: u32,
}

/// Memory of one NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaNode {
    /// Memory in bytes (`MemTotal`), huge pages included.
    pub memory: u64,
    /// Number of preallocated huge pages by their size in bytes.
    pub huge_pages: BTreeMap<u64, u64>,
    /// Distance to each node, by node; 10 to itself. Empty if the kernel tells none.
    pub distances: BTreeMap<u32, u32>,
}

/// Online CPUs and NUMA nodes. A machine without NUMA has node 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// CPUs by number.
    pub cpus: BTreeMap<u32, Cpu>,
    /// NUMA nodes by number; a node without CPUs has memory only.
    pub nodes: BTreeMap<u32, NumaNode>,
}

impl Machine {
    /// All CPUs.
    pub fn all_cpus(&self) -> CpuSet {
        self.cpus.keys().copied().collect()
    }

    /// All NUMA nodes.
    pub fn all_nodes(&self) -> NumaSet {
        self.nodes.keys().copied().collect()
    }

    /// The CPUs for which a condition holds.
    pub fn cpus_where(&self, holds: impl Fn(&Cpu) -> bool) -> CpuSet {
        let cpus = self.cpus.iter().filter(|(_, cpu)| holds(cpu));
        cpus.map(|(number, _)| *number).collect()
    }

    /// CPUs of some NUMA nodes.
    pub fn cpus_of_nodes(&self, nodes: NumaSet) -> CpuSet {
        self.cpus_where(|cpu| nodes.contains(cpu.numa))
    }

    /// NUMA nodes of some CPUs.
    pub fn nodes_of_cpus(&self, cpus: &CpuSet) -> NumaSet {
        let found = cpus.iter().filter_map(|cpu| self.cpus.get(&cpu));
        found.map(|cpu| cpu.numa).collect()
    }

    /// Sockets of some CPUs.
    pub fn sockets_of_cpus(&self, cpus: &CpuSet) -> BTreeSet<u32> {
        let found = cpus.iter().filter_map(|cpu| self.cpus.get(&cpu));
        found.map(|cpu| cpu.socket).collect()
    }

    /// NUMA nodes that have CPUs.
    pub fn cpu_nodes(&self) -> NumaSet {
        self.cpus.values().map(|cpu| cpu.numa).collect()
    }

    /// Sockets.
    pub fn sockets(&self) -> BTreeSet<u32> {
        self.cpus.values().map(|cpu| cpu.socket).collect()
    }

    /// Number of physical cores.
    pub(crate) fn core_count(&self) -> usize {
        let heads = self
            .cpus
            .iter()
            .filter(|(number, cpu)| **number == cpu.core);
        heads.count()
    }

    /// Threads of a core, on average (upstream `CPUsPerCore`); 0 without CPUs.
    pub fn threads_per_core(&self) -> usize {
        self.cpus.len().checked_div(self.core_count()).unwrap_or(0)
    }
}
