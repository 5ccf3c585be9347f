//! Registers the node and reports its status.
//!
//! [`fsm`] decides what to do next, `windlass_node_rules::node_object` builds the object, `io`
//! sends the requests.

mod actor;
pub(crate) mod fsm;
mod io;
mod startup;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use windlass_actors::{
    NodePressure, NodeUpdate, PluginResourceUpdate, RuntimeState, ShutdownState, VolumesInUse,
};
use windlass_client::ApiClients;
use windlass_cri::{ImageService, RuntimeService};
use windlass_metrics::Metrics;
use windlass_node_rules::node_object::NodeSettings;
use windlass_types::{Clock, EventRecorder};

pub use actor::NodeStatus;

use crate::csi_node::CsiNodeStatus;
use crate::hung_pods::HungPodsMessage;
use crate::machine::Machine;

/// Settings of registration and status reports.
#[derive(Clone, Debug)]
pub struct NodeStatusSettings {
    /// Contents of the object.
    pub node: Arc<NodeSettings>,
    /// `registerNode`: create the object, and again after it was deleted.
    pub register: bool,
    /// Resets extended resources of an existing object until a device plugin registers. Set if
    /// `device-plugins/kubelet_internal_checkpoint` is missing, as upstream.
    pub reset_extended_resources: bool,
    /// `nodeStatusUpdateFrequency`.
    pub update_frequency: Duration,
    /// `nodeStatusReportFrequency`.
    pub report_frequency: Duration,
}

/// Dependencies of [`NodeStatus`].
#[derive(Clone, Debug)]
pub struct NodeStatusDeps {
    /// Settings.
    pub settings: NodeStatusSettings,
    /// Source of the host's facts.
    pub machine: Machine,
    /// Clients of the API server.
    pub clients: ApiClients,
    /// The container runtime.
    pub runtime: Arc<dyn RuntimeService>,
    /// Its images.
    pub images: Arc<dyn ImageService>,
    /// State of the runtime.
    pub runtime_state: watch::Receiver<RuntimeState>,
    /// Whether the host is shutting down.
    pub shutdown: watch::Receiver<ShutdownState>,
    /// Pressure conditions; `None` until the node was read.
    pub pressure: watch::Receiver<NodePressure>,
    /// Attached devices that pods use; `None` until known.
    pub volumes_in_use: watch::Receiver<Option<VolumesInUse>>,
    /// Resources of device plugins.
    pub plugin_resources: watch::Receiver<PluginResourceUpdate>,
    /// State of the CSINode object.
    pub csi_node: watch::Receiver<CsiNodeStatus>,
    /// Text about pods with hung operations.
    pub hung_pods: watch::Receiver<HungPodsMessage>,
    /// Publishes the node object.
    pub seen: watch::Sender<NodeUpdate>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Records events of the node.
    pub events: Arc<dyn EventRecorder>,
    /// Metrics.
    pub metrics: Metrics,
}
