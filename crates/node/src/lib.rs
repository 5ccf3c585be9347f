//! This machine as a node of a cluster: its object, its lease, and the end of the machine.
//!
//! [`NodeStatus`] registers the Node object, takes over one that exists, and reports the status
//! when it changes. [`NodeLease`] renews the lease, the sign of life the control plane counts
//! on. [`shutdown`] stops pods before the machine does. [`machine`] reads what the machine is;
//! [`pod_cidr`] tells the runtime which addresses pods get; [`csi_node`] tells the cluster which CSI
//! drivers there are.

pub mod csi_node;
pub mod lease;
pub mod machine;
pub mod pod_cidr;
pub mod shutdown;
pub mod status;

#[cfg(test)]
mod fake_runtime;
mod jitter;

pub use csi_node::{CsiNodeDeps, CsiNodeStanding, keep_csi_node};
pub use lease::{NodeLease, NodeLeaseDeps};
pub use machine::{Machine, MachineRoots};
pub use pod_cidr::{PodCidrDeps, keep_pod_cidr};
pub use status::{NodeStatus, NodeStatusDeps, NodeStatusSettings};
