//! Node allocatable, pod CIDR, graceful node shutdown and plugin registration.

use std::sync::Arc;

use tokio::sync::watch;
use windlass_actors::{NodeUpdate, PluginResourceUpdate, ShutdownState, SourceSnapshot};
use windlass_device_plugins::DevicePlugins;
use windlass_dra::DraClaims;
use windlass_mailboxes::{MailboxSender, spawn_io, start_actor};
use windlass_node::shutdown::{NodeShutdown, NodeShutdownConfig};
use windlass_node::{
    CsiNodeStatus, HungPodsDeps, HungPodsMessage, PodCidrDeps, run_hung_pods, run_pod_cidr_sync,
};
use windlass_runtime::PodRuntime;

use super::cluster::{ClusterWiring, spawn_cluster};
use super::csi::{CsiWiring, spawn_csi};
use super::links::{Links, Shared};
use super::parts::{ShutdownParts, VolumeParts};
use crate::cluster::ClusterParts;
use crate::node_summary::ClusterHandles;

/// Dependencies of the node's actors beyond what most actors hold.
pub(super) struct NodeWiring {
    pub(super) volumes: VolumeParts,
    pub(super) device_plugins: Option<DevicePlugins>,
    pub(super) claims: Arc<DraClaims>,
    /// In effect until the node object has one.
    pub(super) pod_cidr: String,
    pub(super) shutdown: (Option<ShutdownParts>, watch::Sender<ShutdownState>),
    pub(super) storage: MailboxSender<SourceSnapshot>,
    pub(super) node: watch::Sender<NodeUpdate>,
    pub(super) plugin_resources: watch::Receiver<PluginResourceUpdate>,
}

/// Starts what serves the whole node, and the actors of a cluster node; returns the handles of the
/// latter.
pub(super) fn spawn_node(
    cluster: Option<ClusterParts>,
    wiring: NodeWiring,
    shared: &Shared,
    links: &Links,
) -> Option<ClusterHandles> {
    spawn_pod_cidr(wiring.pod_cidr, shared, links);
    spawn_shutdown(wiring.shutdown, shared, links);
    let (csi_status, csi_node) = watch::channel(CsiNodeStatus::default());
    match wiring.volumes.registry {
        Some(registry) => spawn_csi(CsiWiring {
            registry,
            claims: wiring.claims,
            drivers: wiring.volumes.csi_drivers,
            device_plugins: wiring.device_plugins,
            cluster: cluster.as_ref(),
            node_name: shared.node_name.clone(),
            node_seen: links.node.clone(),
            status: csi_status,
            metrics: shared.metrics.clone(),
        }),
        // no driver can register
        None => drop(csi_status.send_replace(CsiNodeStatus::Initialized)),
    }
    let wiring = ClusterWiring {
        storage: wiring.storage,
        csi_node,
        hung_pods: spawn_hung_pods(shared),
        node: wiring.node,
        plugin_resources: wiring.plugin_resources,
    };
    cluster.map(|cluster| spawn_cluster(cluster, wiring, shared, links))
}

/// Starts the task that limits all pods together to the node's allocatable resources.
pub(super) fn spawn_node_limits(runtime: &PodRuntime, shared: &Shared) {
    let (runtime, stop) = (runtime.clone(), shared.shutdown.token());
    spawn_io("node-allocatable", async move {
        stop.run_until_cancelled(runtime.enforce_node_allocatable())
            .await
    });
}

/// Starts the task that names pods with hung operations; returns the text for the ready condition.
fn spawn_hung_pods(shared: &Shared) -> watch::Receiver<HungPodsMessage> {
    let (sender, message) = watch::channel(None);
    let task = run_hung_pods(HungPodsDeps {
        hung: shared.hung_operations.clone(),
        status_store: shared.status_store.clone(),
        events: Arc::clone(&shared.events),
        metrics: shared.metrics.clone(),
        message: sender,
    });
    let stop = shared.shutdown.token();
    spawn_io(
        "hung-pods",
        async move { stop.run_until_cancelled(task).await },
    );
    message
}

/// Starts the task that gives the runtime the pod CIDR.
fn spawn_pod_cidr(configured: String, shared: &Shared, links: &Links) {
    let deps = PodCidrDeps {
        configured,
        node: links.node.clone(),
        runtime_state: links.runtime_state.clone(),
        runtime: Arc::clone(&shared.runtime),
    };
    spawn_io("pod-cidr", run_pod_cidr_sync(deps));
}

/// Starts graceful node shutdown, if there are settings for it.
fn spawn_shutdown(
    (parts, state): (Option<ShutdownParts>, watch::Sender<ShutdownState>),
    shared: &Shared,
    links: &Links,
) {
    let Some(parts) = parts else { return };
    start_actor(NodeShutdown::new(NodeShutdownConfig {
        periods: parts.periods,
        bus: parts.bus,
        logind_conf_dir: parts.logind_conf_dir,
        record: parts.record,
        terminations: links.terminations.clone(),
        status_store: shared.status_store.clone(),
        recorder: Arc::clone(&shared.events),
        state,
    }));
}
