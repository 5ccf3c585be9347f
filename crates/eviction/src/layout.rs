//! Which file systems the container runtime uses, and what follows for disk signals.

use crate::signal::{Resource, Signal};

windlass_types::text_enum! {
    /// File systems of the node, of images and of writable layers.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum FileSystems {
        /// One file system for all.
        #[default]
        Shared = "shared",
        /// Images and writable layers share a file system of their own (upstream `imagefs`).
        SeparateImages = "separate images",
        /// Images have a file system of their own; writable layers are on that of the node
        /// (`KubeletSeparateDiskGC`).
        SplitImages = "split images",
    }
}

windlass_types::text_enum! {
    /// What is reclaimed on the node before a pod is evicted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NodeReclaim {
        /// Remove all dead containers and their logs.
        DeadContainers = "dead containers",
        /// Remove all images that no container uses.
        UnusedImages = "unused images",
    }
}

/// Parts of a pod's disk usage that count for a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskParts {
    /// Writable layers.
    pub(crate) writable_layers: bool,
    /// Container logs, and local volumes.
    pub(crate) logs_and_volumes: bool,
}

/// File systems that a disk signal measures.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disk {
    Node,
    Images,
    Containers,
}

impl FileSystems {
    /// Returns what to reclaim on the node first, in order (upstream
    /// `buildSignalToNodeReclaimFuncs`); empty for signals other than disk.
    pub(crate) fn node_reclaim(self, signal: Signal) -> &'static [NodeReclaim] {
        use NodeReclaim::{DeadContainers, UnusedImages};
        let Some(disk) = disk_of(signal) else {
            return &[];
        };
        match (self, disk) {
            (Self::Shared, _) => &[DeadContainers, UnusedImages],
            (Self::SeparateImages, Disk::Node) => &[],
            (Self::SeparateImages, _) => &[DeadContainers, UnusedImages],
            (Self::SplitImages, Disk::Images) => &[UnusedImages],
            (Self::SplitImages, _) => &[DeadContainers],
        }
    }

    /// Returns the parts that count for a disk signal (upstream `buildSignalToRankFunc`).
    pub(crate) fn disk_parts(self, signal: Signal) -> DiskParts {
        let parts = |writable_layers, logs_and_volumes| DiskParts {
            writable_layers,
            logs_and_volumes,
        };
        let Some(disk) = disk_of(signal) else {
            return DiskParts::default();
        };
        match (self, disk) {
            (Self::Shared, _) => parts(true, true),
            (Self::SeparateImages, Disk::Node) => parts(false, true),
            (Self::SeparateImages, _) => parts(true, false),
            (Self::SplitImages, Disk::Images) => parts(false, false),
            (Self::SplitImages, _) => parts(true, true),
        }
    }
}

fn disk_of(signal: Signal) -> Option<Disk> {
    match signal.resource() {
        Resource::EphemeralStorage | Resource::Inodes => {}
        Resource::Memory | Resource::Pids => return None,
    }
    Some(match signal {
        Signal::ImageFsAvailable | Signal::ImageFsInodesFree => Disk::Images,
        Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree => Disk::Containers,
        _ => Disk::Node,
    })
}
