//! Renews the node's lease, the sign of life the control plane counts on.
//!
//! What a lease should be is decided in [`plan`], the requests are in `io`.

mod actor;
mod io;
pub(crate) mod plan;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use windlass_actors::NodeSeen;
use windlass_client::ApiClient;
use windlass_types::Clock;
use windlass_types::view::HeartbeatStatus;

pub use actor::NodeLease;

/// Namespace of the leases of nodes.
pub(crate) const NAMESPACE: &str = "kube-node-lease";

/// What [`NodeLease`] works with.
#[derive(Clone, Debug)]
pub struct NodeLeaseDeps {
    /// Name of the node, of its lease, and of the holder.
    pub node_name: String,
    /// `nodeLeaseDurationSeconds`; renewed every quarter of it.
    pub duration_seconds: u32,
    /// The heartbeat client, whose deadline is at most the lease's duration.
    pub client: ApiClient,
    /// The node object, which owns the lease.
    pub node: watch::Receiver<NodeSeen>,
    /// The clock whose time is written into the lease.
    pub clock: Arc<dyn Clock>,
    /// Who wants to know whether the API server answers.
    pub contact: watch::Sender<Option<HeartbeatStatus>>,
}

impl NodeLeaseDeps {
    fn duration(&self) -> Duration {
        Duration::from_secs(u64::from(self.duration_seconds))
    }
}
