//! HTTP, TCP and gRPC requests to containers for probes and lifecycle hooks.
//!
//! Requests match those of the Go kubelet. `windlass_pod_lifecycle` decides what is sent and how a
//! response is evaluated.
//!
//! # Entry points
//!
//! * [`Checks`] is the port, with one method per protocol
//! * [`NetChecks`] implements it over sockets
//! * [`HttpAnswer`], [`GrpcHealth`] and [`CheckError`] are the results
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use windlass_checks::{Checks, NetChecks};
//! use windlass_pod_lifecycle::probe::evaluate_tcp;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let port = server.local_addr()?.port();
//! let checks = NetChecks::new();
//!
//! let answer = checks.tcp("127.0.0.1", port, Duration::from_secs(1)).await;
//! assert_eq!(evaluate_tcp("127.0.0.1", port, &answer).counts(), Some(true));
//!
//! drop(server);
//! let answer = checks.tcp("127.0.0.1", port, Duration::from_secs(1)).await;
//! assert_eq!(evaluate_tcp("127.0.0.1", port, &answer).counts(), Some(false));
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-checks --example ask_server` shows the possible responses, and
//! `--example http_cost` measures the cost of a request.
//!
//! # Guarantees
//!
//! * Each request has its own connection. The timeout covers name lookup, connection, TLS,
//!   redirects and body.
//! * At most 10 KiB of a body are read. At most 10 redirects are followed, on the same host only.
//! * TLS accepts any certificate. Proxies are never used.
//! * Lack of files or memory on the node is [`CheckError::Node`], not a probe failure.
//!
//! # Limits
//!
//! No connection reuse, no retries, no HTTP/2 except for gRPC, no TLS for gRPC, only GET.

mod net;
mod port;

pub use net::NetChecks;
pub use port::Checks;
pub use windlass_pod_lifecycle::probe::{CheckError, GrpcHealth, HttpAnswer};
