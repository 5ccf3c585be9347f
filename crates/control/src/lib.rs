//! The control API of the agent over a Unix socket, as `windlassctl` uses it.
//!
//! For a program that shows what the agent does: its pods with status and blocker, their timelines,
//! logs and usage. The messages are in `proto/windlass/v1`.
//!
//! # Entry points
//!
//! * [`ControlService`] is the service, [`serve_control`] serves it on a socket
//! * [`NodeSource`] provides the summary of the node
//!
//! # Example
//!
//! ```no_run
//! use windlass_control::{ControlService, serve_control};
//! use windlass_grpc_sockets::bind_socket;
//!
//! # async fn serve(service: ControlService) -> Result<(), Box<dyn std::error::Error>> {
//! let listener = bind_socket("/var/lib/kubelet/windlass/windlass.sock".as_ref())?;
//! serve_control(listener, service).await?;
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-control --example follow_pods` serves an agent with one pod and watches
//! it as a client.
//!
//! # Guarantees
//!
//! At most 16 concurrent requests on each connection. A watch has no queue: a slow client misses
//! intermediate states, but never the last one. The API is read-only.
//!
//! # Limits
//!
//! No remote access: the node API is in `windlass-node-api`.

mod control;
mod convert;

pub use control::{ControlService, NodeSource, serve_control};
