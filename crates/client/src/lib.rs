//! A client of the Kubernetes API server, made for a node agent.
//!
//! For programs that run on many nodes for months: connections that die without a word, certificates
//! that change, servers that are overloaded.
//!
//! # The way in
//!
//! * [`ApiClient`] has the verbs (get, list, watch, create, update, patch, delete and
//!   subresources) for every type of `k8s-openapi`. An error is an [`ApiError`], whose kind says
//!   what it means for the caller. No body ever appears in an error or a log: it may be a Secret.
//! * [`reflect()`] keeps a set of objects current through any failure, as one endless stream.
//! * [`ApiClients`] bundles the clients of one node. Each has its own connections, so none can
//!   hold another up: `main` and `events` with their rate limits, `heartbeat` without one and
//!   with a short deadline, `watch` with 80 watches on each connection, `reviews` for who asks the node.
//! * [`ApiServerConfig`] reads a kubeconfig; [`ClientIdentity`] is the client certificate, which
//!   can be replaced while everything runs.
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
//! An error says what it means, whatever the server's words:
//!
//! ```
//! use windlass_client::ApiErrorKind;
//!
//! assert_eq!(ApiErrorKind::of(409, "AlreadyExists"), ApiErrorKind::AlreadyExists);
//! assert_eq!(ApiErrorKind::of(409, "Conflict"), ApiErrorKind::Conflict);
//! assert_eq!(ApiErrorKind::of(410, ""), ApiErrorKind::Gone);
//! ```
//!
//! `cargo run -p windlass-client --example watch_pods -- <kubeconfig> <node>` follows the pods of a node.
//!
//! # What it promises
//!
//! | what goes wrong | what happens | bound |
//! |---|---|---|
//! | the server is down or refuses | the request fails; `reflect` backs off 0.8 s to 30 s, jittered | each request has a deadline |
//! | a connection is dead without a word | a request that got nothing makes the next one open another; else pings break it | 15 + 8 + 5 = 28 s to the next connection |
//! | the client certificate is replaced | new requests use new connections; open watches end by themselves | 290 s, the longest watch |
//! | a token expires | read again after a minute, or at a 401 and then sent again once | one repetition |
//! | the server allows few streams, or only HTTP/1.1 | more connections | 512 for each client |
//! | an answer or an event does not end | it is not read on | 128 MiB, 16 MiB |
//! | a credential plugin or token file fails or is slow | the old credentials are used; one attempt at a time, which no request cuts short | 60 s for each |
//! | a watch is not read | its stream's window fills; the others go on | 256 KiB for each watch |
//!
//! `ApiClient` also runs over any `tower` service ([`ApiClient::from_service`],
//! [`ApiClients::in_process`]), so a whole node can be tested against a server in the same
//! process and on paused time: every delay here is on tokio's clock, and jitter comes from names.
//! `kube` stays inside this crate.
//!
//! # What it does not do
//!
//! No discovery and no dynamic types: a type is one of `k8s-openapi`. JSON only, no protobuf. No
//! server-side apply, no pages of lists, no proxies. A request is not repeated by itself, but once
//! after a 401 with new credentials: [`ApiError::retry`] says what trying again would bring.

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
