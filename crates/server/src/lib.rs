//! What the agent serves to its own machine: health over HTTP on localhost, and the
//! control API that `windlassctl` speaks over a Unix socket.
//!
//! For a program that wants `/healthz` with named checks in a few lines, or a gRPC service
//! on a Unix socket that only root and its own user can open.
//!
//! # The way in
//!
//! * [`HealthSource`] is what you write: named checks that do not block; [`serve_health`] serves them
//! * [`bind_socket`] opens a private Unix socket, [`incoming`] are the connections of trusted peers
//! * [`ControlService`] is the agent's control API, of its ports and handles; [`serve_control`] serves it
//! * [`PodExplainer`] answers why a pod is as it is
//!
//! # Example
//!
//! ```
//! use windlass_server::{HealthCheck, HealthSource, health_answer};
//!
//! #[derive(Debug)]
//! struct Pump;
//!
//! impl HealthSource for Pump {
//!     fn checks(&self) -> Vec<HealthCheck> {
//!         let result = Err("no stroke for 12 s".to_owned());
//!         vec![HealthCheck { name: "pump", result }]
//!     }
//! }
//!
//! assert_eq!(health_answer(&Pump, None, None).status(), 500);
//! // the server's own check: whoever gets an answer knows that the process answers
//! assert_eq!(health_answer(&Pump, Some("ping"), None).status(), 200);
//! assert_eq!(health_answer(&Pump, Some("lamp"), None).status(), 404);
//! ```
//!
//! `cargo run -p windlass-server --example serve_health` serves such a program and asks it.
//!
//! # What it promises
//!
//! * Nothing here decides: health comes from a [`HealthSource`], pods from the board, logs from files.
//! * A slow client is behind its own bounded connection and holds nobody up: 16 requests at a time on the
//!   health port, 16 for each connection to the socket. A watch holds no queue: a client that is slow
//!   misses states in between and never the last one.
//! * The socket has mode 0600 before it has a name. One that a dead agent left is replaced, one of a live
//!   agent is not.
//!
//! # What it does not do
//!
//! TLS, authentication, and ports that others than this machine reach: that is `windlass-https`,
//! `windlass-auth` and `windlass-node-api`. The control API changes nothing.

mod healthz;

pub mod any_authority;
mod control;
mod convert;
pub mod log_target;
mod socket;
mod explain;

pub use any_authority::AnyAuthority;
pub use control::{ControlService, NodeSource, incoming, serve_control};
pub use healthz::{
    HealthCheck, HealthSource, all_checks, bind_health, health_answer, metrics_answer, serve_health,
};
pub use socket::{BindError, bind_socket};
pub use explain::PodExplainer;
