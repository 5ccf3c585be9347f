//! Plugins of the node, which register through a socket in `<root-dir>/plugins_registry`.
//!
//! For whoever takes plugins of any type (CSI drivers, device plugins, DRA drivers) as a kubelet does, by
//! the `pluginregistration/v1` API. A plugin is another's program: it may hang, lie or die at any time.
//!
//! # The way in
//!
//! * [`run_plugin_registry`] finds the sockets of a directory and keeps each plugin registered
//! * [`PluginHandler`] is what you write: what a type of plugins is good for; [`PluginRegistry`] names one
//!   for each type
//! * [`Connection`] is a gRPC connection to a Unix socket for one conversation
//!
//! # Example
//!
//! ```no_run
//! use std::collections::BTreeMap;
//! use std::sync::Arc;
//!
//! use windlass_metrics::Metrics;
//! use windlass_plugins::{Plugin, PluginHandler, PluginRegistry, run_plugin_registry};
//!
//! #[derive(Debug)]
//! struct Lamps;
//!
//! #[async_trait::async_trait]
//! impl PluginHandler for Lamps {
//!     fn validate(&self, plugin: &Plugin) -> Result<(), String> {
//!         let known = plugin.versions.iter().any(|version| version == "v1");
//!         known.then_some(()).ok_or_else(|| "only v1 is spoken here".to_owned())
//!     }
//!
//!     async fn register(&self, plugin: &Plugin) -> Result<(), String> {
//!         println!("{} serves at {}", plugin.name, plugin.endpoint.display());
//!         Ok(())
//!     }
//!
//!     fn deregister(&self, plugin: &Plugin) {
//!         println!("{} is gone", plugin.name);
//!     }
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let lamps: Arc<dyn PluginHandler> = Arc::new(Lamps);
//! run_plugin_registry(PluginRegistry {
//!     directory: "/var/lib/kubelet/plugins_registry".into(),
//!     handlers: BTreeMap::from([("LampPlugin".to_owned(), lamps)]),
//!     metrics: Metrics::new()?,
//! })
//! .await;
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-plugins --example register_a_plugin` is this with a plugin that is refused
//! once, registers and leaves.
//!
//! # What it promises
//!
//! * Each plugin has a task of its own and deadlines on all it is asked: 10 s to connect, 5 s to
//!   introduce itself, 5 s to handle how it ended. One that hangs or lies keeps no other from registering.
//! * What a plugin says of itself is bounded (64 KiB) and checked. Of a directory 4096 entries are looked
//!   at, eight deep.
//! * A socket that is made anew at its old path is a new plugin. Each `register` is followed by a
//!   `deregister` at some time. What failed is tried again, with pauses.
//! * A directory in which nothing happens costs nothing; one that cannot be watched is looked at every
//!   10 s.
//!
//! # What it does not do
//!
//! It calls no service of a plugin: its handler does. Nothing is kept on the disk, an agent that starts
//! finds the sockets again. It does not speak the older registration of device plugins, by which they
//! dial the kubelet.

mod connection;
mod registry;

pub use connection::{Connection, error_chain};
pub use registry::{CSI_PLUGIN, Plugin, PluginHandler, PluginRegistry, run_plugin_registry};
