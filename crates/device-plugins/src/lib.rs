//! Device plugins of a node: registration, their lists of devices, and calls to them.
//!
//! For agents that offer devices of vendors' plugins (`deviceplugin/v1beta1`) like a kubelet. It does
//! the I/O and decides nothing: `windlass_resource_managers::devices` chooses devices. Plugins are
//! untrusted: they may hang, send invalid data or exit at any time.
//!
//! # Entry points
//!
//! * [`open_registration`] prepares the directory `device-plugins` and opens `kubelet.sock`,
//!   [`serve_registration`] serves it
//! * [`DevicePlugins`] connects plugins and sends [`PluginEvent`]s to one receiver. It is also the
//!   handler of the type [`DEVICE_PLUGIN`] for `windlass_plugins::run_plugin_registry`
//! * [`DevicePlugin`] calls a plugin
//!
//! # Example
//!
//! ```no_run
//! use tokio_util::sync::CancellationToken;
//! use windlass_device_plugins::{DevicePlugins, PluginEvent, open_registration, serve_registration};
//! use windlass_metrics::Metrics;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = "/var/lib/kubelet/device-plugins".as_ref();
//! let (plugins, mut events) = DevicePlugins::new(directory, Metrics::new()?);
//! let listener = open_registration(directory)?;
//! tokio::spawn(serve_registration(listener, plugins, CancellationToken::new()));
//! while let Some(event) = events.recv().await {
//!     if let PluginEvent::Registered { plugin, .. } = event {
//!         println!("{} has a plugin", plugin.resource());
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-device-plugins --example list_devices` registers a plugin and prints its
//! events.
//!
//! # Guarantees
//!
//! * Each call has a timeout: 10 s to connect and for the options, 30 s for a preference and for
//!   `PreStartContainer` (upstream's), 60 s for `Allocate`. A list of devices has none: a plugin
//!   without devices has nothing to say.
//! * A message has at most 4 MiB, as in gRPC for Go. Invalid responses are errors with a text.
//! * The events of a registration are in order, and its last is [`PluginEvent::Gone`], unless a later
//!   registration replaces it. Numbers grow; events of an old number are to be ignored.
//! * A plugin is gone when its stream ends; it has to register again, as upstream.
//! * An idle plugin costs nothing.
//!
//! # Limits
//!
//! It stores nothing. Endpoints are file names in the directory; absolute paths and paths with `..`
//! are rejected.

mod plugin;
mod registration;
mod server;

#[cfg(test)]
mod tests;

pub use plugin::{CallError, DevicePlugin};
pub use registration::{DEVICE_PLUGIN, DevicePlugins, PluginEvent};
pub use server::{OpenError, open_registration, serve_registration};
