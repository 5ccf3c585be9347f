//! A client of the Kubernetes API server for a node agent.
//!
//! For programs that run on many nodes for months. It handles dead connections, replaced
//! certificates and overloaded servers.
//!
//! # Entry points
//!
//! * [`ApiClient`] has the verbs (get, list, watch, create, update, patch, delete and
//!   subresources) for every type of `k8s-openapi`. Errors are [`ApiError`]s with a kind for the
//!   caller. No body appears in an error or a log: it may be a Secret.
//! * [`reflect()`] is a reflector: one endless stream that keeps a set of objects current through
//!   any failure.
//! * [`ApiClients`] has the clients of one node, each with its own connections, so that none
//!   blocks another: `main` and `events` with rate limits, `heartbeat` without one and with a
//!   short timeout, `watch` with 80 watches per connection, `reviews` for token and access
//!   reviews.
//! * [`ApiServerConfig`] reads a kubeconfig; [`ClientIdentity`] is the client certificate, which
//!   can be replaced at any time.
//!
//! # Example
//!
//! ```no_run
//! use windlass_client::{ApiClients, ApiServerConfig, ObjectKey, ClientLimits};
//! use k8s_openapi::api::core::v1::Node;
//!
//! # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
//! let config = ApiServerConfig::from_kubeconfig("/etc/kubernetes/kubelet.conf".as_ref())?;
//! let clients = ApiClients::connect(&config, &ClientLimits::default())?;
//! let node: Node = clients.main.get(ObjectKey::cluster("n1")).await?;
//! # Ok(())
//! # }
//! ```
//!
//! The kind of an error does not depend on the server's message:
//!
//! ```
//! use windlass_client::ApiErrorKind;
//!
//! assert_eq!(ApiErrorKind::from_status(409, "AlreadyExists"), ApiErrorKind::AlreadyExists);
//! assert_eq!(ApiErrorKind::from_status(409, "Conflict"), ApiErrorKind::Conflict);
//! assert_eq!(ApiErrorKind::from_status(410, ""), ApiErrorKind::Gone);
//! ```
//!
//! `cargo run -p windlass-client --example watch_pods -- <kubeconfig> <node>` follows the pods of a node.
//!
//! # Guarantees
//!
//! | problem | behavior | bound |
//! |---|---|---|
//! | the server is unreachable or rejects requests | the request fails; `reflect` backs off from 0.8 s to 30 s, with jitter | each request has a timeout |
//! | a connection is dead | a request without any response makes the next one open another; else pings close it | 15 + 8 + 5 = 28 s to the next connection |
//! | the client certificate is replaced | new requests use new connections; open watches end by themselves | 290 s, the longest watch |
//! | a token expires | read again after a minute, or on a 401, which is then retried | one retry |
//! | the server allows few streams, or only HTTP/1.1 | more connections | 512 per client |
//! | a response or an event does not end | reading stops | 128 MiB, 16 MiB |
//! | a credential plugin or token file fails or is slow | the old credentials are used; one attempt at a time, independent of requests | 60 s each |
//! | a watch is not read | the window of its stream fills; other streams continue | 256 KiB per watch |
//!
//! `ApiClient` also runs over any `tower` service ([`ApiClient::from_service`],
//! [`ApiClients::in_process`]). A whole node can be tested against a server in the same process on
//! paused time: every delay uses tokio's clock, and jitter is derived from names. `kube` is not
//! part of the public API.
//!
//! # Limits
//!
//! No discovery and no dynamic types: a type is one of `k8s-openapi`. JSON only, no protobuf. No
//! server-side apply and no paged lists. A request is retried only once after a 401 with new
//! credentials: [`ApiError::retry`] has the retry class.

mod clients;
mod config;
mod credentials;
mod identity;

mod api;
mod query;
mod reflect;

mod error;
mod record;
mod stream;
mod transport;

pub use api::{ApiClient, ApiObject, WatchEvent, WatchStream};
pub use clients::{ApiClients, ClientLimits};
pub use config::{ApiServerConfig, ConfigError};
pub use error::{ApiError, ApiErrorKind, ApiResult};
pub use identity::{CertificateStatus, ClientIdentity, IdentityError};
pub use query::{Delete, List, ObjectKey, Patch, Selector, Watch};
pub use reflect::{ReflectEvent, reflect};
