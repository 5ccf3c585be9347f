//! An in-memory Kubernetes API server, faithful in what a node agent relies on.
//!
//! For tests of controllers, agents and clients that watch: nothing to install, no port unless you want
//! one, and it misbehaves on demand. It takes every resource, known or not.
//!
//! # The way in
//!
//! * [`FakeApiServer`] is the server; clones are handles of the same one. Tests create, change and read
//!   objects on it directly
//! * [`FakeApiServer::clients`] are clients in the same process; they work under paused time
//! * [`FakeApiServer::serve_tls`] is the same server behind TLS ([`TlsServer`]), with certificates,
//!   tokens and kubeconfig files
//! * [`ForwardProxy`] is a proxy on the way to it, by HTTP `CONNECT` or SOCKS 5
//! * [`FakeApiServer::faults`] makes it misbehave: [`Faults`], on the calls that [`On`] picks
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
//! let refused = client.get::<Node>(ObjectKey::cluster("n1")).await;
//! assert_eq!(refused.err().map(|error| error.kind), Some(ApiErrorKind::Forbidden));
//! let node: Node = client.get(ObjectKey::cluster("n1")).await?;
//! assert!(node.metadata.uid.is_some());
//! assert_eq!(server.requests().len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-fake-api --example break_a_watch` follows pods through an outage.
//!
//! # What it promises
//!
//! * Versions, generations, conflicts, finalizers, grace periods, patches of all three kinds, bookmarks,
//!   streaming lists and 410 are those of a real server, as far as the tests in `tests/api` say.
//! * The state is a plain value, changed by functions of the state and the time (`store`, `write`,
//!   `delete`, `patch`): the same calls give the same answers. Time is tokio's, or a clock you give.
//! * Nodes are refused what is not theirs, unless [`FakeApiServer::restrict_nodes`] turns that off.
//! * The last 4096 changes are kept for watches and the last 65,536 requests for
//!   [`FakeApiServer::requests`]; a body has 3 MiB at most.
//!
//! # What it does not do
//!
//! Discovery (so no kubectl), protobuf, server-side apply, `limit` and `continue` (a list is always
//! whole), the pruning of unknown fields, validation beyond what is named in `write`, and the node
//! authorizer's graph: a node may read any secret by name, but for what
//! [`Faults::informer_lag`] hides from it. Nothing is kept on a disk, and no controller
//! runs: nobody schedules, and nobody collects garbage. Methods that a test calls panic when they cannot
//! do what they were told; it is no server for anything but tests.

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
pub use server::{FakeApiServer, RequestRecord, Stored};
pub use tls::{KubeconfigUser, ServerCertificate, TlsServer};
