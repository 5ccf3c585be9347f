//! A node's certificates: how it gets its first one, keeps it current, and where it is kept.
//!
//! For whoever has to be a node for an API server: an agent, or a program that joins machines. Files
//! have upstream's names and forms, so that a node can change agents and back.
//!
//! # The way in
//!
//! * [`Credentials::load`] reads the files at [`Paths`] and decides what to begin with
//! * [`run_client_rotation`] and [`run_serving_rotation`] keep the two certificates current, for
//!   as long as they run
//! * [`self_signed()`] is the serving certificate of a node that nobody signs one for
//! * [`PodKey`] is a key that a pod is given
//!
//! | module | |
//! |---|---|
//! | `bootstrap` | what to begin with: the kubeconfig, or the bootstrap credentials; who waits for the first certificate |
//! | `rotation` | when a certificate is replaced and with which credentials, and the two loops that do it |
//! | `csr`, `signing` | a key and a request; the request through the API server's CertificateSigningRequest |
//! | `pod_key` | a key that a pod is given, and the proof that it is held |
//! | [`self_signed`](mod@self_signed) | the serving certificate of a node that nobody signs one for |
//! | `store`, [`certificate`] | the files, with upstream's names, so that a node can change agents and back; what a certificate says |
//!
//! # A way back from everything
//!
//! The loops never end and nothing here ends the process (upstream exits after five minutes
//! without valid credentials, and a supervisor begins anew). What can be wrong with the client
//! certificate, and what follows:
//!
//! | | |
//! |---|---|
//! | there is none yet | a request with the bootstrap credentials; an hour for its approval, then it is looked for again, under the same name |
//! | 70 to 90 % of its life are over | a request with the certificate itself (`rotateCertificates`) |
//! | it ran out: the machine was off for a year | a request with the bootstrap credentials |
//! | valid by its dates, but the API server answers only 401 and 403 for five minutes: the cluster's authority was replaced | a request with the bootstrap credentials; the old one stays in use meanwhile, and is kept if it is accepted again |
//! | the request was denied, failed or deleted | a new key and a new request, 2 to 35 s later |
//! | the API server does not answer | the same request again, 2 to 35 s later |
//! | the bootstrap token ran out as well | the bootstrap kubeconfig is read for each attempt: put a new token there |
//! | no bootstrap credentials either | files are read every 10 s: put a certificate or a kubeconfig there |
//! | somebody else (kubeadm, an administrator) renewed the files | within a minute the newest valid certificate is in use |
//! | the disk takes no files | an approved certificate is used from memory |
//!
//! A new certificate is used by the next request; connections that were made with the old one
//! carry none any more.
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//! use windlass_certs::{Credentials, Paths, run_client_rotation};
//! use windlass_client::{ApiClients, ClientLimits};
//!
//! # async fn run(clock: Arc<dyn windlass_types::Clock>) -> Result<(), Box<dyn std::error::Error>> {
//! let paths = Paths {
//!     kubeconfig: "/etc/kubernetes/kubelet.conf".into(),
//!     bootstrap_kubeconfig: Some("/etc/kubernetes/bootstrap-kubelet.conf".into()),
//!     cert_dir: "/var/lib/kubelet/pki".into(),
//! };
//! let credentials = Credentials::load(paths, clock.now())?;
//! let clients = ApiClients::connect(&credentials.config, &ClientLimits::default())?;
//! if let Some(rotation) = credentials.client_rotation("n1", clients.main.clone(), true, clock) {
//!     tokio::spawn(run_client_rotation(rotation));
//! }
//! // static pods start here; what needs the API server comes after
//! credentials.wait_for_identity().await;
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-certs --example join_a_cluster` joins with a token and shows who asked what.
//!
//! # What it does not do
//!
//! It approves and signs nothing: that is the cluster's. It serves nothing: who does hears of new
//! pairs by a `watch`. The node's own keys are ECDSA P-256; only those of pods may be others.

mod bootstrap;
pub mod certificate;
mod csr;
mod pod_key;
mod rotation;
pub mod self_signed;
mod signing;
mod store;

pub use bootstrap::{Credentials, Paths, StartupCredentials, StartupCredentialsError};
pub use csr::{RequestError, ServingNames};
pub use pod_key::{PodKey, PodKeyType, UnknownKeyType};
pub use rotation::{
    Bootstrap, ClientRotation, ServingPair, ServingRotation, run_client_rotation,
    run_serving_rotation,
};
pub use self_signed::{SelfSignedError, self_signed};
pub use signing::SigningError;
pub use store::{CertificateStore, StoreError};
