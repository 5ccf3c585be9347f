//! Choice of CPUs by topology (upstream `takeByTopologyNUMAPacked`).

use std::collections::{BTreeMap, BTreeSet};

use windlass_topology::{Cpu, CpuSet, Machine};

use super::distribute;

/// How CPUs are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taking {
    /// Option `distribute-cpus-across-cores`.
    pub(super) spread: bool,
    /// Option `prefer-align-cpus-by-uncorecache`.
    pub(super) by_uncore: bool,
    /// Option `distribute-cpus-across-numa`.
    pub(super) across_numa: bool,
    /// CPUs that a NUMA node gives at once when distributing: the threads of a core with option
    /// `full-pcpus-only`, else 1.
    pub(super) group: usize,
}

/// Error of a choice; the texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TakeError {
    #[error("not enough cpus available to satisfy request: requested={count}, available={free}")]
    NotEnough { count: usize, free: usize },
    #[error("accounting error, not enough CPUs allocated, remaining: {0}")]
    Accounting(usize),
}

/// Chooses `count` of the free CPUs.
pub(super) fn take(
    machine: &Machine,
    free: &CpuSet,
    count: usize,
    taking: Taking,
) -> Result<CpuSet, TakeError> {
    if count > free.len() {
        let free = free.len();
        return Err(TakeError::NotEnough { count, free });
    }
    match taking.across_numa && count > 0 {
        true => distribute::take(machine, free, count, taking),
        false => Ok(packed(machine, free, count, taking)),
    }
}

/// Chooses CPUs that share as much as possible: whole NUMA nodes and sockets, then uncore caches,
/// whole cores, and single CPUs of the cores with the fewest free ones. There are enough free CPUs.
pub(super) fn packed(machine: &Machine, free: &CpuSet, count: usize, taking: Taking) -> CpuSet {
    let mut pool = Pool::new(machine, free, count);
    let (first, second) = pool.levels();
    pool.take_full(first, &pool.first_order());
    pool.take_full(second, &pool.second_order());
    if taking.by_uncore {
        pool.take_by_uncore();
    }
    if !taking.spread {
        pool.take_full(|cpu| cpu.core, &pool.core_order());
    }
    let order = match taking.spread {
        true => pool.cpus_in(|cpu| cpu.socket, &pool.socket_order()),
        false => pool.cpus_in(|cpu| cpu.core, &pool.core_order()),
    };
    pool.take(order.into_iter().take(pool.needed).collect());
    pool.taken
}

/// Part of the topology that a CPU is in: its core, socket, NUMA node or uncore cache.
pub(super) type Level = fn(&Cpu) -> u32;

/// Free CPUs, and those that were taken from them.
pub(super) struct Pool<'a> {
    machine: &'a Machine,
    free: BTreeMap<u32, Cpu>,
    pub(super) taken: CpuSet,
    pub(super) needed: usize,
}

impl<'a> Pool<'a> {
    pub(super) fn new(machine: &'a Machine, free: &CpuSet, needed: usize) -> Self {
        let known = free
            .iter()
            .filter_map(|it| Some((it, *machine.cpus.get(&it)?)));
        Self {
            machine,
            free: known.collect(),
            taken: CpuSet::new(),
            needed,
        }
    }

    pub(super) fn take(&mut self, cpus: CpuSet) {
        self.free.retain(|cpu, _| !cpus.contains(*cpu));
        self.needed = self.needed.saturating_sub(cpus.len());
        self.taken.extend(cpus.iter());
    }

    /// Free CPUs of one part of a level.
    pub(super) fn free_in(&self, level: Level, id: u32) -> CpuSet {
        let free = self.free.iter().filter(|(_, cpu)| level(cpu) == id);
        free.map(|(number, _)| *number).collect()
    }

    /// NUMA nodes with free CPUs: fewest first, within the sockets if these are larger.
    pub(super) fn numa_order(&self) -> Vec<u32> {
        match self.is_numa_first() {
            true => self.first_order(),
            false => self.second_order(),
        }
    }

    fn socket_order(&self) -> Vec<u32> {
        match self.is_numa_first() {
            true => self.second_order(),
            false => self.first_order(),
        }
    }

    fn is_numa_first(&self) -> bool {
        self.machine.sockets().len() >= self.machine.cpu_nodes().len()
    }

    /// The larger and the smaller one of NUMA node and socket.
    fn levels(&self) -> (Level, Level) {
        match self.is_numa_first() {
            true => (|cpu| cpu.numa, |cpu| cpu.socket),
            false => (|cpu| cpu.socket, |cpu| cpu.numa),
        }
    }

