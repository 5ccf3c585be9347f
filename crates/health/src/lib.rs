//! Health checks and metrics over HTTP, on localhost or behind another server.
//!
//! For a program that needs `/healthz` with named checks like those of Kubernetes components, and
//! `/metrics` beside it.
//!
//! # Entry points
//!
//! * [`HealthSource`] provides named checks that do not block
//! * [`bind_health`] and [`serve_health`] serve them on a port; [`health_response`] and
//!   [`metrics_response`] are the responses for another server
//!
//! # Example
//!
//! ```
//! use windlass_health::{HealthCheck, HealthSource, health_response};
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
//! `cargo run -p windlass-health --example serve_health` serves such a program and sends requests
//! to it.
//!
//! # Guarantees
//!
//! At most 16 concurrent requests. A slow client does not delay others. A check that fails is
//! reported with its name and its message, and the status is 500.
//!
//! # Limits
//!
//! TLS and authentication are in `windlass-https` and `windlass-auth`.

mod healthz;

pub use healthz::{
    HealthCheck, HealthSource, all_checks, bind_health, health_response, metrics_response,
    serve_health,
};
