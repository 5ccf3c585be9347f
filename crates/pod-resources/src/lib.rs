//! gRPC services about the node's pods on Unix sockets: PodResources (v1 and v1alpha1) and the Pods
//! API.
//!
//! For agents that serve monitoring programs (device metrics, topology exporters) on the kubelet's
//! socket paths.
//!
//! *owns* nothing: both read the pod status store · *invariant* read-only; only root and the
//! agent's own user may connect · *bound* 100 requests per second with a burst of ten for each
//! service, as upstream; further ones are rejected. As upstream, watches do not count; a connection
//! has at most 64 streams. A watch has no queue: it sends the difference to the last state that the
//! client received, so a slow client misses intermediate states. Upstream ends a watch that is 100
//! events behind.
//!
//! # The way in
//!
//! * [`Socket`] is the socket of a service below the root directory; [`Socket::bind`] opens it
//! * [`PodResources`] and [`Pods`] implement the services with a `windlass_status::PodStatusStore`
//! * [`serve_pod_resources`] and [`serve_pods`] serve them until a token is cancelled
//!
//! # Example
//!
//! ```
//! use std::path::Path;
//! use windlass_pod_resources::Socket;
//!
//! let root = Path::new("/var/lib/kubelet");
//! let socket = Socket::PodResources.path(root);
//! assert_eq!(socket, Path::new("/var/lib/kubelet/pod-resources/kubelet.sock"));
//! ```
//!
//! ```no_run
//! use windlass_pod_resources::{PodResources, Socket, serve_pod_resources};
//! # async fn run(
//! #     status_store: windlass_status::PodStatusStore, metrics: windlass_metrics::Metrics,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let socket = Socket::PodResources.bind("/var/lib/kubelet".as_ref())?;
//! let service = PodResources::new(status_store, true, metrics.pod_resources);
//! serve_pod_resources(socket, service, Default::default()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-pod-resources --example list_resources` serves two pods and lists them.
//!
//! # What it does not do
//!
//! It assigns nothing: that is done in `windlass-container-manager` and `windlass-dra`. There is no
//! TCP listener.

mod assigned;
mod pod_bytes;
mod pods;
mod resources;
mod service;

pub use pods::Pods;
pub use resources::{ClaimSource, PodResources};
pub use service::{Socket, SocketError, serve_pod_resources, serve_pods};

#[cfg(test)]
mod tests;
