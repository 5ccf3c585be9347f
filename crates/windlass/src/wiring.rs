//! Creates, connects and starts all actors; the only module that knows every actor.
//!
//! Mailboxes are created first, then the actors that use them. `docs/actors.md` shows the graph.

mod parts;

mod links;

mod cluster;
mod container_manager;
mod csi;
mod dra;
mod eviction;
mod images;
mod local_storage;
mod logs;
mod node;
mod oom;
mod pods;
mod pressure;
mod probes;
mod sources;
mod sync_loop;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use windlass_actors::{
    ConfigChanged, PlegHandle, PlegHealth, PodChanged, PodWorkersHandle, ProbeResults,
    ProbesHandle, RejectedManifest, SourceSnapshot,
};
use windlass_container_logs::LogReader;
use windlass_container_manager::AssignedResourcesReader;
use windlass_cri::{HungCalls, RuntimeService};
use windlass_dra::DraClaims;
use windlass_eviction::EvictionStatus;
use windlass_hung_operations::HungOperations;
use windlass_mailboxes::{MailboxSender, Shutdown, SlotSender};
use windlass_metrics::Metrics;
use windlass_status::PodStatusStore;
use windlass_sync_loop::SyncLoopHealth;
use windlass_timelines::Timelines;
use windlass_types::{PodUid, SpanSink};
use windlass_volume_manager::VolumeUsages;

use crate::node_summary::{AgentNode, ClusterHandles};
use container_manager::spawn_container_manager;
use dra::spawn_dra;
use eviction::evicted;
use links::{Links, Shared, channels};
use node::{NodeWiring, spawn_node, spawn_node_limits};
use pods::{PodWiring, pod_runtime, spawn_logs, spawn_pleg, spawn_pods};
use pressure::{Pressure, PressureWiring, spawn_pressure};
use probes::{ProbeWiring, spawn_probes};
use sources::spawn_sources;
use volumes::{object_cache, spawn_volumes};

pub use container_manager::{ContainerManagerParts, DevicePluginParts};
pub use images::NodeReclaim;
pub use parts::{
    AgentParts, DraParts, EvictionParts, ImageGcParts, LocalStorageParts, NodeParts, ObjectParts,
    PressureParts, RuntimeParts, ShutdownParts, StateParts, VolumeParts, WorkerParts,
};
pub use sources::SourceParts;

/// Grace period of an orphaned pod, as upstream.
pub const ORPHAN_GRACE: Duration = windlass_pod_lifecycle::stop::MIN_GRACE_PERIOD;

/// Handles to a running agent.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Status of every pod.
    pub status_store: PodStatusStore,
    /// Timeline of every pod.
    pub timelines: Timelines,
    /// Mailbox of PodStorage.
    pub sources: MailboxSender<SourceSnapshot>,
    /// The PLEG and its cache.
    pub pleg: PlegHandle,
    /// Manifests that the sources reject.
    pub rejected: watch::Receiver<Vec<RejectedManifest>>,
    /// Time of the last sync loop iteration.
    pub sync_loop_health: SyncLoopHealth,
    /// Time of the last relist.
    pub pleg_health: PlegHealth,
    /// The container runtime, with tracking of hung calls.
    pub runtime: Arc<dyn RuntimeService>,
    /// Hung calls of the runtime.
    pub hung_calls: HungCalls,
    /// Hung operations of all kinds.
    pub hung_operations: HungOperations,
    /// Usage of volumes.
    pub volume_usages: VolumeUsages,
    /// Frees disk space without evicting pods.
    pub reclaim: NodeReclaim,
    /// Signals, thresholds and evictions.
    pub eviction: watch::Receiver<Arc<EvictionStatus>>,
    /// Reads and rotates container logs.
    pub logs: LogReader,
    /// Resource claims of pods.
    pub claims: Arc<DraClaims>,
    /// Trace exporter.
    pub spans: Option<Arc<dyn SpanSink>>,
    /// CPUs, memory nodes and devices of containers.
    pub assigned: AssignedResourcesReader,
    /// The node and its cluster.
    pub node: AgentNode,
    /// Stops the agent.
    pub shutdown: Shutdown,
    mailboxes: Mailboxes,
    metrics: Metrics,
}

/// Mailboxes with a depth metric that no other field has.
#[derive(Clone, Debug)]
struct Mailboxes {
    config: MailboxSender<ConfigChanged>,
    changes: SlotSender<PodUid, PodChanged>,
    workers: PodWorkersHandle,
    probes: ProbesHandle,
}

impl Agent {
    /// Returns the probe results.
    pub fn probe_results(&self) -> &ProbeResults {
        &self.mailboxes.probes.results
    }

    /// Updates the gauges that are computed per scrape: depth and age of every mailbox, and
    /// rejected manifests.
    pub fn publish_metrics(&self) {
        let rejected = self.rejected.borrow();
        let from_url = rejected
            .iter()
            .filter(|r| r.origin.starts_with("http"))
            .count();
        for (source, count) in [("http", from_url), ("file", rejected.len() - from_url)] {
            self.metrics
                .sources
                .rejected
                .with_label_values(&[source])
                .set(count as f64);
        }
        drop(rejected);
        self.node.publish_metrics(&self.metrics);
        self.volume_usages.publish_metrics();
        self.sources.publish_metrics();
        self.pleg.mailbox.publish_metrics();
        self.reclaim.publish_metrics();
        self.mailboxes.config.publish_metrics();
        self.mailboxes
            .changes
            .publish_metrics(&self.metrics.mailboxes);
        self.mailboxes.workers.mailbox.publish_metrics();
        self.mailboxes
            .workers
            .updates
            .publish_metrics(&self.metrics.mailboxes);
        for manager in &self.mailboxes.probes.managers {
            manager.publish_metrics(&self.metrics.mailboxes);
        }
    }
}

