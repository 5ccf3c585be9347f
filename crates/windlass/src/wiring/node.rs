//! Node allocatable, pod CIDR, graceful node shutdown and plugin registration.

use std::sync::Arc;

use tokio::sync::watch;
use windlass_actors::ShutdownState;
use windlass_device_plugins::DevicePlugins;
use windlass_dra::DraClaims;
use windlass_mailboxes::{spawn_io, start_actor};
use windlass_node::shutdown::{NodeShutdown, NodeShutdownConfig};
use windlass_node::{
    CsiNodeStatus, HungPodsDeps, HungPodsMessage, PodCidrDeps, run_hung_pods, run_pod_cidr_sync,
};
use windlass_runtime::PodRuntime;

use super::csi::{CsiWiring, spawn_csi};
use super::links::{Links, Shared};
use super::parts::{ShutdownParts, VolumeParts};
use crate::cluster::ClusterParts;

/// Starts the task that limits all pods together to the node's allocatable resources.
pub(super) fn spawn_node_limits(runtime: &PodRuntime, shared: &Shared) {
    let (runtime, stop) = (runtime.clone(), shared.shutdown.token());
    spawn_io("node-allocatable", async move {
        stop.run_until_cancelled(runtime.enforce_node_allocatable())
            .await
    });
}

/// Starts the task that names pods with hung operations; returns the text for the ready condition.
pub(super) fn spawn_hung_pods(shared: &Shared) -> watch::Receiver<HungPodsMessage> {
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
pub(super) fn spawn_pod_cidr(configured: String, shared: &Shared, links: &Links) {
    let deps = PodCidrDeps {
        configured,
        node: links.node.clone(),
        runtime_state: links.runtime_state.clone(),
        runtime: Arc::clone(&shared.runtime),
    };
    spawn_io("pod-cidr", run_pod_cidr_sync(deps));
}

/// Starts graceful node shutdown, if there are settings for it.
pub(super) fn spawn_shutdown(
    parts: Option<ShutdownParts>,
    shared: &Shared,
    links: &Links,
    state: watch::Sender<ShutdownState>,
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

/// Handlers of plugins.
pub(super) struct PluginWiring {
    pub(super) volumes: VolumeParts,
    pub(super) device_plugins: Option<DevicePlugins>,
    pub(super) claims: Arc<DraClaims>,
}

/// Starts plugin registration; returns the state of the CSINode object.
pub(super) fn spawn_plugins(
    plugins: PluginWiring,
    cluster: Option<&ClusterParts>,
    shared: &Shared,
    links: &Links,
) -> watch::Receiver<CsiNodeStatus> {
    let (sender, csi_node) = watch::channel(CsiNodeStatus::default());
    let parts = plugins.volumes;
    match parts.registry {
        Some(registry) => spawn_csi(CsiWiring {
            registry,
            claims: plugins.claims,
            drivers: parts.csi_drivers,
            device_plugins: plugins.device_plugins,
            cluster,
            node_name: shared.node_name.clone(),
            node_seen: links.node.clone(),
            status: sender,
            metrics: shared.metrics.clone(),
        }),
        // no driver can register
        None => drop(sender.send_replace(CsiNodeStatus::Initialized)),
    }
    csi_node
}
