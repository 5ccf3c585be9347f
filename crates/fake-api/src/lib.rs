//! An in-memory Kubernetes API server, faithful in what a node agent relies on.
//!
//! For tests of controllers, agents and watching clients: no installation, no port by default, and
//! fault injection. It accepts every resource, known or not.
//!
//! # Entry points
//!
//! * [`FakeApiServer`] is the server; clones share it. Tests create, change and read objects
//!   directly
//! * [`FakeApiServer::clients`] are clients in the same process; they work on paused time
//! * [`FakeApiServer::serve_tls`] is the same server behind TLS ([`TlsServer`]), with
//!   certificates, tokens and kubeconfig files
//! * [`ForwardProxy`] is a proxy to the server, by HTTP `CONNECT` or SOCKS 5
//! * [`FakeApiServer::faults`] injects faults: [`Faults`], into the calls that match [`On`]
//!
//! # Example
//!
//! ```
//! use k8s_openapi::api::core::v1::Node;
//! use serde_json::{from_value, json};
//! use windlass_client::{ApiErrorKind, ObjectKey};
//! use windlass_fake_api::{FakeApiServer, On};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = FakeApiServer::new();
//! server.create::<Node>(&from_value(json!({"metadata": {"name": "n1"}}))?);
//! let client = server.clients().main;
//!
//! server.faults().error(On::path("/api/v1/nodes/*").times(1), 403);
//! let rejected = client.get::<Node>(ObjectKey::cluster("n1")).await;
//! assert_eq!(rejected.err().map(|error| error.kind), Some(ApiErrorKind::Forbidden));
//! let node: Node = client.get(ObjectKey::cluster("n1")).await?;
//! assert!(node.metadata.uid.is_some());
//! assert_eq!(server.requests().len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-fake-api --example break_a_watch` follows pods through an outage.
//!
//! # Guarantees
//!
//! * Versions, generations, conflicts, finalizers, grace periods, all three patch types,
//!   bookmarks, streaming lists and 410 behave as in a real server, as far as tested in
//!   `tests/api`.
//! * The state is a plain value, changed by functions of the state and the time (`store`, `write`,
//!   `delete`, `patch`): the same calls have the same results. Time is tokio's, or a given clock.
//! * Requests of nodes are restricted, unless disabled by [`FakeApiServer::restrict_nodes`].
//! * The last 4096 changes are kept for watches and the last 65,536 requests for
//!   [`FakeApiServer::requests`]; a body has at most 3 MiB.
//!
//! # Limits
//!
//! No discovery (so no kubectl), protobuf, server-side apply, `limit` and `continue` (lists are
//! complete), pruning of unknown fields, or validation beyond that in `write`. Without the graph
//! of the node authorizer, a node may read any secret by name, except those hidden by
//! [`Faults::informer_lag`]. No storage, and no controllers: no scheduling and no garbage
//! collection. Methods for tests panic on errors; do not use it outside tests.

mod admit;
mod authority;
mod client_cert;
mod clock;
mod csr;
mod defaults;
mod delete;
mod faults;
mod forward_proxy;
mod freeze;
mod http;
mod identity;
mod in_process;
mod lag;
mod merge_keys;
mod object;
mod patch;
mod path;
mod peers;
mod pod_signer;
mod query;
mod request;
mod select;
mod server;
mod status_error;
mod store;
mod strategic;
mod subresources;
mod tls;
mod transitions;
mod watch;
mod write;

pub use faults::{Fault, FaultId, Faults, On};
pub use forward_proxy::{ForwardProxy, ProxyRequest};
pub use http::ApiBody;
pub use identity::{Access, User};
pub use in_process::InProcess;
pub use peers::RawResponse;
pub use pod_signer::PodSigner;
pub use server::{FakeApiServer, ObjectChange, Observed, RequestRecord, Stored};
pub use tls::{KubeconfigUser, ServerCertificate, TlsServer};
