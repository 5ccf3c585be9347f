//! The ContainerManager: assigns CPUs, memory nodes and devices to the containers of a node.
//!
//! For a node agent. The decisions are pure functions of `windlass_resource_managers`; this crate
//! owns their state, calls device plugins, writes the state files, and publishes the assignments.
//!
//! # Entry points
//!
//! * [`ContainerManager`] is the actor, [`ContainerManagerDeps`] has its dependencies
//! * [`Managers`] is the state: what each container has
//! * [`AssignedResourcesReader`] reads it, and prepares devices for the start of a container
//! * [`StateWrites`] orders the health port with the writes of the state files
//! * [`DeviceEvent`], [`PluginCalls`] and [`StateFiles`] are ports
//!
//! # Example
//!
//! ```
//! use windlass_container_manager::CONTAINER_MANAGER;
//!
//! assert_eq!(CONTAINER_MANAGER.as_str(), "ContainerManager");
//! ```
//!
//! `cargo run -p windlass-container-manager --example allocate_device` gives a device to a pod.
//!
//! # Guarantees
//!
//! * An assignment is on the disk before the pod starts. After a restart of the agent, the node or a
//!   plugin the pod has the same.
//! * A pod that needs a plugin which has not registered yet waits for it, at most 5 minutes.
//! * A plugin that hangs delays only the pods that want its resources.
//! * A pod that runs is never rejected.
//! * Without a change there is no wake-up.
//!
//! # Limits
//!
//! Claims (DRA) are not part of it.

use windlass_mailboxes::ActorKind;

mod ports;

mod actor;
mod allocation;
mod files;
mod managers;
mod measured;
mod releases;
mod resources;
mod shared_pool;
mod state_writes;

pub use actor::{ContainerManager, ContainerManagerDeps};
pub use files::HostStateFiles;
pub use managers::{ManagerParts, Managers};
pub use ports::{DeviceEvent, PluginCalls, StateFile, StateFiles};
pub use resources::AssignedResourcesReader;
pub use state_writes::{StateWrite, StateWrites};

/// The actor. It has no mailbox, only slots.
pub const CONTAINER_MANAGER: ActorKind = ActorKind::new("ContainerManager", 1);
