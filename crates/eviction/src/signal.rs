//! What is measured, and the resource and node condition that it stands for.

use std::fmt;
use std::str::FromStr;

use windlass_units::quantity::{Quantity, QuantityFormat};

/// A quantity whose shortage evicts pods. The order is the order in which shortages are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Memory of the node: capacity minus working set.
    MemoryAvailable,
    /// Memory below the limit of the pods' cgroup: limit minus working set.
    AllocatableMemoryAvailable,
    /// Bytes on the file system of `--root-dir`.
    NodeFsAvailable,
    /// Inodes on the file system of `--root-dir`.
    NodeFsInodesFree,
    /// Bytes on the file system of images.
    ImageFsAvailable,
    /// Inodes on the file system of images.
    ImageFsInodesFree,
    /// Bytes on the file system of writable layers.
    ContainerFsAvailable,
    /// Inodes on the file system of writable layers.
    ContainerFsInodesFree,
    /// Process identifiers of the node.
    PidAvailable,
}

/// A text that names no signal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be one of {list}, got {text:?}", list = signal_list(), text = .0)]
pub struct UnknownSignal(pub String);

/// The resource behind a signal, as messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// `memory`, in bytes.
    Memory,
    /// `ephemeral-storage`, in bytes.
    EphemeralStorage,
    /// `inodes`.
    Inodes,
    /// `pids`.
    Pids,
}

/// A pressure condition of the Node object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeCondition {
    /// `MemoryPressure`.
    MemoryPressure,
    /// `DiskPressure`.
    DiskPressure,
    /// `PIDPressure`.
    PidPressure,
}

/// Pressure conditions of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Condition `MemoryPressure`.
    pub memory: bool,
    /// Condition `DiskPressure`.
    pub disk: bool,
    /// Condition `PIDPressure`.
    pub pid: bool,
}

impl Signal {
    /// All signals.
    pub const ALL: [Self; 9] = [
        Self::MemoryAvailable,
        Self::AllocatableMemoryAvailable,
        Self::NodeFsAvailable,
        Self::NodeFsInodesFree,
        Self::ImageFsAvailable,
        Self::ImageFsInodesFree,
        Self::ContainerFsAvailable,
        Self::ContainerFsInodesFree,
        Self::PidAvailable,
    ];

    /// Returns the name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::AllocatableMemoryAvailable => "allocatableMemory.available",
            Self::NodeFsAvailable => "nodefs.available",
            Self::NodeFsInodesFree => "nodefs.inodesFree",
            Self::ImageFsAvailable => "imagefs.available",
            Self::ImageFsInodesFree => "imagefs.inodesFree",
            Self::ContainerFsAvailable => "containerfs.available",
            Self::ContainerFsInodesFree => "containerfs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    /// Returns the resource that is short (upstream `signalToResource`).
    pub fn resource(self) -> Resource {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => Resource::Memory,
            Self::NodeFsAvailable | Self::ImageFsAvailable | Self::ContainerFsAvailable => {
                Resource::EphemeralStorage
            }
            Self::NodeFsInodesFree | Self::ImageFsInodesFree | Self::ContainerFsInodesFree => {
                Resource::Inodes
            }
            Self::PidAvailable => Resource::Pids,
        }
    }

    /// Returns the node condition of a shortage (upstream `signalToNodeCondition`).
    pub fn condition(self) -> NodeCondition {
        match self.resource() {
            Resource::Memory => NodeCondition::MemoryPressure,
            Resource::EphemeralStorage | Resource::Inodes => NodeCondition::DiskPressure,
            Resource::Pids => NodeCondition::PidPressure,
        }
    }

    /// Returns whether the signal measures memory.
    pub(crate) fn is_memory(self) -> bool {
        self.resource() == Resource::Memory
    }

    /// Returns an observed amount with the suffixes of the resource.
    pub fn quantity(self, amount: u64) -> Quantity {
        self.resource().quantity(amount)
    }
}

impl Resource {
    /// Returns the name in messages and annotations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        }
    }

    /// Returns an amount: bytes with binary suffixes, others with decimal ones.
    pub fn quantity(self, amount: u64) -> Quantity {
        let format = match self {
            Self::Memory | Self::EphemeralStorage => QuantityFormat::BinarySi,
            Self::Inodes | Self::Pids => QuantityFormat::DecimalSi,
        };
        Quantity::from_units(i64::try_from(amount).unwrap_or(i64::MAX), format)
    }

    /// Returns what `more` has above `less`; 0 if it has not more.
    pub(crate) fn difference(self, more: Quantity, less: Quantity) -> Quantity {
        let difference = more.value().saturating_sub(less.value());
        self.quantity(u64::try_from(difference).unwrap_or(0))
    }
}

impl NodeCondition {
    /// All conditions, in the order of the Node object.
    pub const ALL: [Self; 3] = [Self::MemoryPressure, Self::DiskPressure, Self::PidPressure];

    /// Returns the condition type in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MemoryPressure => "MemoryPressure",
            Self::DiskPressure => "DiskPressure",
            Self::PidPressure => "PIDPressure",
        }
    }
}

impl Pressure {
    /// Returns whether a condition is true.
    pub fn has(self, condition: NodeCondition) -> bool {
        match condition {
            NodeCondition::MemoryPressure => self.memory,
            NodeCondition::DiskPressure => self.disk,
            NodeCondition::PidPressure => self.pid,
        }
    }

    /// Sets a condition to true.
    pub fn set(&mut self, condition: NodeCondition) {
        match condition {
            NodeCondition::MemoryPressure => self.memory = true,
            NodeCondition::DiskPressure => self.disk = true,
            NodeCondition::PidPressure => self.pid = true,
        }
    }

    /// Returns the names of the true conditions.
    pub fn names(self) -> Vec<&'static str> {
        NodeCondition::ALL
            .into_iter()
            .filter(|condition| self.has(*condition))
            .map(NodeCondition::as_str)
            .collect()
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for NodeCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Signal {
    type Err = UnknownSignal;

    fn from_str(text: &str) -> Result<Self, UnknownSignal> {
        Self::ALL
            .into_iter()
            .find(|signal| signal.as_str() == text)
            .ok_or_else(|| UnknownSignal(text.to_owned()))
    }
}

fn signal_list() -> String {
    Signal::ALL.map(Signal::as_str).join(", ")
}
