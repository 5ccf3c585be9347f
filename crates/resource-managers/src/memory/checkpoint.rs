//! The state file, in the format of upstream.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use windlass_units::hash::fnv1a_32;

use super::state::{Block, Entries, MachineState, MemoryTable, PodEntry, State};
use super::{MemoryManager, MemoryPolicy, Restored};

/// Version 1 without, version 2 with entries of pods.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Checkpoint {
    policy_name: String,
    #[serde(default)]
    machine_state: MachineState,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: Entries,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pod_entries: BTreeMap<String, PodEntry>,
    #[serde(default)]
    checksum: u64,
}

/// The Go type whose dump is hashed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    /// Version 1 under the name of its type in versions without a second one.
    OneByNewName,
    Two,
}

impl MemoryManager {
    /// Returns the content of the state file.
    pub fn checkpoint(&self) -> String {
        let mut checkpoint = Checkpoint {
            policy_name: self.config.policy.as_str().to_owned(),
            machine_state: self.state.machine.clone(),
            entries: self.state.entries.clone(),
            pod_entries: self.state.pod_entries.clone(),
            checksum: 0,
        };
        let version = match self.config.pod_level {
            true => Version::Two,
            false => Version::One,
        };
        checkpoint.checksum = checkpoint.hash(version);
        serde_json::to_string(&checkpoint).unwrap_or_default()
    }

    /// Replaces the assignments by those of a state file, which can be of upstream. Assignments of
    /// pods that use a node or resource that does not exist are dropped.
    pub fn restore(&mut self, content: &str) -> Restored {
        self.reusable.clear();
        self.state = self.unused.clone();
        let checkpoint = match Checkpoint::parse(content) {
            Ok(checkpoint) => checkpoint,
            Err(reason) => return Restored::SetAside(reason),
        };
        // without assignments nothing is lost
        if checkpoint.entries.is_empty() && checkpoint.pod_entries.is_empty() {
            return Restored::Kept;
        }
        let policy = self.config.policy;
        if checkpoint.policy_name != policy.as_str() {
            let reason = format!(
                "[memorymanager] configured policy {:?} differs from state checkpoint policy {:?}",
                policy.as_str(),
                checkpoint.policy_name
            );
            return Restored::SetAside(reason);
        }
        let reasons = match policy {
            MemoryPolicy::None => Vec::new(),
            MemoryPolicy::Static => self.restore_assignments(checkpoint),
        };
        match reasons.is_empty() {
            true => Restored::Kept,
            false => Restored::Migrated(reasons),
        }
    }

    /// Adds the assignments of the file. Returns what differs from it.
    fn restore_assignments(&mut self, checkpoint: Checkpoint) -> Vec<String> {
        let mut reasons = Vec::new();
        for (uid, containers) in checkpoint.entries {
            let pod = checkpoint.pod_entries.get(&uid);
            let blocks: Vec<&Block> = match pod {
                Some(pod) => pod.memory_blocks.iter().collect(),
                None => containers.values().flatten().collect(),
            };
            let missing = blocks.iter().find_map(|block| self.state.missing(block));
            if let Some(missing) = missing {
                reasons.push(format!("assignment of pod {uid} dropped: {missing}"));
                continue;
            }
            for block in blocks {
                self.state.take(block.nodes, &block.resource, block.size);
            }
            if let Some(pod) = pod {
                self.state.pod_entries.insert(uid.clone(), pod.clone());
            }
            self.state.entries.insert(uid, containers);
        }
        if is_equal(&checkpoint.machine_state, &self.state.machine) {
            self.state.machine = checkpoint.machine_state;
        } else if !checkpoint.machine_state.is_empty() {
            let reason =
                "[memorymanager] the expected machine state is different from the real one";
            reasons.insert(0, reason.to_owned());
        }
        reasons
    }
}

impl State {
    fn missing(&self, block: &Block) -> Option<String> {
        block
            .nodes
            .iter()
            .find_map(|node| match self.machine.get(&node) {
                None => Some(format!("no NUMA node {node}")),
                Some(state) if state.memory_map.contains_key(&block.resource) => None,
                Some(_) => Some(format!("no {} on NUMA node {node}", block.resource)),
            })
    }
}

