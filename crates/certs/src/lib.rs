//! The certificates of a node: the first one, their rotation and their files.
//!
//! For programs that act as a node towards an API server. Files have upstream's names and formats,
//! so that agents can be exchanged in both directions.
//!
//! # Entry points
//!
//! * [`Credentials::load`] reads the files at [`Paths`] and chooses the startup credentials
//! * [`run_client_rotation`] and [`run_serving_rotation`] rotate the two certificates until they
//!   are dropped
//! * [`self_signed()`] is the serving certificate of a node without a signer
//! * [`PodKey`] is a key for a pod certificate
//!
//! | module | |
//! |---|---|
//! | `bootstrap` | startup credentials: the kubeconfig or the bootstrap kubeconfig; the wait for the first certificate |
//! | `rotation` | when a certificate is rotated and with which credentials, and the two loops |
//! | `csr`, `signing` | a key and a CSR; the CSR through the API server |
//! | `pod_key` | a key for a pod, and the proof of possession |
//! | [`self_signed`](mod@self_signed) | the serving certificate of a node without a signer |
//! | `store`, [`certificate`] | certificate files with upstream's names; the parsed certificate |
//!
//! # Recovery
//!
//! The loops never end, and no error here ends the process. (Upstream exits after five minutes
//! without valid credentials.) Problems with the client certificate, and what follows:
//!
//! | problem | reaction |
//! |---|---|
//! | no certificate yet | a CSR with the bootstrap credentials; after an hour without approval it is created again under the same name |
//! | 70 to 90 % of the validity have passed | a CSR with the certificate itself (`rotateCertificates`) |
//! | expired, for example after a long shutdown | a CSR with the bootstrap credentials |
//! | valid, but only 401 and 403 for five minutes, for example after a CA replacement | a CSR with the bootstrap credentials; the old certificate stays in use, and is kept if it is accepted again |
//! | CSR denied, failed or deleted | a new key and a new CSR, 2 to 35 s later |
//! | API server unreachable | the same CSR again, 2 to 35 s later |
//! | bootstrap token expired as well | the bootstrap kubeconfig is read for each attempt; provide a new token |
//! | no bootstrap credentials | files are read every 10 s; provide a certificate or a kubeconfig |
//! | files renewed by kubeadm or an administrator | the newest valid certificate is in use within a minute |
//! | certificate files cannot be written | an approved certificate is used from memory |
//!
//! The next request uses a new certificate; connections with the old one get no new requests.
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
//! // static pods start here; requests to the API server follow
//! credentials.wait_for_identity().await;
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-certs --example join_a_cluster` joins with a token and prints the requests.
//!
//! # Limits
//!
//! It approves and signs nothing: the cluster does. It does not serve; servers receive new pairs
//! from a `watch`. The node's own keys are ECDSA P-256; keys of pods may have other types.

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
