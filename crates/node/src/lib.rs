//! The host as a node of a cluster: Node object, node lease and graceful shutdown.
//!
//! For an agent that registers a node and sends heartbeats. [`Machine`] alone reads the facts of
//! the host.
//!
//! # Entry points
//!
//! * [`MachineRoots`] reads the facts of the host; `windlass_node_rules::node_object` builds the
//!   Node from them
//! * [`NodeStatus`] is the actor that registers the Node, adopts an existing one, and reports
//!   status changes
//! * [`NodeLease`] renews the node lease
//! * [`run_hung_pods`] names the pods with hung operations
//! * [`shutdown`] stops pods before the host shuts down (logind)
//! * [`run_pod_cidr_sync`] sends the pod CIDR to the runtime, [`run_csi_node_sync`] keeps CSINode
//!   up to date
//!
//! # Example
//!
//! ```
//! use windlass_node::MachineRoots;
//!
//! let machine = MachineRoots::for_host("/var/lib/kubelet".into()).read();
//! assert!(machine.cpus > 0 && machine.memory > 0);
//! assert_eq!(machine.operating_system, "linux");
//!
//! // with other roots: unreadable facts are empty, and nothing fails
//! let elsewhere = MachineRoots {
//!     proc: "/nowhere".into(),
//!     ..MachineRoots::for_host("/var/lib/kubelet".into())
//! };
//! assert_eq!(elsewhere.read().cpus, 0);
//! ```
//!
//! `cargo run -p windlass-node --example describe_machine` prints the Node of this host.
//!
//! # Guarantees
//!
//! * The lease is renewed four times per lease duration, independently of the rest of the agent: it
//!   has its own client.
//! * At most one status update is in progress. It ends within 20 s (30 s with a registration); the
//!   next tick reports what was missed. Facts are read at most every 30 s, with a runtime timeout
//!   of 10 s.
//! * Labels, taints and conditions of other writers stay in the Node.
//! * A Ready node stays Ready across an agent restart until the runtime was checked.
//! * A shutdown is delayed only as long as configured. Without D-Bus it is not delayed, and one log
//!   line reports that.
//!
//! # Limits
//!
//! The contents of Node and lease and the order of a shutdown are pure functions of
//! `windlass_node_rules` and `windlass_pod_lifecycle`. Eviction, drain and cloud providers are not
//! implemented.

mod csi_node;
mod hung_pods;
mod lease;
mod machine;
mod pod_cidr;
pub mod shutdown;
mod status;

mod jitter;

use windlass_mailboxes::ActorKind;

pub use csi_node::{CsiNodeDeps, CsiNodeStatus, run_csi_node_sync};
pub use hung_pods::{HungPodsDeps, HungPodsMessage, run_hung_pods};
pub use lease::{NodeLease, NodeLeaseDeps};
pub use machine::{Machine, MachineRoots};
pub use pod_cidr::{PodCidrDeps, run_pod_cidr_sync};
pub use status::{NodeStatus, NodeStatusDeps, NodeStatusSettings};

/// Receives state channels and the completions of its requests.
pub(crate) const NODE_STATUS: ActorKind = ActorKind::new("NodeStatus", 4);
