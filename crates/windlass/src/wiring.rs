//! Creates, connects and starts all actors; the only module that knows every actor.
//!
//! Mailboxes are created first, then the actors that use them. `docs/actors.md` shows the graph.

mod cluster;
mod csi;
mod logs;
mod probes;
mod sources;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use windlass_actors::{
    ActorKind, ConfigChanged, MailboxSender, MountedVolumeCache, NodeExpander, NodeUpdate,
    ObjectsChanged, PlegHandle, PlegHealth, PlegMessage, PodChanged, PodWorkersHandle,
    PodWorkersMessage, ProbeResults, ProbesHandle, RejectedManifest, RuntimeName, RuntimeState,
    Shutdown, ShutdownState, SlotSender, SourceSnapshot, SourcesReady, StatusCache, VolumesChanged,
    VolumesHandle, mailbox, slots, spawn_io, start_actor,
};
use windlass_checks::Checks;
use windlass_cri::{HungCalls, ImageService, RuntimeService, WatchedImages, WatchedRuntime};
use windlass_csi::CsiDrivers;
use windlass_metrics::Metrics;
use windlass_node::shutdown::{LogindBus, NodeShutdown, NodeShutdownConfig, ShutdownRecord};
use windlass_node::{CsiNodeStanding, PodCidrDeps, keep_pod_cidr};
use windlass_node_rules::admission::NodeAbilities;
use windlass_objects::{CredentialDirs, ObjectCache, ObjectCacheDeps};
use windlass_pleg::{Pleg, PlegDeps};
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_inputs::object_reads::ChangeDetection;
use windlass_pod_lifecycle::shutdown::ShutdownPeriods;
use windlass_pod_workers::worker::WorkerSettings;
use windlass_pod_workers::{PodWorkers, PodWorkersDeps, StartPacer, WorkerDeps};
use windlass_runtime::files::PodFiles;
use windlass_runtime::logs::{LogReader, LogRotation, LogRotationDeps};
use windlass_runtime::{
    CgroupSettings, ImageCredentials, PodRuntime, PodRuntimeDeps, RuntimeOptions,
};
use windlass_status::PodStatusStore;
use windlass_store::{
    AdmittedPods, BackoffFile, BackoffTables, ProbeResultFile, ProbeResultTables,
};
use windlass_sync_loop::{AdmissionDeps, SyncLoop, SyncLoopDeps, SyncLoopHealth};
use windlass_timelines::Timelines;
use windlass_types::corev1::Node;
use windlass_types::view::EventType;
use windlass_types::{Clock, PodUid, Reason, SharedPod, SpanSink};
use windlass_volume_manager::{
    MeasuredVolumes, VolumeManager, VolumeManagerDeps, VolumeUsages, VolumeUsagesDeps,
};
use windlass_volumes::VolumePlugins;

use crate::cluster::ClusterParts;
use crate::node_summary::AgentNode;
use cluster::{ClusterWiring, event_recorder, spawn_cluster};
use csi::{CsiWiring, drivers_came, spawn_csi};
use logs::spawn_log_rotation;
use probes::{ProbeWiring, spawn_probes};
use sources::{SourceWiring, spawn_sources};

pub use sources::SourceParts;

/// Grace period of an orphaned pod, as upstream.
pub const ORPHAN_GRACE: Duration = Duration::from_secs(1);

