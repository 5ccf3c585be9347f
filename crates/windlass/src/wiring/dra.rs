//! Resource claims of pods, DRA drivers and the clean-up after them.

use std::sync::Arc;

use windlass_dra::{DraClaims, DraDeps, run_reconciliation, run_slice_cleanup};
use windlass_mailboxes::spawn_io;
use windlass_types::PodUid;
use windlass_types::view::PodWorkerState;

use super::links::{Links, Shared};
use super::parts::DraParts;
use crate::cluster::ClusterParts;

/// Starts the tasks; returns the claims.
pub(super) fn spawn_dra(
    parts: DraParts,
    cluster: Option<&ClusterParts>,
    shared: &Shared,
    links: &Links,
) -> Arc<DraClaims> {
    let client = cluster.map(|cluster| cluster.clients.main.clone());
    let drivers = parts.drivers;
    let claims = Arc::new(DraClaims::new(DraDeps {
        drivers: drivers.clone(),
        client: client.clone(),
        store: parts.store,
        changed: links.objects_changed.clone(),
        extended: parts.extended,
        owners: parts.owners,
        health: parts.health,
        health_messages: parts.health_messages,
        metrics: shared.metrics.clone(),
        hung: shared.hung_operations.clone(),
    }));
    spawn_io("dra-retries", Arc::clone(&claims).run_retries());
    if let Some(client) = client {
        let cleanup = run_slice_cleanup(drivers, client, links.node.clone());
        spawn_io("dra-slices", cleanup);
    }
    let (status_store, observed) = (shared.status_store.clone(), links.pleg.cache.clone());
    let is_gone = move |uid: &PodUid| {
        let entry = status_store.get(uid);
        // what still runs gets a worker
        entry.is_none_or(|it| it.worker_state == PodWorkerState::TerminatedPod)
            && !observed.get(uid).is_some_and(|it| it.is_alive())
    };
    let sources_ready = links.sources_ready.clone();
    let reconciliation = run_reconciliation(Arc::clone(&claims), sources_ready, is_gone);
    spawn_io("dra-reconciliation", reconciliation);
    claims
}
