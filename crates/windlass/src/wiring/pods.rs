//! The pod runtime, the PLEG, the pod workers and log rotation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use windlass_actors::{PlegHealth, PlegMessage, ProbeUpdate, ProbesHandle};
use windlass_container_logs::{LogReader, LogRotation, LogRotationDeps};
use windlass_container_manager::AssignedResourcesReader;
use windlass_mailboxes::{Mailbox, SlotReceiver, start_actor};
use windlass_objects::ObjectCache;
use windlass_pleg::{Pleg, PlegDeps};
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_lifecycle::backoff::BackoffPolicy;
use windlass_pod_workers::worker::WorkerSettings;
use windlass_pod_workers::{PodWorkers, PodWorkersDeps, StartLimiter, WorkerDeps};
use windlass_runtime::{PodRuntime, PodRuntimeDeps};
use windlass_runtime_config::port::PodClaims;
use windlass_sync_loop::SyncLoopHealth;
use windlass_types::{PodSource, PodUid};

use super::links::{Links, PodEnds, Shared};
use super::logs::{RuntimeLogs, spawn_log_rotation};
use super::parts::{NodeParts, RuntimeParts, StateParts, WorkerParts};
use super::sync_loop::spawn_sync_loop;

/// Creates the pod runtime: what starts and stops the containers of one pod.
pub(super) fn pod_runtime(
    parts: RuntimeParts,
    node: &Arc<NodeFacts>,
    assigned: &AssignedResourcesReader,
    shared: &Shared,
) -> PodRuntime {
    PodRuntime::new(PodRuntimeDeps {
        runtime: Arc::clone(&shared.runtime),
        checks: parts.checks,
        images: Arc::clone(&shared.images),
        credentials: parts.credentials,
        assigned: Some(Arc::new(assigned.clone())),
        files: parts.files,
        cgroups: parts.cgroups,
        events: Arc::clone(&shared.events),
        clock: Arc::clone(&shared.clock),
        node: Arc::clone(node),
        metrics: shared.metrics.clone(),
        hung: shared.hung_operations.clone(),
        options: parts.options,
    })
}

/// Starts the PLEG; returns the time of its last relist.
pub(super) fn spawn_pleg(
    shared: &Shared,
    links: &Links,
    mailbox: Mailbox<PlegMessage>,
) -> PlegHealth {
    let health = PlegHealth::default();
    let deps = PlegDeps {
        runtime: Arc::clone(&shared.runtime),
        clock: Arc::clone(&shared.clock),
        metrics: shared.metrics.pleg.clone(),
        mailboxes: shared.metrics.mailboxes.clone(),
        cache: links.pleg.cache.clone(),
        changes: links.changes.clone(),
        cancel: shared.shutdown.token(),
        health: health.clone(),
        runtime_name: shared.runtime_name.clone(),
        hung: shared.hung.clone(),
        oom_kills: links.oom_kills.clone(),
    };
    start_actor(Pleg::new(deps, mailbox));
    health
}

/// Starts log rotation, if logs have a limit; returns the reader of logs.
pub(super) fn spawn_logs(
    rotation: Option<LogRotation>,
    node: &NodeFacts,
    shared: &Shared,
    links: &Links,
) -> LogReader {
    let reader = LogReader::listing_in(shared.hung_operations.clone());
    if let Some(rotation) = rotation {
        let deps = LogRotationDeps {
            runtime: Arc::new(RuntimeLogs(Arc::clone(&shared.runtime))),
            root: node.paths.pod_logs_dir.clone(),
            reader: reader.clone(),
            clock: Arc::clone(&shared.clock),
            rotation,
            shutdown: shared.shutdown.token(),
        };
        spawn_log_rotation(deps, links.pleg.cache.clone());
    }
    reader
}

/// Dependencies of the pod workers and the sync loop beyond what most actors hold.
pub(super) struct PodWiring<'a> {
    pub(super) node: &'a NodeParts,
    pub(super) workers: WorkerParts,
    pub(super) restart_policy: BackoffPolicy,
    pub(super) sources: BTreeSet<PodSource>,
    pub(super) state: StateParts,
    pub(super) runtime: PodRuntime,
    pub(super) objects: Arc<ObjectCache>,
    pub(super) claims: Arc<dyn PodClaims>,
    pub(super) probes: ProbesHandle,
    pub(super) probe_updates: SlotReceiver<PodUid, ProbeUpdate>,
    pub(super) pleg_health: PlegHealth,
}

/// Starts the registry of pod workers and the sync loop; returns the time of the last iteration of
/// the loop.
pub(super) fn spawn_pods(
    mut wiring: PodWiring<'_>,
    shared: &Shared,
    links: &Links,
    ends: PodEnds,
) -> SyncLoopHealth {
    let backoff = wiring.state.backoff.as_mut();
    let deps = PodWorkersDeps {
        backoff: backoff.map_or_else(BTreeMap::new, |(_, tables)| std::mem::take(tables)),
        worker: worker_deps(&wiring, shared, links),
    };
    start_actor(PodWorkers::new(deps, ends.updates, ends.queries));
    spawn_sync_loop(wiring, shared, links, ends.sync_loop)
}

fn worker_deps(wiring: &PodWiring<'_>, shared: &Shared, links: &Links) -> WorkerDeps {
    let (hung, metrics) = (&shared.hung, &shared.metrics);
    let (node, state) = (wiring.node, &wiring.state);
    let resource_files = state.resource_files.as_ref();
    WorkerDeps {
        runtime: wiring.runtime.clone(),
        volumes: links.volumes.clone(),
        objects: Arc::<ObjectCache>::clone(&wiring.objects),
        claims: Some(Arc::clone(&wiring.claims)),
        pleg: links.pleg.clone(),
        hung: hung.clone(),
        probes: wiring.probes.clone(),
        start_limiter: StartLimiter::new(
            wiring.workers.start_concurrency,
            hung.load(),
            metrics.clone(),
        ),
        status_store: shared.status_store.clone(),
        timelines: shared.timelines.clone(),
        events: Arc::clone(&shared.events),
        clock: Arc::clone(&shared.clock),
        metrics: metrics.clone(),
        runtime_state: links.runtime_state.clone(),
        backoff_file: state.backoff.as_ref().map(|(file, _)| file.clone()),
        actuated_file: resource_files.map(|files| files.actuated.clone()),
        settings: WorkerSettings {
            sync_frequency: wiring.workers.sync_frequency,
            restart_policy: wiring.restart_policy,
            agent_started: shared.clock.now(),
            host_ips: node.host_ips.clone(),
            stop_signals: node.facts.stop_signals,
            resize_pod_level: node.facts.resize_pod_level,
            runtime_name: shared.runtime_name.clone(),
        },
    }
}
