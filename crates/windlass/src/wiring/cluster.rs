//! Actors of a cluster node that use the API server, and the event recorder.

use std::sync::Arc;

use tokio::sync::watch;
use windlass_actors::{
    ActorKind, ApiPodUpdate, MailboxSender, NodeUpdate, RuntimeState, ShutdownState,
    SourceSnapshot, SourcesReady, VolumesInUse, mailbox, slots, spawn_io, start_actor,
};
use windlass_cri::{ImageService, RuntimeService};
use windlass_metrics::Metrics;
use windlass_node::{CsiNodeStanding, NodeLease, NodeLeaseDeps, NodeStatus, NodeStatusDeps};
use windlass_sources::{ApiSource, ApiSourceConfig};
use windlass_status::{
    ApiEvents, EventLog, EventRecorder, PodStatusStore, StatusManager, StatusManagerDeps,
};
use windlass_timelines::Timelines;
use windlass_types::{Clock, PodUid};

use super::AgentParts;
use crate::cluster::ClusterParts;
use crate::node_summary::ClusterHandles;

/// Returns a recorder that also sends events to the API server, unless standalone.
pub(super) fn event_recorder(parts: &AgentParts, board: &PodStatusStore) -> Arc<dyn EventRecorder> {
    let log = EventLog::new(board.clone(), Arc::clone(&parts.clock));
    let Some(cluster) = &parts.cluster else {
        return Arc::new(log);
    };
    let node_name = &parts.sources.node_name;
    let (recorder, sender) =
        ApiEvents::new(log, Arc::clone(&parts.clock), node_name, &parts.metrics);
    let (identity, client) = (cluster.wait_for_identity(), cluster.clients.events.clone());
    spawn_io("send-events", async move {
        identity.await;
        sender.run(client).await;
    });
    Arc::new(recorder)
}

/// Dependencies of the actors of a cluster node.
pub(super) struct ClusterWiring {
    pub(super) cluster: ClusterParts,
    pub(super) node_name: String,
    pub(super) runtime: Arc<dyn RuntimeService>,
    pub(super) images: Arc<dyn ImageService>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Metrics,
    pub(super) events: Arc<dyn EventRecorder>,
    pub(super) board: PodStatusStore,
    pub(super) timelines: Timelines,
    pub(super) storage: MailboxSender<SourceSnapshot>,
    pub(super) runtime_state: watch::Receiver<RuntimeState>,
    pub(super) machine_state: watch::Receiver<ShutdownState>,
    pub(super) sources_ready: watch::Receiver<SourcesReady>,
    pub(super) volumes_in_use: watch::Receiver<Option<VolumesInUse>>,
    pub(super) csi_node: watch::Receiver<CsiNodeStanding>,
    pub(super) node_sender: watch::Sender<NodeUpdate>,
    pub(super) node_seen: watch::Receiver<NodeUpdate>,
}

/// Starts the actors of a cluster node.
pub(super) fn spawn_cluster(wiring: ClusterWiring) -> ClusterHandles {
    let ClusterWiring {
        cluster, metrics, ..
    } = wiring;
    let (seen_sender, seen_slots) =
        slots::<PodUid, ApiPodUpdate>(ActorKind::StatusManager, &metrics);
    start_actor(StatusManager::new(
        StatusManagerDeps {
            client: cluster.clients.main.clone(),
            board: wiring.board,
            timelines: wiring.timelines,
            clock: Arc::clone(&wiring.clock),
            metrics: metrics.clone(),
        },
        seen_slots,
        wiring.node_seen.clone(),
        wiring.sources_ready,
    ));

    let (pod_watch_sender, pod_watch) = watch::channel(None);
    let (event_sender, event_mailbox) = mailbox(ActorKind::ApiSource, &metrics);
    let source = ApiSourceConfig {
        client: cluster.clients.watch.clone(),
        node_name: wiring.node_name.clone(),
        node: wiring.node_seen.clone(),
        storage: wiring.storage,
        seen: seen_sender,
        events: event_sender,
        pod_watch: pod_watch_sender,
        recorder: Arc::clone(&wiring.events),
        clock: Arc::clone(&wiring.clock),
    };
    start_actor(ApiSource::new(source, event_mailbox));

    let (contact_sender, contact) = watch::channel(None);
    let handles = ClusterHandles {
        credentials: cluster
            .certificates
            .as_ref()
            .map(|it| it.credentials.clone()),
        serving: cluster.spawn_rotations(&wiring.clock, &metrics.certificates),
        node: wiring.node_seen.clone(),
        contact,
        pod_watch,
    };
    let identity = cluster.wait_for_identity();
    let lease = NodeLease::new(NodeLeaseDeps {
        node_name: wiring.node_name,
        duration_seconds: cluster.lease_seconds,
        client: cluster.clients.heartbeat.clone(),
        node: wiring.node_seen,
        clock: Arc::clone(&wiring.clock),
        contact: contact_sender,
    });
    let status = NodeStatus::new(NodeStatusDeps {
        settings: cluster.status,
        machine: cluster.machine,
        clients: cluster.clients,
        runtime: wiring.runtime,
        images: wiring.images,
        runtime_state: wiring.runtime_state,
        shutdown: wiring.machine_state,
        volumes_in_use: wiring.volumes_in_use,
        csi_node: wiring.csi_node,
        seen: wiring.node_sender,
        clock: wiring.clock,
        events: wiring.events,
        metrics,
    });
    // all other actors wait for the node object
    tokio::task::spawn_local(async move {
        identity.await;
        start_actor(lease);
        start_actor(status);
    });
    handles
}
