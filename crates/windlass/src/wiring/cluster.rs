//! Actors of a cluster node that use the API server, and the event recorder.

use std::sync::Arc;

use tokio::sync::watch;
use windlass_actors::{ApiPodUpdate, NodeUpdate, PluginResourceUpdate, SourceSnapshot};
use windlass_mailboxes::{MailboxSender, SlotSender, mailbox, slots, spawn_io, start_actor};
use windlass_node::{
    CsiNodeStatus, HungPodsMessage, NodeLease, NodeLeaseDeps, NodeStatus, NodeStatusDeps,
};
use windlass_sources::{ApiSource, ApiSourceConfig};
use windlass_status::{
    ApiEvents, EventLog, EventRecorder, PodStatusStore, StatusManager, StatusManagerDeps,
};
use windlass_types::PodUid;
use windlass_types::view::PodWatch;

use super::AgentParts;
use super::links::{Links, Shared};
use crate::cluster::ClusterParts;
use crate::node_summary::ClusterHandles;

/// Returns a recorder that also sends events to the API server, unless standalone.
pub(super) fn event_recorder(
    parts: &AgentParts,
    status_store: &PodStatusStore,
) -> Arc<dyn EventRecorder> {
    let log = EventLog::new(status_store.clone(), Arc::clone(&parts.clock));
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

/// Dependencies of the actors of a cluster node beyond what most actors hold.
pub(super) struct ClusterWiring {
    pub(super) storage: MailboxSender<SourceSnapshot>,
    pub(super) csi_node: watch::Receiver<CsiNodeStatus>,
    pub(super) hung_pods: watch::Receiver<HungPodsMessage>,
    pub(super) node: watch::Sender<NodeUpdate>,
    pub(super) plugin_resources: watch::Receiver<PluginResourceUpdate>,
}

/// Starts the StatusManager; returns where it receives the pods of the API server.
fn spawn_status_manager(
    cluster: &ClusterParts,
    shared: &Shared,
    links: &Links,
) -> SlotSender<PodUid, ApiPodUpdate> {
    let metrics = &shared.metrics;
    let (seen, seen_slots) = slots(windlass_status::STATUS_MANAGER, &metrics.mailboxes);
    let deps = StatusManagerDeps {
        client: cluster.clients.main.clone(),
        status_store: shared.status_store.clone(),
        timelines: shared.timelines.clone(),
        clock: Arc::clone(&shared.clock),
        metrics: metrics.clone(),
    };
    let (node, ready) = (links.node.clone(), links.sources_ready.clone());
    start_actor(StatusManager::new(deps, seen_slots, node, ready));
    seen
}

/// Starts the source of the API server's pods; returns the state of its watch.
fn spawn_api_source(
    cluster: &ClusterParts,
    storage: MailboxSender<SourceSnapshot>,
    seen: SlotSender<PodUid, ApiPodUpdate>,
    shared: &Shared,
    links: &Links,
) -> watch::Receiver<Option<PodWatch>> {
    let (pod_watch_sender, pod_watch) = watch::channel(None);
    let mailboxes = &shared.metrics.mailboxes;
    let (events, event_mailbox) = mailbox(windlass_sources::API_SOURCE, mailboxes);
    let source = ApiSourceConfig {
        client: cluster.clients.watch.clone(),
        node_name: shared.node_name.clone(),
        node: links.node.clone(),
        storage,
        seen,
        events,
        pod_watch: pod_watch_sender,
        recorder: Arc::clone(&shared.events),
        clock: Arc::clone(&shared.clock),
    };
    start_actor(ApiSource::new(source, event_mailbox));
    pod_watch
}

/// Starts the actors of a cluster node.
pub(super) fn spawn_cluster(
    cluster: ClusterParts,
    wiring: ClusterWiring,
    shared: &Shared,
    links: &Links,
) -> ClusterHandles {
    let metrics = &shared.metrics;
    let seen = spawn_status_manager(&cluster, shared, links);
    let pod_watch = spawn_api_source(&cluster, wiring.storage, seen, shared, links);
    let (contact_sender, contact) = watch::channel(None);
    let handles = ClusterHandles {
        credentials: cluster
            .certificates
            .as_ref()
            .map(|it| it.credentials.clone()),
        serving: cluster.spawn_rotations(&shared.clock, &metrics.certificates),
        node: links.node.clone(),
        contact,
        pod_watch,
    };
    let identity = cluster.wait_for_identity();
    let lease = NodeLease::new(NodeLeaseDeps {
        node_name: shared.node_name.clone(),
        duration_seconds: cluster.lease_seconds,
        client: cluster.clients.heartbeat.clone(),
        node: links.node.clone(),
        clock: Arc::clone(&shared.clock),
        contact: contact_sender,
    });
    let status = NodeStatus::new(NodeStatusDeps {
        settings: cluster.status,
        machine: cluster.machine,
        clients: cluster.clients,
        runtime: Arc::clone(&shared.runtime),
        images: Arc::clone(&shared.images),
        runtime_state: links.runtime_state.clone(),
        shutdown: links.node_shutdown.clone(),
        pressure: links.pressure.clone(),
        volumes_in_use: links.volumes_in_use.clone(),
        plugin_resources: wiring.plugin_resources,
        csi_node: wiring.csi_node,
        hung_pods: wiring.hung_pods,
        seen: wiring.node,
        clock: Arc::clone(&shared.clock),
        events: Arc::clone(&shared.events),
        metrics: metrics.clone(),
    });
    // all other actors wait for the node object
    tokio::task::spawn_local(async move {
        identity.await;
        start_actor(lease);
        start_actor(status);
    });
    handles
}