/// Starts every actor on the current thread, which needs an actix system or a tokio `LocalSet`.
pub fn spawn(parts: AgentParts) -> Agent {
    let shared = Shared::new(&parts);
    let (links, ends) = channels(&shared.metrics);
    let (node, mut state) = (parts.node, parts.state);
    let cluster = parts.cluster.as_ref();

    let objects = object_cache(parts.objects, &node.facts, cluster, &shared, &links);
    let volume_ends = (ends.volumes, ends.volumes_in_use);
    let volume_usages = spawn_volumes(&parts.volumes, &objects, &shared, &links, volume_ends);
    let pleg_health = spawn_pleg(&shared, &links, ends.pleg);
    let logs = spawn_logs(parts.runtime.log_rotation, &node.facts, &shared, &links);
    let (probes, probe_updates) = spawn_probes(&ProbeWiring {
        checks: Arc::clone(&parts.runtime.checks),
        file: state.probe_result_file.take(),
        restored: std::mem::take(&mut state.probe_results),
        shared: &shared,
    });
    let (assigned, device_plugins, plugin_resources) = spawn_container_manager(
        parts.container_manager,
        ends.container_manager,
        &shared,
        &links,
    );
    let restart_policy = parts.runtime.options.restart_backoff;
    let runtime = pod_runtime(parts.runtime, &node.facts, &assigned, &shared);
    spawn_node_limits(&runtime, &shared);
    let pressure = PressureWiring {
        image_uses: state.image_uses.take(),
        evictions: state.evictions.take(),
        evicted: evicted(&state.restored),
        volumes: volume_usages.clone(),
        runtime: runtime.clone(),
        observed: ends.pressure,
    };
    let pressure = spawn_pressure(parts.pressure, pressure, &shared, &links);
    let claims = spawn_dra(parts.dra, cluster, &shared, &links);
    let restored = state.restored.clone();
    let pods = PodWiring {
        node: &node,
        workers: parts.workers,
        restart_policy,
        sources: parts.sources.configured(),
        state,
        runtime,
        objects,
        claims: Arc::<DraClaims>::clone(&claims),
        probes: probes.clone(),
        probe_updates,
        pleg_health: pleg_health.clone(),
    };
    let sync_loop_health = spawn_pods(pods, &shared, &links, ends.pods);
    let (sources, rejected) = spawn_sources(parts.sources, restored, &shared, &links);
    let handles = NodeWiring {
        volumes: parts.volumes,
        device_plugins,
        claims: Arc::clone(&claims),
        pod_cidr: node.pod_cidr,
        shutdown: (node.shutdown, ends.node_shutdown),
        storage: sources.clone(),
        node: ends.node,
        plugin_resources,
    };
    let cluster = spawn_node(parts.cluster, handles, &shared, &links);

    let started = Started {
        sync_loop_health,
        pleg_health,
        volume_usages,
        pressure,
        sources,
        rejected,
        logs,
        probes,
        claims,
        spans: parts.spans,
        cluster,
        assigned,
    };
    started.into_agent(shared, links)
}

/// Handles that starting the actors returned.
struct Started {
    sync_loop_health: SyncLoopHealth,
    pleg_health: PlegHealth,
    volume_usages: VolumeUsages,
    pressure: Pressure,
    sources: MailboxSender<SourceSnapshot>,
    rejected: watch::Receiver<Vec<RejectedManifest>>,
    logs: LogReader,
    probes: ProbesHandle,
    claims: Arc<DraClaims>,
    spans: Option<Arc<dyn SpanSink>>,
    cluster: Option<ClusterHandles>,
    assigned: AssignedResourcesReader,
}

impl Started {
    fn into_agent(self, shared: Shared, links: Links) -> Agent {
        Agent {
            sync_loop_health: self.sync_loop_health,
            pleg_health: self.pleg_health,
            volume_usages: self.volume_usages,
            reclaim: self.pressure.reclaim,
            sources: self.sources,
            rejected: self.rejected,
            eviction: self.pressure.eviction,
            logs: self.logs,
            claims: self.claims,
            spans: self.spans,
            assigned: self.assigned,
            node: AgentNode {
                name: shared.node_name,
                cluster: self.cluster,
                hung: shared.hung_operations.clone(),
                status_store: shared.status_store.clone(),
                clock: shared.clock,
            },
            status_store: shared.status_store,
            timelines: shared.timelines,
            runtime: shared.runtime,
            hung_calls: shared.hung,
            hung_operations: shared.hung_operations,
            shutdown: shared.shutdown,
            pleg: links.pleg,
            mailboxes: Mailboxes {
                config: links.config,
                changes: links.changes,
                workers: links.workers,
                probes: self.probes,
            },
            metrics: shared.metrics,
        }
    }
}