/// True if the assignments are the same, and the memory of each node and group (upstream
/// `areMachineStatesEqual`): the nodes of a group can have other parts of a block.
fn is_equal(real: &MachineState, expected: &MachineState) -> bool {
    let sum = |machine: &MachineState, node: u32, name: &str| {
        let cells = machine
            .get(&node)
            .map(|state| state.cells)
            .unwrap_or_default();
        let states = cells.iter().filter_map(|cell| machine.get(&cell));
        let tables = states.filter_map(|state| state.memory_map.get(name));
        tables.fold((0_u64, 0_u64), |(free, reserved), table| {
            let free = free.saturating_add(table.free);
            (free, reserved.saturating_add(table.reserved))
        })
    };
    let fixed = |table: &MemoryTable| (table.total, table.system_reserved, table.allocatable);
    let is_same_node = |node: u32| {
        let (Some(a), Some(b)) = (real.get(&node), expected.get(&node)) else {
            return false;
        };
        let mut names = a.memory_map.iter();
        (a.number_of_assignments, a.cells) == (b.number_of_assignments, b.cells)
            && a.memory_map.len() == b.memory_map.len()
            && names.all(|(name, table)| {
                b.memory_map.get(name).map(fixed) == Some(fixed(table))
                    && sum(real, node, name) == sum(expected, node, name)
            })
    };
    real.len() == expected.len() && real.keys().all(|node| is_same_node(*node))
}

impl Checkpoint {
    fn parse(content: &str) -> Result<Self, String> {
        let checkpoint: Self = serde_json::from_str(content).map_err(|error| error.to_string())?;
        let expected = checkpoint.checksum;
        // upstream accepts no checksum, which an old file backend wrote
        if expected == 0 {
            return Ok(checkpoint);
        }
        let versions = [Version::One, Version::Two, Version::OneByNewName];
        let hashes = versions.map(|version| checkpoint.hash(version));
        match hashes.contains(&expected) {
            true => Ok(checkpoint),
            false => Err(format!(
                "checkpoint is corrupted: its checksum is {expected}, of its content {}",
                hashes[0]
            )),
        }
    }

    /// Returns the checksum: the hash of Go's dump of the object (upstream `dump.ForHash`).
    fn hash(&self, version: Version) -> u64 {
        let name = match version {
            Version::OneByNewName => "MemoryManagerCheckpointV1",
            Version::One | Version::Two => "MemoryManagerCheckpoint",
        };
        let mut text = String::new();
        // writing to a string has no errors
        let _ = self.dump(&mut text, name, version == Version::Two);
        u64::from(fnv1a_32(text.as_bytes()))
    }

    fn dump(&self, to: &mut String, name: &str, with_pods: bool) -> std::fmt::Result {
        write!(
            to,
            "(*state.{name}){{PolicyName:(string){}",
            self.policy_name
        )?;
        to.push_str(" MachineState:(state.NUMANodeMap)map[");
        for (index, (node, state)) in self.machine_state.iter().enumerate() {
            write!(
                to,
                "{}{node}:<*>{{NumberOfAssignments:(int){} \
                 MemoryMap:(map[v1.ResourceName]*state.MemoryTable)map[",
                separator(index),
                state.number_of_assignments,
            )?;
            for (index, (name, table)) in state.memory_map.iter().enumerate() {
                write!(
                    to,
                    "{}{name}:<*>{{TotalMemSize:(uint64){} SystemReserved:(uint64){} \
                     Allocatable:(uint64){} Reserved:(uint64){} Free:(uint64){}}}",
                    separator(index),
                    table.total,
                    table.system_reserved,
                    table.allocatable,
                    table.reserved,
                    table.free,
                )?;
            }
            let cells = list(state.cells);
            write!(to, "] Cells:([]int)[{cells}]}}")?;
        }
        to.push_str("] Entries:(state.ContainerMemoryAssignments)map[");
        for (index, (uid, containers)) in self.entries.iter().enumerate() {
            write!(to, "{}{uid}:map[", separator(index))?;
            for (index, (container, blocks)) in containers.iter().enumerate() {
                write!(to, "{}{container}:", separator(index))?;
                dump_blocks(to, blocks)?;
            }
            to.push(']');
        }
        to.push(']');
        if with_pods {
            to.push_str(" PodEntries:(state.PodMemoryAssignments)map[");
            for (index, (uid, pod)) in self.pod_entries.iter().enumerate() {
                write!(
                    to,
                    "{}{uid}:{{MemoryBlocks:([]state.Block)",
                    separator(index)
                )?;
                dump_blocks(to, &pod.memory_blocks)?;
                to.push('}');
            }
            to.push(']');
        }
        to.push_str(" Checksum:(checksum.Checksum)0}");
        Ok(())
    }
}

fn dump_blocks(to: &mut String, blocks: &[Block]) -> std::fmt::Result {
    to.push('[');
    for (index, block) in blocks.iter().enumerate() {
        write!(
            to,
            "{}{{NUMAAffinity:([]int)[{}] Type:(v1.ResourceName){} Size:(uint64){}}}",
            separator(index),
            list(block.nodes),
            block.resource,
            block.size,
        )?;
    }
    to.push(']');
    Ok(())
}

fn list(nodes: windlass_topology::NumaSet) -> String {
    nodes.to_string().replace(',', " ")
}

fn separator(index: usize) -> &'static str {
    match index {
        0 => "",
        _ => " ",
    }
}
