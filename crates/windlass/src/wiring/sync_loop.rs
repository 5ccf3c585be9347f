//! The sync loop.

use std::sync::Arc;

use windlass_mailboxes::start_actor;
use windlass_sync_loop::{AdmissionDeps, SyncLoop, SyncLoopDeps, SyncLoopHealth, SyncLoopStreams};
use windlass_types::PodExt;

use super::links::{Links, Shared, SyncLoopEnds};
use super::pods::PodWiring;

/// Starts the loop; returns the time of its last iteration.
pub(super) fn spawn_sync_loop(
    wiring: PodWiring<'_>,
    shared: &Shared,
    links: &Links,
    ends: SyncLoopEnds,
) -> SyncLoopHealth {
    let health = SyncLoopHealth::default();
    let state = wiring.state;
    let restored = state.restored.into_iter();
    let restored = restored.map(|it| (it.pod.uid(), it.allocated));
    let deps = SyncLoopDeps {
        sources: wiring.sources,
        workers: links.workers.clone(),
        cache: links.pleg.cache.clone(),
        status_store: shared.status_store.clone(),
        cri: Arc::clone(&shared.runtime),
        pleg_health: wiring.pleg_health,
        volumes: links.volumes.clone(),
        orphan_grace: wiring.workers.orphan_grace,
        runtime: wiring.runtime,
        backoff_file: state.backoff.map(|(file, _)| file),
        runtime_state: ends.runtime_state,
        sources_ready: ends.sources_ready,
        admission: AdmissionDeps {
            node: links.node.clone(),
            initial_node: Arc::clone(&wiring.node.initial),
            admission_policy: Arc::clone(&wiring.node.admission_policy),
            shutdown: links.node_shutdown.clone(),
            pressure: links.pressure.clone(),
            checkpoint: state.admitted,
            resource_files: state.resource_files,
            restored: restored.chain(state.allocated).collect(),
            events: Arc::clone(&shared.events),
            allocations: links.allocations.clone(),
        },
        timelines: shared.timelines.clone(),
        clock: Arc::clone(&shared.clock),
        metrics: shared.metrics.clone(),
        health: health.clone(),
    };
    let streams = SyncLoopStreams {
        config: ends.config,
        pleg: ends.pleg,
        objects: ends.objects,
        volumes: ends.volumes,
        probes: wiring.probe_updates,
        terminations: ends.terminations,
        allocations: ends.allocations,
    };
    start_actor(SyncLoop::new(deps, streams));
    health
}
