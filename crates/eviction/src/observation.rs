//! What was measured on the node.

use std::collections::BTreeMap;
use std::fmt;

use windlass_types::Timestamp;

use crate::signal::Signal;

/// One measurement of a signal. Bytes, inodes or processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Amount available.
    pub available: u64,
    /// Total amount; of memory, available plus working set.
    pub capacity: u64,
    /// When it was measured. An observation with the time of the previous one evicts nothing.
    pub at: Timestamp,
}

/// Facts that tell page cache from memory that is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryFacts {
    /// Active file pages in bytes (`active_file` of `memory.stat`); 0 if unknown.
    pub active_file: u64,
    /// `MemAvailable` of `/proc/meminfo` in bytes, for the node.
    pub mem_available: Option<u64>,
    /// Stall times; `None` without PSI.
    pub stall: Option<Stall>,
}

/// Share of the last 10 s in which tasks waited for memory, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stall {
    /// Some tasks waited.
    pub some_avg10: f64,
    /// All tasks waited.
    pub full_avg10: f64,
}

/// All measurements of one pass. A signal that could not be measured is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observations {
    /// By signal.
    pub signals: BTreeMap<Signal, Observation>,
    /// Memory of the node, for `memory.available`.
    pub node_memory: MemoryFacts,
    /// Memory of the pods' cgroup, for `allocatableMemory.available`.
    pub pods_memory: MemoryFacts,
}

impl Observations {
    /// Returns the measurement of a signal.
    pub fn get(&self, signal: Signal) -> Option<&Observation> {
        self.signals.get(&signal)
    }

    /// Returns the facts for a memory signal.
    pub(crate) fn memory_facts(&self, signal: Signal) -> Option<&MemoryFacts> {
        match signal {
            Signal::MemoryAvailable => Some(&self.node_memory),
            Signal::AllocatableMemoryAvailable => Some(&self.pods_memory),
            _ => None,
        }
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "some {:.1}% full {:.1}%",
            self.some_avg10, self.full_avg10
        )
    }
}
