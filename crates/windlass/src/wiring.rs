//! Who is connected to whom: the only file that knows every actor.
//!
//! Mailboxes are made first, then each actor is given the ends it needs and started. Nothing
//! here decides anything; `docs/actors.md` draws the same graph.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Uri};
use tokio::sync::watch;
use windlass_actors::{
    ActorKind, ConfigChanged, MailboxSender, PlegHandle, PlegMessage, PodChanged, PodWorkersHandle,
    PodWorkersMessage, RejectedManifest, RuntimeState, Shutdown, SlotSender, SourceSnapshot,
    StatusCache, mailbox, slots, start_actor,
};
use windlass_core::merge::Mode;
use windlass_core::node_facts::NodeFacts;
use windlass_cri::{ImageService, RuntimeService};
use windlass_metrics::Metrics;
use windlass_pleg::{Pleg, PlegDeps, PlegHealth};
use windlass_pod_workers::worker::WorkerSettings;
use windlass_pod_workers::{PodWorkers, PodWorkersDeps, StartPacer, WorkerDeps};
use windlass_runtime::files::PodFiles;
use windlass_runtime::{PodRuntime, PodRuntimeDeps, RuntimeOptions};
use windlass_sources::{
    FileSource, FileSourceConfig, HttpSource, HttpSourceConfig, PodStorage, PodStorageDeps,
};
use windlass_status::{EventLog, EventRecorder, PodBoard};
use windlass_store::{BackoffFile, BackoffTables};
use windlass_sync_loop::{SyncLoop, SyncLoopDeps, SyncLoopHealth};
use windlass_types::{Clock, PodSource, PodUid};

/// Everything the actors are made of.
#[derive(Debug)]
pub struct AgentParts {
    /// The container runtime.
    pub runtime: Arc<dyn RuntimeService>,
    /// Its images.
    pub images: Arc<dyn ImageService>,
    /// Files of pods.
    pub files: Arc<dyn PodFiles>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: Metrics,
    /// Facts about the node.
    pub node: Arc<NodeFacts>,
    /// The node's addresses.
    pub host_ips: Vec<IpAddr>,
    /// Settings of the executor.
    pub runtime_options: RuntimeOptions,
    /// The pod sources.
    pub sources: SourceParts,
    /// Back-off that survives the agent; `None` in simulations without a disk.
    pub backoff: Option<(BackoffFile, BackoffTables)>,
    /// `syncFrequency`.
    pub sync_frequency: Duration,
    /// Pods that start at a time.
    pub start_concurrency: usize,
}

/// Which pod sources there are.
#[derive(Clone, Debug, Default)]
pub struct SourceParts {
    /// Name of the node, part of a static pod's name.
    pub node_name: String,
    /// `staticPodPath`.
    pub file: Option<PathBuf>,
    /// `fileCheckFrequency`.
    pub file_period: Duration,
    /// `staticPodURL`.
    pub url: Option<Uri>,
    /// `staticPodURLHeader`.
    pub url_headers: HeaderMap,
    /// `httpCheckFrequency`.
    pub url_period: Duration,
    /// Sources that are fed through [`Agent::sources`] from outside, as simulations do.
    pub fed: BTreeSet<PodSource>,
}

impl SourceParts {
    fn configured(&self) -> BTreeSet<PodSource> {
        let file = self.file.as_ref().map(|_| PodSource::File);
        let http = self.url.as_ref().map(|_| PodSource::Http);
        file.into_iter()
            .chain(http)
            .chain(self.fed.iter().copied())
            .collect()
    }
}

/// Handles to a running agent.
#[derive(Clone, Debug)]
pub struct Agent {
    /// What every pod came to.
    pub board: PodBoard,
    /// The way into PodStorage.
    pub sources: MailboxSender<SourceSnapshot>,
    /// The PLEG and its cache.
    pub pleg: PlegHandle,
    /// What the sources refuse at present.
    pub rejected: watch::Receiver<Vec<RejectedManifest>>,
    /// When the loop last turned.
    pub sync_loop_health: SyncLoopHealth,
    /// When the runtime was last listed.
    pub pleg_health: PlegHealth,
    /// Ends everything.
    pub shutdown: Shutdown,
    lanes: Lanes,
    metrics: Metrics,
}

