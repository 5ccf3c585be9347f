//! Servers for the local host: health over HTTP on localhost, and the control API of `windlassctl`
//! over a Unix socket.
//!
//! For a program that needs `/healthz` with named checks, or a gRPC service on a Unix socket that
//! only root and its own user can open.
//!
//! # Entry points
//!
//! * [`HealthSource`] provides named checks that do not block; [`serve_health`] serves them
//! * [`bind_socket`] opens a private Unix socket, [`incoming`] returns the connections of trusted
//!   peers
//! * [`ControlService`] is the control API; [`serve_control`] serves it
//! * [`PodExplainer`] explains why a pod is not in its desired state
//!
//! # Example
//!
//! ```
//! use windlass_server::{HealthCheck, HealthSource, health_response};
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
//! assert_eq!(health_response(&Pump, None, None).status(), 500);
//! // the server adds `ping`: any response shows that the process runs
//! assert_eq!(health_response(&Pump, Some("ping"), None).status(), 200);
//! assert_eq!(health_response(&Pump, Some("lamp"), None).status(), 404);
//! ```
//!
//! `cargo run -p windlass-server --example serve_health` serves such a program and sends requests
//! to it.
//!
//! # Guarantees
//!
//! * At most 16 concurrent requests on the health port, and 16 on each connection to the socket.
//! * A slow client does not delay others. A watch has no queue: a slow client misses intermediate
//!   states, but never the last one.
//! * The socket has mode 0600 before it has a name. A stale socket is replaced, one of a running
//!   agent is not.
//!
//! # Limits
//!
//! TLS, authentication and remote ports are in `windlass-https`, `windlass-auth` and
//! `windlass-node-api`. The control API is read-only.

mod healthz;

pub mod any_authority;
mod control;
mod convert;
mod explain;
pub mod log_target;
mod socket;

pub use any_authority::AnyAuthority;
pub use control::{ControlService, NodeSource, incoming, serve_control};
pub use explain::PodExplainer;
pub use healthz::{
    HealthCheck, HealthSource, all_checks, bind_health, health_response, metrics_response,
    serve_health,
};
pub use socket::{BindError, bind_socket};