    fn first_order(&self) -> Vec<u32> {
        self.order(self.levels().0, |_| true)
    }

    fn second_order(&self) -> Vec<u32> {
        let (first, second) = self.levels();
        self.order_within(first, self.first_order(), second)
    }

    fn core_order(&self) -> Vec<u32> {
        self.order_within(self.levels().1, self.second_order(), |cpu| cpu.core)
    }

    fn uncore_order(&self) -> Vec<u32> {
        self.order_within(|cpu| cpu.numa, self.numa_order(), |cpu| cpu.uncore)
    }

    /// Parts of a level that have a free CPU for which a condition holds: those with the fewest free
    /// CPUs first, then by ID.
    fn order(&self, level: Level, holds: impl Fn(&Cpu) -> bool) -> Vec<u32> {
        let mut parts: BTreeMap<u32, (usize, bool)> = BTreeMap::new();
        for cpu in self.free.values() {
            let part = parts.entry(level(cpu)).or_default();
            part.0 += 1;
            part.1 |= holds(cpu);
        }
        let held = parts.into_iter().filter(|(_, (_, held))| *held);
        let mut order: Vec<(usize, u32)> = held.map(|(id, (free, _))| (free, id)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, id)| id).collect()
    }

    /// Parts of a level, outer part by outer part, each once.
    fn order_within(&self, outer: Level, outer_order: Vec<u32>, level: Level) -> Vec<u32> {
        let mut seen = BTreeSet::new();
        let parts = outer_order.into_iter();
        let parts = parts.flat_map(|id| self.order(level, move |cpu| outer(cpu) == id));
        parts.filter(|id| seen.insert(*id)).collect()
    }

    /// Free CPUs, part by part.
    fn cpus_in(&self, level: Level, order: &[u32]) -> Vec<u32> {
        let mut by_part: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (number, cpu) in &self.free {
            by_part.entry(level(cpu)).or_default().push(*number);
        }
        let parts = order.iter().filter_map(|id| by_part.remove(id));
        parts.flatten().collect()
    }

    /// Takes the parts of which all CPUs are free, in order, as long as the whole part is needed.
    fn take_full(&mut self, level: Level, order: &[u32]) {
        let mut free: BTreeMap<u32, CpuSet> = BTreeMap::new();
        for (number, cpu) in &self.free {
            free.entry(level(cpu)).or_default().insert(*number);
        }
        let mut sizes: BTreeMap<u32, usize> = BTreeMap::new();
        for cpu in self.machine.cpus.values() {
            *sizes.entry(level(cpu)).or_default() += 1;
        }
        for id in order {
            let is_whole = |cpus: &CpuSet| sizes.get(id) == Some(&cpus.len());
            let Some(cpus) = free.remove(id).filter(is_whole) else {
                continue;
            };
            if self.needed > 0 && self.needed >= cpus.len() {
                self.take(cpus);
            }
        }
    }

    fn take_by_uncore(&mut self) {
        let uncores: BTreeSet<u32> = self.machine.cpus.values().map(|it| it.uncore).collect();
        let average = self.machine.cpus.len() / uncores.len().max(1);
        for uncore in self.uncore_order() {
            if self.needed >= average {
                self.take_full(|cpu| cpu.uncore, &self.uncore_order());
            }
            if self.needed == 0 {
                return;
            }
            self.take_part_of_uncore(uncore);
        }
    }

    /// Takes all needed CPUs from one cache, if its cores have them.
    fn take_part_of_uncore(&mut self, uncore: u32) {
        let threads = self.machine.threads_per_core().max(1);
        let free = self.free.values().filter(|cpu| cpu.uncore == uncore);
        let cores: BTreeSet<u32> = free.map(|cpu| cpu.core).collect();
        let cores: BTreeSet<u32> = cores
            .into_iter()
            .take(self.needed.div_ceil(threads))
            .collect();
        let free = self
            .free
            .iter()
            .filter(|(_, cpu)| cores.contains(&cpu.core));
        let mut cpus: Vec<u32> = free.map(|(number, _)| *number).collect();
        // an odd number leaves one thread of the last core
        if !self.needed.is_multiple_of(2) && threads > 1 && cpus.len() > self.needed {
            cpus.pop();
        }
        if self.needed > 0 && cpus.len() == self.needed {
            self.take(cpus.into_iter().collect());
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
