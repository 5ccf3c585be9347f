//! What is measured, and the resource and node condition that it stands for.

use std::str::FromStr;

use windlass_units::quantity::{Quantity, QuantityFormat};

windlass_types::text_enum! {
    /// A quantity whose shortage evicts pods. The order is the order in which shortages are handled.
    ///
    /// Its text is the name in the configuration.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Signal {
        /// Memory of the node: capacity minus working set.
        MemoryAvailable = "memory.available",
        /// Memory below the limit of the pods' cgroup: limit minus working set.
        AllocatableMemoryAvailable = "allocatableMemory.available",
        /// Bytes on the file system of `--root-dir`.
        NodeFsAvailable = "nodefs.available",
        /// Inodes on the file system of `--root-dir`.
        NodeFsInodesFree = "nodefs.inodesFree",
        /// Bytes on the file system of images.
        ImageFsAvailable = "imagefs.available",
        /// Inodes on the file system of images.
        ImageFsInodesFree = "imagefs.inodesFree",
        /// Bytes on the file system of writable layers.
        ContainerFsAvailable = "containerfs.available",
        /// Inodes on the file system of writable layers.
        ContainerFsInodesFree = "containerfs.inodesFree",
        /// Process identifiers of the node.
        PidAvailable = "pid.available",
    }
}

/// A text that names no signal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be one of {list}, got {text:?}", list = signal_list(), text = .0)]
pub struct UnknownSignal(pub String);

windlass_types::text_enum! {
    /// The resource behind a signal, as messages name it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Resource {
        /// `memory`, in bytes.
        Memory = "memory",
        /// `ephemeral-storage`, in bytes.
        EphemeralStorage = "ephemeral-storage",
        /// `inodes`.
        Inodes = "inodes",
        /// `pids`.
        Pids = "pids",
    }
}

windlass_types::text_enum! {
    /// A pressure condition of the Node object.
    ///
    /// In the order of the Node object; the text is the type in the API.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum NodeCondition {
        /// `MemoryPressure`.
        MemoryPressure = "MemoryPressure",
        /// `DiskPressure`.
        DiskPressure = "DiskPressure",
        /// `PIDPressure`.
        PidPressure = "PIDPressure",
    }
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

impl FromStr for Signal {
    type Err = UnknownSignal;

    fn from_str(text: &str) -> Result<Self, UnknownSignal> {
        Self::from_text(text).ok_or_else(|| UnknownSignal(text.to_owned()))
    }
}

fn signal_list() -> String {
    Signal::ALL.map(Signal::as_str).join(", ")
}
