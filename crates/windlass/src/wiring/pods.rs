//! The pod runtime, the PLEG, the pod workers and log rotation.

use std::net::IpAddr;
use std::sync::Arc;

use windlass_actors::{GetPodWorkers, PlegHealth, PlegMessage, ProbesHandle, UpdatePod};
use windlass_container_logs::{LogReader, LogRotation, LogRotationDeps};
use windlass_mailboxes::{Mailbox, SlotReceiver, start_actor};
use windlass_objects::ObjectCache;
use windlass_pleg::{Pleg, PlegDeps};
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_lifecycle::backoff::BackoffPolicy;
use windlass_pod_workers::worker::WorkerSettings;
use windlass_pod_workers::{PodWorkers, PodWorkersDeps, StartLimiter, WorkerDeps};
use windlass_runtime::{PodRuntime, PodRuntimeDeps};
use windlass_runtime_config::port::{AssignedResources, PodClaims};
use windlass_store::{BackoffFile, BackoffTables};
use windlass_types::PodUid;

use super::links::{Links, Shared};
use super::logs::{RuntimeLogs, spawn_log_rotation};
use super::parts::{RuntimeParts, WorkerParts};

/// Creates the pod runtime: what starts and stops the containers of one pod.
pub(super) fn pod_runtime(
    parts: RuntimeParts,
    node: Arc<NodeFacts>,
    assigned: Arc<dyn AssignedResources>,
    shared: &Shared,
) -> PodRuntime {
    PodRuntime::new(PodRuntimeDeps {
        runtime: Arc::clone(&shared.runtime),
        checks: parts.checks,
        images: Arc::clone(&shared.images),
        credentials: parts.credentials,
        assigned: Some(assigned),
        files: parts.files,
        cgroups: parts.cgroups,
        events: Arc::clone(&shared.events),
        clock: Arc::clone(&shared.clock),
        node,
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

/// Dependencies of the pod workers beyond what most actors hold.
pub(super) struct WorkerWiring {
    pub(super) parts: WorkerParts,
    pub(super) host_ips: Vec<IpAddr>,
    pub(super) stop_signals: bool,
    pub(super) resize_pod_level: bool,
    pub(super) restart_policy: BackoffPolicy,
    pub(super) runtime: PodRuntime,
    pub(super) objects: Arc<ObjectCache>,
    pub(super) claims: Arc<dyn PodClaims>,
    pub(super) probes: ProbesHandle,
    pub(super) backoff_file: Option<BackoffFile>,
    pub(super) backoff: BackoffTables,
}

/// Starts the registry of pod workers.
pub(super) fn spawn_workers(
    wiring: WorkerWiring,
    shared: &Shared,
    links: &Links,
    updates: SlotReceiver<PodUid, UpdatePod>,
    queries: Mailbox<GetPodWorkers>,
) {
    let (hung, metrics) = (&shared.hung, &shared.metrics);
    let settings = WorkerSettings {
        sync_frequency: wiring.parts.sync_frequency,
        restart_policy: wiring.restart_policy,
        agent_started: shared.clock.now(),
        host_ips: wiring.host_ips,
        stop_signals: wiring.stop_signals,
        resize_pod_level: wiring.resize_pod_level,
        runtime_name: shared.runtime_name.clone(),
    };
    let worker = WorkerDeps {
        runtime: wiring.runtime,
        volumes: links.volumes.clone(),
        objects: wiring.objects,
        claims: Some(wiring.claims),
        pleg: links.pleg.clone(),
        hung: hung.clone(),
        probes: wiring.probes,
        start_limiter: StartLimiter::new(
            wiring.parts.start_concurrency,
            hung.load(),
            metrics.clone(),
        ),
        status_store: shared.status_store.clone(),
        timelines: shared.timelines.clone(),
        events: Arc::clone(&shared.events),
        clock: Arc::clone(&shared.clock),
        metrics: metrics.clone(),
        runtime_state: links.runtime_state.clone(),
        backoff_file: wiring.backoff_file,
        settings,
    };
    let deps = PodWorkersDeps {
        worker,
        backoff: wiring.backoff,
    };
    start_actor(PodWorkers::new(deps, updates, queries));
}