/// The lanes whose depth is a metric.
#[derive(Clone, Debug)]
struct Lanes {
    config: MailboxSender<ConfigChanged>,
    changes: SlotSender<PodUid, PodChanged>,
    workers: PodWorkersHandle,
}

impl Agent {
    /// Brings the gauges that are computed only when someone looks up to date: depth and age of
    /// every mailbox, and what the sources refuse.
    pub fn publish_metrics(&self) {
        let rejected = self.rejected.borrow();
        let of_url = rejected
            .iter()
            .filter(|r| r.origin.starts_with("http"))
            .count();
        for (source, count) in [("http", of_url), ("file", rejected.len() - of_url)] {
            self.metrics
                .source_rejected
                .with_label_values(&[source])
                .set(count as f64);
        }
        drop(rejected);
        self.sources.publish_metrics();
        self.pleg.mailbox.publish_metrics();
        self.lanes.config.publish_metrics();
        self.lanes.changes.publish_metrics(&self.metrics);
        self.lanes.workers.mailbox.publish_metrics();
        self.lanes.workers.updates.publish_metrics(&self.metrics);
    }
}

/// Starts every actor. Call it on the thread that is to run them, inside an actix system or a
/// tokio `LocalSet`.
pub fn spawn(parts: AgentParts) -> Agent {
    let metrics = parts.metrics;
    let shutdown = Shutdown::new();
    let board = PodBoard::new();
    let cache = StatusCache::new();
    let events: Arc<dyn EventRecorder> =
        Arc::new(EventLog::new(board.clone(), Arc::clone(&parts.clock)));

    let (storage_sender, storage_mailbox) = mailbox(ActorKind::PodStorage, &metrics);
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

    let (backoff_file, backoff) = parts.backoff.unzip();
    let settings = WorkerSettings {
        sync_frequency: parts.sync_frequency,
        restart_policy: parts.runtime_options.restart_backoff,
        host_ips: parts.host_ips,
        runtime_name: "containerd".into(),
    };
    let runtime = PodRuntime::new(PodRuntimeDeps {
        runtime: Arc::clone(&parts.runtime),
        images: parts.images,
        files: parts.files,
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
    };
    start_actor(Pleg::new(pleg_deps, pleg_mailbox));

    let worker = WorkerDeps {
        runtime: runtime.clone(),
        pleg: pleg.clone(),
        pacer: StartPacer::new(parts.start_concurrency, metrics.clone()),
        board: board.clone(),
        events: Arc::clone(&events),
        clock: Arc::clone(&parts.clock),
        metrics: metrics.clone(),
        runtime_state: state,
        backoff_file,
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
        cri: parts.runtime,
        runtime,
        runtime_state: state_sender,
        clock: Arc::clone(&parts.clock),
        metrics: metrics.clone(),
        health: sync_loop_health.clone(),
    };
    start_actor(SyncLoop::new(sync_loop, config_mailbox, change_slots));

    let (rejected_sender, rejected) = watch::channel(Vec::new());
    let storage = PodStorageDeps {
        mode: Mode::Incremental,
        sources: parts.sources.configured(),
        clock: Arc::clone(&parts.clock),
        events,
        sync_loop: config_sender.clone(),
        rejected: rejected_sender,
    };
    start_actor(PodStorage::new(storage, storage_mailbox));
    spawn_sources(parts.sources, &storage_sender, &parts.clock);

    Agent {
        board,
        sources: storage_sender,
        pleg,
        sync_loop_health,
        pleg_health,
        rejected,
        shutdown,
        lanes: Lanes {
            config: config_sender,
            changes: change_sender,
            workers,
        },
        metrics,
    }
}

fn spawn_sources(
    parts: SourceParts,
    storage: &MailboxSender<SourceSnapshot>,
    clock: &Arc<dyn Clock>,
) {
    if let Some(path) = parts.file {
        let config = FileSourceConfig {
            path,
            node_name: parts.node_name.clone(),
            period: parts.file_period,
            clock: Arc::clone(clock),
            storage: storage.clone(),
        };
        start_actor(FileSource::new(config));
    }
    if let Some(url) = parts.url {
        let config = HttpSourceConfig {
            url,
            headers: parts.url_headers,
            node_name: parts.node_name,
            period: parts.url_period,
            storage: storage.clone(),
        };
        start_actor(HttpSource::new(config));
    }
}
