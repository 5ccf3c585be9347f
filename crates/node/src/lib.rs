//! This machine as a node of a cluster: its object, its lease, and the end of the machine.
//!
//! For an agent that registers a machine and says that it lives. Who only wants to know what the machine
//! is takes [`Machine`] alone.
//!
//! # The way in
//!
//! * [`MachineRoots`] reads what the machine is; `windlass_node_rules::node_object` makes the Node of it
//! * [`NodeStatus`] is the actor that registers the Node, takes over one that exists, and reports the
//!   status when it changes
//! * [`NodeLease`] renews the lease, the sign of life that the control plane counts on
//! * [`shutdown`] stops pods before the machine goes down (logind)
//! * [`keep_pod_cidr`] tells the runtime which addresses pods get, [`keep_csi_node`] the cluster which
//!   CSI drivers there are
//!
//! # Example
//!
//! ```
//! use windlass_node::MachineRoots;
//!
//! let machine = MachineRoots::of_this_machine("/var/lib/kubelet".into()).read();
//! assert!(machine.cpus > 0 && machine.memory > 0);
//! assert_eq!(machine.operating_system, "linux");
//!
//! // below other roots: what cannot be read is empty, and nothing fails
//! let elsewhere = MachineRoots {
//!     proc: "/nowhere".into(),
//!     ..MachineRoots::of_this_machine("/var/lib/kubelet".into())
//! };
//! assert_eq!(elsewhere.read().cpus, 0);
//! ```
//!
//! `cargo run -p windlass-node --example describe_machine` prints the Node that this machine would be.
//!
//! # What it promises
//!
//! * A lease is renewed four times in its life, whatever the rest of the agent does: it has a client of
//!   its own.
//! * One request that writes the status is under way; it ends within 20 s (30 s with a registration), and
//!   what it could not tell is told at the next tick with the state of that time. Facts are read at most
//!   every 30 s, and wait for no runtime longer than 10 s.
//! * What others write into a Node stays: labels, taints, conditions.
//! * A Ready node stays Ready while a new agent has not asked the runtime yet.
//! * A shutdown is delayed only as long as the configuration allows; without D-Bus it is not delayed, and
//!   one line says so.
//!
//! # What it does not do
//!
//! It decides nothing: what a Node and a lease should be, and which pods end when, are pure functions of
//! `windlass_core`. It evicts nobody under pressure, drains nothing on request, and asks no cloud for
//! addresses.

mod csi_node;
mod lease;
mod machine;
mod pod_cidr;
pub mod shutdown;
mod status;

#[cfg(test)]
mod fake_runtime;
mod jitter;

pub use csi_node::{CsiNodeDeps, CsiNodeStanding, keep_csi_node};
pub use lease::{NodeLease, NodeLeaseDeps};
pub use machine::{Machine, MachineRoots};
pub use pod_cidr::{PodCidrDeps, keep_pod_cidr};
pub use status::{NodeStatus, NodeStatusDeps, NodeStatusSettings};
