//! Object cache: ConfigMaps, Secrets, Services, RuntimeClasses, ClusterTrustBundles, tokens and
//! certificates, watched only while a pod needs them, and PVCs, which a node may only read.
//!
//! For an agent that must neither watch all Secrets nor read each object per pod. Each object has
//! one shared watch, from the first pod that refers to it until a grace period after the last.
//!
//! # Entry points
//!
//! * [`ObjectCache`] resolves the references of pods: it implements
//!   [`windlass_runtime_config::port::PodObjects`]
//! * [`ObjectCacheDeps`] are its dependencies; without clients it runs in standalone mode
//! * [`ApiCsiObjects`] provides the API objects for mounting CSI volumes
//! * [`CredentialProviders`] executes the plugins that return credentials when an image is pulled
//! * [`KeptObjects`] is an encrypted copy for a reboot without an API server; [`keep_objects`] writes
//!   it
//! * [`CredentialDirs`] names the directories of the node's registry credentials
//!
//! # Example
//!
//! ```no_run
//! use windlass_objects::{ObjectCache, ObjectCacheDeps};
//! use windlass_runtime_config::port::PodObjects;
//! use windlass_types::{PodExt, SharedPod};
//!
//! # async fn run(deps: ObjectCacheDeps, pod: SharedPod) -> Result<(), Box<dyn std::error::Error>> {
//! let cache = ObjectCache::new(deps);
//! cache.register(&pod);
//! let inputs = cache.inputs(&pod).await?;
//! println!("{} volumes", inputs.volumes.len());
//! if let Some(lacking) = inputs.missing {
//!     println!("nothing can be started yet: {lacking}");
//! }
//! cache.unregister(&pod.uid());
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-objects --example follow_a_config_map` follows a change and serves the
//! last value during an outage.
//!
//! # Guarantees
//!
//! * A pod waits at most 10 s for its references, then gets an error with the missing ones. A
//!   resolved object serves while the API server is unreachable.
//! * A watch continues for 30 s after its last pod, for pods that are replaced.
//! * Memory is bounded by the references of the node's pods, and by the addresses and ports of
//!   services.
//! * A token is renewed after 80 % of its lifetime or a day. If that fails, the old one serves and
//!   the next attempt is 30 s later.
//! * No value of a Secret is in a log, an error or a `Debug`.
//!
//! # Limits
//!
//! This crate writes no file but the encrypted copy: `windlass-volumes` sets up the volumes. It does not bind PVCs,
//! attach volumes or restart pods: the channel `changed` requeues the affected pods.

mod cache;
mod claims;
mod credential_providers;
mod csi_objects;
mod kept;
mod lookup;
mod node_credentials;
mod ordered_watch;
mod pod_certificates;
mod polled_objects;
mod rejections;
mod resolve;
mod shared_reflectors;
mod tokens;

pub use cache::{ObjectCache, ObjectCacheDeps};
pub use credential_providers::{CredentialProviders, CredentialProvidersError};
pub use csi_objects::ApiCsiObjects;
pub use kept::{KeptObjects, keep_objects};
pub use node_credentials::CredentialDirs;

#[cfg(test)]
mod tests;
