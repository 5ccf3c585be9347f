//! Plugins of the node, which register through a socket in `<root-dir>/plugins_registry`.
//!
//! * [`registry`] finds the sockets and keeps each plugin registered ([`keep_plugins`]); what a
//!   type of plugins is good for is its [`PluginHandler`]
//! * [`connection`] a gRPC connection to a Unix socket, for one conversation
//!
//! A plugin is another's program. Each has a task of its own and deadlines on all it is asked, so
//! that one that hangs or lies keeps no other from registering; what it says of itself is bounded
//! and checked. Nothing is kept on the disk: an agent that starts finds the sockets again.

pub mod connection;
pub mod registry;

pub use connection::{Connection, error_chain};
pub use registry::{CSI_PLUGIN, Plugin, PluginHandler, PluginRegistry, keep_plugins};
