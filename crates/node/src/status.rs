//! Registers the node and reports its status.
//!
//! What to do next is decided in [`fsm`]; the object itself is made by `core::node_object`; the
//! requests are in `io`.

mod actor;
pub(crate) mod fsm;
mod io;
mod startup;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use windlass_actors::{NodeSeen, RuntimeState, ShutdownState, VolumesInUse};
use windlass_client::ApiClients;
use windlass_node_rules::node_object::NodeSettings;
use windlass_cri::{ImageService, RuntimeService};
use windlass_metrics::Metrics;
use windlass_types::{Clock, EventRecorder};

pub use actor::NodeStatus;

use crate::csi_node::CsiNodeStanding;
use crate::machine::Machine;

/// How the node is registered and reported.
#[derive(Clone, Debug)]
pub struct NodeStatusSettings {
    /// What the object is made of.
    pub node: Arc<NodeSettings>,
    /// `registerNode`: create the object, and again when someone deletes it.
    pub register: bool,
    /// No device plugin is known to this node (upstream: there is no
    /// `device-plugins/kubelet_internal_checkpoint`), so extended resources of an object that
    /// exists are zero until one reports.
    pub reset_extended_resources: bool,
    /// `nodeStatusUpdateFrequency`.
    pub update_frequency: Duration,
    /// `nodeStatusReportFrequency`.
    pub report_frequency: Duration,
}

/// What [`NodeStatus`] works with.
#[derive(Clone, Debug)]
pub struct NodeStatusDeps {
    /// Settings.
    pub settings: NodeStatusSettings,
    /// The machine.
    pub machine: Machine,
    /// Clients of the API server.
    pub clients: ApiClients,
    /// Version and features of the container runtime.
    pub runtime: Arc<dyn RuntimeService>,
    /// Its images.
    pub images: Arc<dyn ImageService>,
    /// Whether the runtime can be used.
    pub runtime_state: watch::Receiver<RuntimeState>,
    /// How far the machine's shutdown is.
    pub shutdown: watch::Receiver<ShutdownState>,
    /// Attached devices that pods use; `None` until that is known.
    pub volumes_in_use: watch::Receiver<Option<VolumesInUse>>,
    /// How the CSINode object is.
    pub csi_node: watch::Receiver<CsiNodeStanding>,
    /// Where the node object is told to the others.
    pub seen: watch::Sender<NodeSeen>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Records events of the node.
    pub events: Arc<dyn EventRecorder>,
    /// Metrics.
    pub metrics: Metrics,
}
