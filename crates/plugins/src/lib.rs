//! Registration of node plugins through sockets in `<root-dir>/plugins_registry`.
//!
//! For agents that register plugins of any type (CSI drivers, device plugins, DRA drivers) like a
//! kubelet, with the `pluginregistration/v1` API. Plugins are untrusted: they may hang, send
//! invalid data or exit at any time.
//!
//! # The way in
//!
//! * [`run_plugin_registry`] watches a directory for sockets and keeps each plugin registered
//! * [`PluginHandler`] implements a plugin type; [`PluginRegistry`] has one handler per type
//! * [`Connection`] is a short-lived gRPC connection to a Unix socket
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
//!         known.then_some(()).ok_or_else(|| "only v1 is supported".to_owned())
//!     }
//!
//!     async fn register(&self, plugin: &Plugin) -> Result<(), String> {
//!         println!("{} serves at {}", plugin.name, plugin.endpoint.display());
//!         Ok(())
//!     }
//!
//!     fn deregister(&self, plugin: &Plugin) {
//!         println!("{} deregistered", plugin.name);
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
//! `cargo run -p windlass-plugins --example register_a_plugin` runs this with a plugin that is
//! rejected once, registers and deregisters.
//!
//! # What it promises
//!
//! * Each plugin has its own task with timeouts: 10 s to connect, 5 s for its info, 5 s to notify
//!   it of the result. A faulty plugin does not delay the others.
//! * Plugin info is limited to 64 KiB and validated. A scan reads at most 4096 entries, eight
//!   levels deep.
//! * A socket that is recreated at its path is a new plugin. Each `register` is followed by a
//!   `deregister`. Failures are retried with back-off.
//! * An idle directory costs nothing; one that cannot be watched is scanned every 10 s.
//!
//! # What it does not do
//!
//! It does not call the services of plugins; their handlers do. It stores nothing on disk: an agent
//! finds the sockets again at startup. The older registration of device plugins, which connect to
//! the kubelet, is not supported.

mod connection;
mod registry;

pub use connection::{Connection, error_chain};
pub use registry::{CSI_PLUGIN, Plugin, PluginHandler, PluginRegistry, run_plugin_registry};
