//! Pod CIDR, graceful node shutdown and plugin registration.

use std::sync::Arc;

use tokio::sync::watch;
use windlass_actors::ShutdownState;
use windlass_mailboxes::{spawn_io, start_actor};
use windlass_node::shutdown::{NodeShutdown, NodeShutdownConfig};
use windlass_node::{CsiNodeStatus, PodCidrDeps, run_pod_cidr_sync};

use super::csi::{CsiWiring, spawn_csi};
use super::links::{Links, Shared};
use super::parts::{ShutdownParts, VolumeParts};
use crate::cluster::ClusterParts;

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

/// Starts graceful node shutdown.
pub(super) fn spawn_shutdown(
    parts: ShutdownParts,
    shared: &Shared,
    links: &Links,
    state: watch::Sender<ShutdownState>,
) {
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

/// Starts plugin registration; returns the state of the CSINode object.
pub(super) fn spawn_plugins(
    parts: VolumeParts,
    cluster: Option<&ClusterParts>,
    shared: &Shared,
    links: &Links,
) -> watch::Receiver<CsiNodeStatus> {
    let (sender, csi_node) = watch::channel(CsiNodeStatus::default());
    match parts.registry {
        Some(registry) => spawn_csi(CsiWiring {
            registry,
            drivers: parts.csi_drivers,
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