/// Dependencies and settings of all actors.
#[derive(Debug)]
pub struct AgentParts {
    /// The container runtime.
    pub runtime: Arc<dyn RuntimeService>,
    /// Network checks of probes and hooks.
    pub checks: Arc<dyn Checks>,
    /// The image service.
    pub images: Arc<dyn ImageService>,
    /// Files of pods.
    pub files: Arc<dyn PodFiles>,
    /// Volumes of pods.
    pub volumes: Arc<dyn VolumePlugins>,
    /// CSI drivers registered on this node; `volumes` calls them.
    pub csi_drivers: CsiDrivers,
    /// Directory of plugin sockets, `<root-dir>/plugins_registry`; `None` in simulations.
    pub plugins_registry: Option<PathBuf>,
    /// Cgroups of pods; `None` leaves them to the runtime.
    pub cgroups: Option<CgroupSettings>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: Metrics,
    /// Facts about the node.
    pub node: Arc<NodeFacts>,
    /// The node object to register; pods are admitted against it until the API server has one.
    pub initial_node: Arc<Node>,
    /// What host and configuration allow pods.
    pub abilities: Arc<NodeAbilities>,
    /// How changes of ConfigMaps and Secrets are detected.
    pub change_detection: ChangeDetection,
    /// Directories of the node's registry credentials; `None` in simulations.
    pub credential_dirs: Option<CredentialDirs>,
    /// Credential providers for image pulls.
    pub image_credentials: Option<Arc<dyn ImageCredentials>>,
    /// Graceful node shutdown; `None` in simulations.
    pub machine_shutdown: Option<MachineShutdown>,
    /// The cluster; `None` in standalone mode.
    pub cluster: Option<ClusterParts>,
    /// The node's addresses.
    pub host_ips: Vec<IpAddr>,
    /// `podCIDR`, in effect until the node object has one.
    pub pod_cidr: String,
    /// Problem of the node's `resolv.conf`, for an event of the node.
    pub resolv_conf_warning: Option<String>,
    /// Warning that memory volumes may be swapped, for an event of the node.
    pub swap_warning: Option<String>,
    /// Settings of the pod runtime.
    pub runtime_options: RuntimeOptions,
    /// The pod sources.
    pub sources: SourceParts,
    /// State file of restart back-offs; `None` in simulations without a disk.
    pub backoff: Option<(BackoffFile, BackoffTables)>,
    /// Where the probes' probe results are kept; `None` in simulations without a disk.
    pub probe_result_file: Option<ProbeResultFile>,
    /// Probe results of the previous run.
    pub probe_results: ProbeResultTables,
    /// Log rotation; `None` without a limit and in simulations.
    pub log_rotation: Option<LogRotation>,
    /// Trace exporter.
    pub spans: Option<Arc<dyn SpanSink>>,
    /// Checkpoint of admitted pods; `None` in simulations without a disk.
    pub admitted: Option<AdmittedPods>,
    /// Pods admitted by previous runs.
    pub restored: Vec<SharedPod>,
    /// `syncFrequency`.
    pub sync_frequency: Duration,
    /// Max concurrent pod starts.
    pub start_concurrency: usize,
    /// Grace period of orphaned pods.
    pub orphan_grace: Duration,
}

/// Settings of graceful node shutdown.
#[derive(Clone, Debug)]
pub struct MachineShutdown {
    /// Grace periods by priority.
    pub periods: ShutdownPeriods,
    /// Bus of logind.
    pub bus: LogindBus,
    /// Directory of logind's drop-in files.
    pub logind_conf_dir: PathBuf,
    /// State file of shutdown times.
    pub record: Option<ShutdownRecord>,
}

/// Handles to a running agent.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Status of every pod.
    pub board: PodStatusStore,
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
    /// Usage of volumes.
    pub volume_usages: VolumeUsages,
    /// Reads and rotates container logs.
    pub logs: LogReader,
    /// Trace exporter.
    pub spans: Option<Arc<dyn SpanSink>>,
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
                .source_rejected
                .with_label_values(&[source])
                .set(count as f64);
        }
        drop(rejected);
        self.node.publish_metrics(&self.metrics);
        self.volume_usages.publish_metrics();
        self.sources.publish_metrics();
        self.pleg.mailbox.publish_metrics();
        self.mailboxes.config.publish_metrics();
        self.mailboxes.changes.publish_metrics(&self.metrics);
        self.mailboxes.workers.mailbox.publish_metrics();
        self.mailboxes
            .workers
            .updates
            .publish_metrics(&self.metrics);
        for manager in &self.mailboxes.probes.managers {
            manager.publish_metrics(&self.metrics);
        }
    }
}

