//! What programs on the node are told of its pods, over gRPC on Unix sockets: which of the node's
//! resources they have (PodResources v1, and v1alpha1), and the pods themselves (the Pods API).
//!
//! For an agent that monitoring programs (device metrics, topology exporters) are to find where a kubelet's
//! sockets are.
//!
//! *owns* nothing: both read the board · *invariant* read-only; only root and the agent's own user
//! are answered · *bound* 100 requests a second, ten at once, for each service; what comes beyond is
//! refused, as upstream does. To begin a watch is not counted, upstream's limiter sees calls with one
//! answer only; a connection has 64 streams at most. A watch holds no queue: when its client is ready for
//! more it gets the difference between the board then and what it was told, so a slow client misses
//! intermediate states and costs nothing. Upstream ends the watch of a client that is 100 events behind.
//!
//! # The way in
//!
//! * [`Socket`] is where each service is found below the root directory; [`Socket::bind`] opens it
//! * [`PodResources`] and [`Pods`] are the services over a `windlass_status::PodStatusStore`
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
//! #     board: windlass_status::PodStatusStore, metrics: windlass_metrics::Metrics,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let socket = Socket::PodResources.bind("/var/lib/kubelet".as_ref())?;
//! let service = PodResources::new(board, true, metrics.pod_resources);
//! serve_pod_resources(socket, service, Default::default()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-pod-resources --example list_resources` serves two pods and asks.
//!
//! # What it does not do
//!
//! There are no CPU, memory and device managers and no DRA yet, so no container has anything of its
//! own. That is what upstream tells with the policies `None`. Nothing is told over TCP.

mod pod_bytes;
mod pods;
mod resources;
mod service;

pub use pods::Pods;
pub use resources::PodResources;
pub use service::{Socket, SocketError, serve_pod_resources, serve_pods};

#[cfg(test)]
mod tests;
