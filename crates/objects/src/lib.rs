//! What pods refer to: ConfigMaps, Secrets, Services, RuntimeClasses, ClusterTrustBundles, tokens
//! and certificates, watched only while a pod needs them; and claims, which a node may only read.
//!
//! For an agent that runs pods of an API server and must neither watch all of its Secrets nor ask for each
//! pod. Each object has one watch whoever needs it, begun with the first pod that refers to it and ended
//! a while after the last.
//!
//! # The way in
//!
//! * [`ObjectCache`] is told of pods and answers what they need: it is a
//!   [`windlass_runtime::PodObjects`]
//! * [`ObjectCacheDeps`] are what it works with; without clients it answers what needs no API server
//! * [`ApiCsiObjects`] is what mounting a volume of a CSI driver asks of the API server
//! * [`CredentialProviders`] executes the plugins that return credentials when an image is pulled
//! * [`CredentialDirs`] says where the node's own registry credentials lie
//!
//! # Example
//!
//! ```no_run
//! use windlass_objects::{ObjectCache, ObjectCacheDeps};
//! use windlass_runtime::PodObjects;
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
//! `cargo run -p windlass-objects --example follow_a_config_map` hears of a change and goes on without
//! its API server.
//!
//! # What it promises
//!
//! * A pod waits 10 s at most until each of its references was answered once, then hears which was not.
//!   What was read once serves while the API server is away.
//! * A watch goes on for 30 s after its last pod: one that is replaced at once needs it again.
//! * Memory is bounded by what the pods of the node refer to, besides the services, which are kept as
//!   their address and ports.
//! * A token is renewed at four fifths of its life or after a day; if that fails, the old one serves and
//!   the next attempt is 30 s later.
//! * No value of a Secret is in a log, an error or a `Debug`.
//!
//! # What it does not do
//!
//! It writes no file: the volumes of `windlass-volumes` show what is found here. It binds no claim and
//! attaches nothing, and a change restarts no pod: who holds the lane `changed` is told which pods to look
//! at again.

mod announced;
mod cache;
mod claims;
mod credential_providers;
mod csi_objects;
mod lookup;
mod node_credentials;
mod pod_certificates;
mod reads;
mod reflections;
mod refusals;
mod resolve;
mod tokens;

pub use cache::{ObjectCache, ObjectCacheDeps};
pub use credential_providers::{CredentialProviders, CredentialProvidersError};
pub use csi_objects::ApiCsiObjects;
pub use node_credentials::CredentialDirs;

#[cfg(test)]
mod tests;