/// Starts every actor on the current thread, which needs an actix system or a tokio `LocalSet`.
pub fn spawn(mut parts: AgentParts) -> Agent {
    let hung = HungCalls::new(Arc::clone(&parts.clock));
    let timelines = Timelines::new(Arc::clone(&parts.clock), parts.spans.clone());
    let watched = WatchedRuntime::new(parts.runtime, hung.clone(), timelines.clone());
    parts.runtime = Arc::new(watched);
    let watched = WatchedImages::new(parts.images, hung.clone(), timelines.clone());
    parts.images = Arc::new(watched);
    let metrics = parts.metrics.clone();
    let shutdown = Shutdown::new();
    let board = PodStatusStore::new();
    let cache = StatusCache::new();
    let events = event_recorder(&parts, &board);
    if let Some(message) = &parts.resolv_conf_warning {
        let reason = Reason::CheckLimitsForResolvConf;
        events.record_node(EventType::Warning, reason, message);
    }
    if let Some(message) = &parts.swap_warning {
        let reason = Reason::PossibleMemoryBackedVolumesOnDisk;
        events.record_node(EventType::Warning, reason, message);
    }
    parts.volumes.tell_events_to(Arc::clone(&events));
    let (node_sender, node_seen) = watch::channel(NodeUpdate::default());
    let (shutdown_sender, machine_state) = watch::channel(ShutdownState::default());
    let (ready_sender, sources_ready) = watch::channel(SourcesReady::default());
    let (object_sender, object_slots) =
        slots::<PodUid, ObjectsChanged>(ActorKind::SyncLoop, &metrics);
    let objects = Arc::new(ObjectCache::new(ObjectCacheDeps {
        clients: parts.cluster.as_ref().map(|it| it.clients.clone()),
        clock: Arc::clone(&parts.clock),
        events: Arc::clone(&events),
        changed: object_sender,
        node: Arc::clone(&parts.node),
        node_seen: node_seen.clone(),
        metrics: metrics.volumes.clone(),
        change_detection: parts.change_detection,
        csi: parts.cluster.as_ref().map(|it| Arc::clone(&it.csi)),
        credential_dirs: parts.credential_dirs,
    }));

    let (config_sender, config_mailbox) = mailbox::<ConfigChanged>(ActorKind::SyncLoop, &metrics);
    let (change_sender, change_slots) = slots::<PodUid, PodChanged>(ActorKind::SyncLoop, &metrics);
    let (pleg_sender, pleg_mailbox) = mailbox::<PlegMessage>(ActorKind::Pleg, &metrics);
    let (workers_sender, workers_mailbox) =
        mailbox::<PodWorkersMessage>(ActorKind::PodWorkers, &metrics);
    let (update_sender, update_slots) = slots(ActorKind::PodWorkers, &metrics);
    let (state_sender, state) = watch::channel(RuntimeState::unknown());
    let workers = PodWorkersHandle {
        updates: update_sender,
        mailbox: workers_sender.clone(),
    };
    let pleg = PlegHandle {
        mailbox: pleg_sender,
        cache: cache.clone(),
    };

    let (in_use_sender, volumes_in_use) = watch::channel(None);
    let (volume_sender, volume_mailbox) = mailbox(ActorKind::VolumeManager, &metrics);
    let (volumes_sender, volume_slots) =
        slots::<PodUid, VolumesChanged>(ActorKind::SyncLoop, &metrics);
    let volumes = VolumesHandle {
        mailbox: volume_sender,
        mounted: MountedVolumeCache::default(),
    };
    let volume_usages = VolumeUsages::new(VolumeUsagesDeps {
        plugins: Arc::clone(&parts.volumes),
        clock: Arc::clone(&parts.clock),
        events: Arc::clone(&events),
        changed: volumes_sender.clone(),
        metrics: metrics.clone(),
        cancel: shutdown.token(),
    });
    let plugins = MeasuredVolumes::new(
        parts.volumes,
        volume_usages.clone(),
        metrics.volumes.clone(),
        timelines.clone(),
    );
    let volume_deps = VolumeManagerDeps {
        plugins: Arc::new(plugins),
        clock: Arc::clone(&parts.clock),
        events: Arc::clone(&events),
        claims: Arc::clone(&objects) as Arc<dyn NodeExpander>,
        usages: volume_usages.clone(),
        settled: volumes.mounted.clone(),
        changed: volumes_sender,
        in_use: in_use_sender,
        node: node_seen.clone(),
        sources_ready: sources_ready.clone(),
        drivers: drivers_came(&parts.csi_drivers),
        metrics: metrics.clone(),
    };
    start_actor(VolumeManager::new(volume_deps, volume_mailbox));

    let (backoff_file, backoff) = parts.backoff.unzip();

    let runtime_name = RuntimeName::default();
    let settings = WorkerSettings {
        sync_frequency: parts.sync_frequency,
        restart_policy: parts.runtime_options.restart_backoff,
        host_ips: parts.host_ips,
        stop_signals: parts.node.stop_signals,
        runtime_name: runtime_name.clone(),
    };
    let pod_logs_dir = parts.node.paths.pod_logs_dir.clone();
    let images = Arc::clone(&parts.images);
    let runtime = PodRuntime::new(PodRuntimeDeps {
        runtime: Arc::clone(&parts.runtime),
        checks: Arc::clone(&parts.checks),
        images: parts.images,
        credentials: parts.image_credentials,
        files: parts.files,
        cgroups: parts.cgroups,
        events: Arc::clone(&events),
        clock: Arc::clone(&parts.clock),
        node: parts.node,
        metrics: metrics.clone(),
        options: parts.runtime_options,
    });

    let pleg_health = PlegHealth::default();
    let pleg_deps = PlegDeps {
        runtime: Arc::clone(&parts.runtime),
        clock: Arc::clone(&parts.clock),
        metrics: metrics.clone(),
        cache: cache.clone(),
        changes: change_sender.clone(),
        cancel: shutdown.token(),
        health: pleg_health.clone(),
        runtime_name,
        hung: hung.clone(),
    };
    start_actor(Pleg::new(pleg_deps, pleg_mailbox));

    let logs = LogReader::default();
    if let Some(rotation) = parts.log_rotation {
        let deps = LogRotationDeps {
            runtime: Arc::clone(&parts.runtime),
            root: pod_logs_dir,
            reader: logs.clone(),
            clock: Arc::clone(&parts.clock),
            rotation,
            ends: shutdown.token(),
        };
        spawn_log_rotation(deps, cache.clone());
    }

    let (probes, probe_slots) = spawn_probes(&ProbeWiring {
        runtime: Arc::clone(&parts.runtime),
        checks: Arc::clone(&parts.checks),
        events: Arc::clone(&events),
        clock: Arc::clone(&parts.clock),
        metrics: metrics.clone(),
        file: parts.probe_result_file,
        restored: parts.probe_results,
    });

    let worker = WorkerDeps {
        runtime: runtime.clone(),
        volumes: volumes.clone(),
        objects,
        pleg: pleg.clone(),
        hung: hung.clone(),
        probes: probes.clone(),
        pacer: StartPacer::new(parts.start_concurrency, hung.load(), metrics.clone()),
        board: board.clone(),
        timelines: timelines.clone(),
        events: Arc::clone(&events),
        clock: Arc::clone(&parts.clock),
        metrics: metrics.clone(),
        runtime_state: state.clone(),
        backoff_file: backoff_file.clone(),
        registry: workers_sender,
        settings,
    };
    let registry = PodWorkersDeps {
        worker,
        backoff: backoff.unwrap_or_default(),
    };
    start_actor(PodWorkers::new(registry, update_slots, workers_mailbox));

    let sync_loop_health = SyncLoopHealth::default();
    let sync_loop = SyncLoopDeps {
        sources: parts.sources.configured(),
        workers: workers.clone(),
        cache,
        cri: Arc::clone(&parts.runtime),
        pleg_health: pleg_health.clone(),
        volumes,
        orphan_grace: parts.orphan_grace,
        runtime,
        backoff_file,
        runtime_state: state_sender,
        sources_ready: ready_sender,
        admission: AdmissionDeps {
            node: node_seen.clone(),
            initial_node: parts.initial_node,
            abilities: parts.abilities,
            shutdown: machine_state.clone(),
            checkpoint: parts.admitted,
            events: Arc::clone(&events),
        },
        timelines: timelines.clone(),
        clock: Arc::clone(&parts.clock),
        metrics: metrics.clone(),
        health: sync_loop_health.clone(),
    };
    let sync_loop = SyncLoop::new(
        sync_loop,
        config_mailbox,
        change_slots,
        object_slots,
        volume_slots,
        probe_slots,
    );
    start_actor(sync_loop);

    let pod_cidr = PodCidrDeps {
        configured: parts.pod_cidr,
        node: node_seen.clone(),
        runtime_state: state.clone(),
        runtime: Arc::clone(&parts.runtime),
    };
    spawn_io("pod-cidr", keep_pod_cidr(pod_cidr));

    let node_name = parts.sources.node_name.clone();
    let (sources, rejected) = spawn_sources(SourceWiring {
        sources: parts.sources,
        restored: parts.restored,
        clock: Arc::clone(&parts.clock),
        events: Arc::clone(&events),
        timelines: timelines.clone(),
        metrics: metrics.clone(),
        sync_loop: config_sender.clone(),
    });
    if let Some(machine) = parts.machine_shutdown {
        start_actor(NodeShutdown::new(NodeShutdownConfig {
            periods: machine.periods,
            bus: machine.bus,
            logind_conf_dir: machine.logind_conf_dir,
            record: machine.record,
            workers: workers.clone(),
            board: board.clone(),
            recorder: Arc::clone(&events),
            state: shutdown_sender,
        }));
    }
    let (standing_sender, csi_node) = watch::channel(CsiNodeStanding::default());
    match parts.plugins_registry {
        Some(registry) => spawn_csi(CsiWiring {
            registry,
            drivers: parts.csi_drivers,
            cluster: parts.cluster.as_ref(),
            node_name: node_name.clone(),
            node_seen: node_seen.clone(),
            standing: standing_sender,
            metrics: metrics.clone(),
        }),
        // no driver can register
        None => drop(standing_sender.send_replace(CsiNodeStanding::Initialized)),
    }
    let cluster = parts.cluster.map(|cluster| {
        spawn_cluster(ClusterWiring {
            cluster,
            node_name: node_name.clone(),
            runtime: Arc::clone(&parts.runtime),
            images,
            clock: Arc::clone(&parts.clock),
            metrics: metrics.clone(),
            events,
            board: board.clone(),
            timelines: timelines.clone(),
            storage: sources.clone(),
            runtime_state: state,
            machine_state,
            sources_ready,
            volumes_in_use,
            csi_node,
            node_sender,
            node_seen,
        })
    });
    let node = AgentNode {
        name: node_name,
        cluster,
        clock: Arc::clone(&parts.clock),
    };

    Agent {
        board,
        timelines,
        sources,
        pleg,
        sync_loop_health,
        pleg_health,
        runtime: parts.runtime,
        hung_calls: hung,
        volume_usages,
        rejected,
        logs,
        spans: parts.spans,
        node,
        shutdown,
        mailboxes: Mailboxes {
            config: config_sender,
            changes: change_sender,
            workers,
            probes,
        },
        metrics,
    }
}
