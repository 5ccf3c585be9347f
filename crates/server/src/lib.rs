//! What the agent serves to its own machine: health and metrics over HTTP on localhost, and the
//! control API that `windlassctl` speaks over a Unix socket.
//!
//! Nothing here decides: health comes from a [`HealthSource`], pods from the board, logs from
//! files. A slow client is behind its own bounded connection and holds nobody up.

pub mod healthz;

pub mod any_authority;
pub mod control;
pub mod convert;
pub mod log_target;
pub mod socket;
pub mod why;

pub use any_authority::AnyAuthority;
pub use control::{ControlService, NodeSource, incoming, serve_control};
pub use healthz::{
    HealthCheck, HealthSource, all_checks, bind_health, health_answer, metrics_answer, serve_health,
};
pub use socket::{BindError, bind_socket};
pub use why::Why;
