//! The sync loop.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use windlass_actors::{PlegHealth, ProbeUpdate};
use windlass_mailboxes::{SlotReceiver, start_actor};
use windlass_node_rules::admission::AdmissionPolicy;
use windlass_runtime::PodRuntime;
use windlass_store::{AdmittedPod, AdmittedPods, BackoffFile};
use windlass_sync_loop::{AdmissionDeps, SyncLoop, SyncLoopDeps, SyncLoopHealth, SyncLoopStreams};
use windlass_types::corev1::Node;
use windlass_types::{PodExt, PodSource, PodUid};

use super::links::{Links, Shared, SyncLoopEnds};

/// Dependencies of the sync loop beyond what most actors hold.
pub(super) struct SyncLoopWiring {
    pub(super) sources: BTreeSet<PodSource>,
    pub(super) orphan_grace: Duration,
    pub(super) initial_node: Arc<Node>,
    pub(super) admission_policy: Arc<AdmissionPolicy>,
    pub(super) checkpoint: Option<AdmittedPods>,
    pub(super) restored: Vec<AdmittedPod>,
    pub(super) runtime: PodRuntime,
    pub(super) backoff_file: Option<BackoffFile>,
    pub(super) pleg_health: PlegHealth,
    pub(super) probes: SlotReceiver<PodUid, ProbeUpdate>,
}

/// Starts the loop; returns the time of its last iteration.
pub(super) fn spawn_sync_loop(
    wiring: SyncLoopWiring,
    shared: &Shared,
    links: &Links,
    ends: SyncLoopEnds,
) -> SyncLoopHealth {
    let health = SyncLoopHealth::default();
    let restored = wiring.restored.into_iter();
    let deps = SyncLoopDeps {
        sources: wiring.sources,
        workers: links.workers.clone(),
        cache: links.pleg.cache.clone(),
        status_store: shared.status_store.clone(),
        cri: Arc::clone(&shared.runtime),
        pleg_health: wiring.pleg_health,
        volumes: links.volumes.clone(),
        orphan_grace: wiring.orphan_grace,
        runtime: wiring.runtime,
        backoff_file: wiring.backoff_file,
        runtime_state: ends.runtime_state,
        sources_ready: ends.sources_ready,
        admission: AdmissionDeps {
            node: links.node.clone(),
            initial_node: wiring.initial_node,
            admission_policy: wiring.admission_policy,
            shutdown: links.node_shutdown.clone(),
            pressure: links.pressure.clone(),
            checkpoint: wiring.checkpoint,
            restored: restored.map(|it| (it.pod.uid(), it.allocated)).collect(),
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
        probes: wiring.probes,
        terminations: ends.terminations,
        allocations: ends.allocations,
    };
    start_actor(SyncLoop::new(deps, streams));
    health
}
