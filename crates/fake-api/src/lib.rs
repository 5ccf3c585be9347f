//! An in-memory Kubernetes API server, faithful in what a node agent relies on.
//!
//! The state is a plain value (`store`), changed by functions of the state and the time (`write`,
//! `delete`, `patch`); `request` maps HTTP onto them. A server is reached in process
//! ([`InProcess`], under paused time if need be) or over TLS ([`TlsServer`]). Tests change it
//! directly through [`FakeApiServer`] and make it misbehave through [`Faults`].
//!
//! What it leaves out: discovery, protobuf, server-side apply, `limit` and `continue` (a list is
//! always whole), the pruning of unknown fields, validation beyond what is named in `write`, and
//! the node authorizer's graph (a node may read any secret by name). It takes every resource, known
//! or not.

mod admit;
mod authority;
mod client_cert;
mod clock;
mod csr;
mod defaults;
mod delete;
mod faults;
mod freeze;
mod http;
mod identity;
mod in_process;
mod merge_keys;
mod object;
mod patch;
mod path;
mod pod_signer;
mod query;
mod refusal;
mod request;
mod select;
mod server;
mod store;
mod strategic;
mod subresources;
mod tls;
mod transitions;
mod watch;
mod write;

pub use faults::{Fault, FaultId, Faults, On};
pub use http::ApiBody;
pub use identity::{Access, User};
pub use in_process::InProcess;
pub use pod_signer::PodSigner;
pub use server::{FakeApiServer, RequestRecord, Stored};
pub use tls::{KubeconfigUser, ServerCertificate, TlsServer};
