//! What pods refer to: ConfigMaps, Secrets, Services, RuntimeClasses, ClusterTrustBundles, tokens
//! and certificates, watched only while a pod needs them; and claims, which a node may only read.
//!
//! [`ObjectCache`] answers [`windlass_runtime::PodObjects`], [`ApiCsiObjects`] what mounting a
//! volume of a CSI driver asks of the API server. Each object has one watch whoever
//! needs it, begun with the first pod that refers to it and ended a while after the last; what
//! was read once serves while the API server is away. Memory is bounded by what the pods of the
//! node refer to, besides the services, which are kept as their address and ports.

mod announced;
mod cache;
mod claims;
mod csi_objects;
mod lookup;
mod node_credentials;
mod pod_certificates;
mod reads;
mod reflections;
mod resolve;
mod tokens;

pub use cache::{ObjectCache, ObjectCacheDeps};
pub use csi_objects::ApiCsiObjects;
pub use node_credentials::CredentialDirs;

#[cfg(test)]
mod tests;
