//! Renews the node lease, the node's heartbeat.
//!
//! [`plan`] computes the lease, `io` sends the requests.

mod actor;
mod io;
pub(crate) mod plan;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use windlass_actors::NodeUpdate;
use windlass_client::ApiClient;
use windlass_types::Clock;
use windlass_types::view::HeartbeatStatus;

pub use actor::NodeLease;

pub(crate) const NAMESPACE: &str = "kube-node-lease";

/// Dependencies of [`NodeLease`].
#[derive(Clone, Debug)]
pub struct NodeLeaseDeps {
    /// Name of the node, of its lease, and of the holder.
    pub node_name: String,
    /// `nodeLeaseDurationSeconds`; renewed every quarter of it.
    pub duration_seconds: u32,
    /// The heartbeat client, whose timeout is at most the lease duration.
    pub client: ApiClient,
    /// The node object, which owns the lease.
    pub node: watch::Receiver<NodeUpdate>,
    /// The clock whose time is written into the lease.
    pub clock: Arc<dyn Clock>,
    /// Publishes whether the API server is reachable.
    pub contact: watch::Sender<Option<HeartbeatStatus>>,
}

impl NodeLeaseDeps {
    fn duration(&self) -> Duration {
        Duration::from_secs(u64::from(self.duration_seconds))
    }
}
