//! HTTP, TCP and gRPC health requests to containers, as probes and lifecycle hooks make them.
//!
//! For whoever needs many small requests that say exactly what a kubelet's would, to servers that
//! may be slow, broken or hostile. What is asked is decided in `windlass_pod_lifecycle::probe` and
//! `windlass_pod_lifecycle::http_target`; what an answer means is decided there too. Here it is only carried
//! out.
//!
//! # The way in
//!
//! * [`Checks`] is the port: one method for each protocol
//! * [`NetChecks`] does it over sockets
//! * [`HttpAnswer`], [`GrpcHealth`] and [`CheckError`] are what comes back;
//!   `windlass_pod_lifecycle::probe::judge_http` turns it into a verdict
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use windlass_checks::{Checks, NetChecks};
//! use windlass_pod_lifecycle::probe::judge_tcp;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let port = server.local_addr()?.port();
//! let checks = NetChecks::new();
//!
//! let answer = checks.tcp("127.0.0.1", port, Duration::from_secs(1)).await;
//! assert_eq!(judge_tcp("127.0.0.1", port, &answer).counts(), Some(true));
//!
//! drop(server);
//! let answer = checks.tcp("127.0.0.1", port, Duration::from_secs(1)).await;
//! assert_eq!(judge_tcp("127.0.0.1", port, &answer).counts(), Some(false));
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-checks --example ask_server` asks a server in each way it can answer, and
//! `--example http_cost` measures what a request costs.
//!
//! # What it promises
//!
//! * A request has a connection of its own, which ends with it. The timeout covers everything:
//!   names, connection, TLS, redirects, body.
//! * At most 10 KiB of a body are kept, the rest is not waited for. Ten redirects are followed, to
//!   the same host only.
//! * TLS is spoken, and whatever certificate comes is accepted: a probe asks whether the container
//!   answers, not who it is. No proxy is used, whatever the environment says.
//! * What the node could not ask for want of files or memory is [`CheckError::Node`], which says
//!   nothing about the container.
//!
//! # What it does not do
//!
//! No connection is kept or reused, no request is repeated. There is no HTTP/2 but for gRPC, no TLS
//! for gRPC, and no method but GET.

mod net;
mod port;

pub use net::NetChecks;
pub use port::Checks;
pub use windlass_pod_lifecycle::probe::{CheckError, GrpcHealth, HttpAnswer};
