//! Handles that several actors share, and the channels between them.

use std::sync::Arc;

use tokio::sync::watch;
use windlass_actors::{
    AllocationsHandle, ConfigChanged, GetPodWorkers, MountedVolumeCache, NodePressure, NodeUpdate,
    ObjectsChanged, OomKillCache, PlegHandle, PlegMessage, PodChanged, PodWorkersHandle,
    ResourcesAllocated, RuntimeName, RuntimeState, ShutdownState, SourcesReady, StatusCache,
    TerminatePod, UpdatePod, VolumeManagerMessage, VolumesChanged, VolumesHandle, VolumesInUse,
};
use windlass_container_manager::CONTAINER_MANAGER;
use windlass_cri::{HungCalls, ImageService, RuntimeService, TrackedImages, TrackedRuntime};
use windlass_hung_operations::HungOperations;
use windlass_mailboxes::{
    Mailbox, MailboxSender, Shutdown, SlotReceiver, SlotSender, mailbox, slots,
};
use windlass_metrics::Metrics;
use windlass_status::{EventRecorder, PodStatusStore};
use windlass_timelines::Timelines;
use windlass_types::view::EventType;
use windlass_types::{Clock, PodUid, Reason};

use super::cluster::event_recorder;
use super::container_manager::ContainerManagerEnds;
use super::parts::AgentParts;

/// Handles that most actors hold.
pub(super) struct Shared {
    pub(super) node_name: String,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Metrics,
    pub(super) events: Arc<dyn EventRecorder>,
    pub(super) status_store: PodStatusStore,
    pub(super) timelines: Timelines,
    pub(super) hung: HungCalls,
    pub(super) hung_operations: HungOperations,
    pub(super) runtime: Arc<dyn RuntimeService>,
    pub(super) images: Arc<dyn ImageService>,
    pub(super) runtime_name: RuntimeName,
    pub(super) shutdown: Shutdown,
}

impl Shared {
    /// Creates the handles and records the warnings about the node as events.
    pub(super) fn new(parts: &AgentParts) -> Self {
        let hung_operations = HungOperations::new(Arc::clone(&parts.clock));
        let hung = HungCalls::listed_in(hung_operations.clone(), Arc::clone(&parts.clock));
        let timelines = Timelines::new(Arc::clone(&parts.clock), parts.spans.clone());
        let (runtime, images) = (&parts.runtime.runtime, &parts.runtime.images);
        let runtime = TrackedRuntime::new(Arc::clone(runtime), hung.clone(), timelines.clone());
        let images = TrackedImages::new(Arc::clone(images), hung.clone(), timelines.clone());
        let status_store = PodStatusStore::new();
        let events = event_recorder(parts, &status_store);
        let warnings = [
            (
                Reason::CheckLimitsForResolvConf,
                &parts.node.resolv_conf_warning,
            ),
            (
                Reason::PossibleMemoryBackedVolumesOnDisk,
                &parts.node.swap_warning,
            ),
        ];
        for (reason, message) in warnings {
            if let Some(message) = message {
                events.record_node(EventType::Warning, reason, message);
            }
        }
        Self {
            node_name: parts.sources.node_name.clone(),
            clock: Arc::clone(&parts.clock),
            metrics: parts.metrics.clone(),
            events,
            status_store,
            timelines,
            hung,
            hung_operations,
            runtime: Arc::new(runtime),
            images: Arc::new(images),
            runtime_name: RuntimeName::default(),
            shutdown: Shutdown::new(),
        }
    }
}

/// Ends of channels that any number of actors may hold.
#[derive(Clone)]
pub(super) struct Links {
    pub(super) config: MailboxSender<ConfigChanged>,
    pub(super) changes: SlotSender<PodUid, PodChanged>,
    pub(super) objects_changed: SlotSender<PodUid, ObjectsChanged>,
    pub(super) volumes_changed: SlotSender<PodUid, VolumesChanged>,
    pub(super) terminations: SlotSender<PodUid, TerminatePod>,
    pub(super) allocations: AllocationsHandle,
    pub(super) pleg: PlegHandle,
    pub(super) oom_kills: OomKillCache,
    pub(super) workers: PodWorkersHandle,
    pub(super) volumes: VolumesHandle,
    pub(super) node: watch::Receiver<NodeUpdate>,
    pub(super) node_shutdown: watch::Receiver<ShutdownState>,
    pub(super) pressure: watch::Receiver<NodePressure>,
    pub(super) runtime_state: watch::Receiver<RuntimeState>,
    pub(super) sources_ready: watch::Receiver<SourcesReady>,
    pub(super) volumes_in_use: watch::Receiver<Option<VolumesInUse>>,
}

/// The other ends, each for one actor.
pub(super) struct Ends {
    pub(super) pods: PodEnds,
    pub(super) container_manager: ContainerManagerEnds,
    pub(super) pleg: Mailbox<PlegMessage>,
    pub(super) volumes: Mailbox<VolumeManagerMessage>,
    pub(super) node: watch::Sender<NodeUpdate>,
    pub(super) node_shutdown: watch::Sender<ShutdownState>,
    pub(super) pressure: watch::Sender<NodePressure>,
    pub(super) volumes_in_use: watch::Sender<Option<VolumesInUse>>,
}

/// The ends of the pod workers and the sync loop.
pub(super) struct PodEnds {
    pub(super) sync_loop: SyncLoopEnds,
    pub(super) queries: Mailbox<GetPodWorkers>,
    pub(super) updates: SlotReceiver<PodUid, UpdatePod>,
}

/// The ends that the sync loop receives from or sends to.
pub(super) struct SyncLoopEnds {
    pub(super) config: Mailbox<ConfigChanged>,
    pub(super) pleg: SlotReceiver<PodUid, PodChanged>,
    pub(super) objects: SlotReceiver<PodUid, ObjectsChanged>,
    pub(super) volumes: SlotReceiver<PodUid, VolumesChanged>,
    pub(super) terminations: SlotReceiver<PodUid, TerminatePod>,
    pub(super) allocations: SlotReceiver<PodUid, ResourcesAllocated>,
    pub(super) runtime_state: watch::Sender<RuntimeState>,
    pub(super) sources_ready: watch::Sender<SourcesReady>,
}

/// Creates all mailboxes and watch channels.
pub(super) fn channels(metrics: &Metrics) -> (Links, Ends) {
    let (config, config_end) = mailbox(windlass_sync_loop::SYNC_LOOP, &metrics.mailboxes);
    let (changes, changes_end) = slots(windlass_sync_loop::SYNC_LOOP, &metrics.mailboxes);
    let (objects_changed, objects_end) = slots(windlass_sync_loop::SYNC_LOOP, &metrics.mailboxes);
    let (volumes_changed, volumes_changed_end) =
        slots(windlass_sync_loop::SYNC_LOOP, &metrics.mailboxes);
    let (terminations, terminations_end) = slots(windlass_sync_loop::SYNC_LOOP, &metrics.mailboxes);
    let (pleg, pleg_end) = mailbox(windlass_pleg::PLEG, &metrics.mailboxes);
    let (workers, workers_end) = mailbox(windlass_pod_workers::POD_WORKERS, &metrics.mailboxes);
    let (updates, updates_end) = slots(windlass_pod_workers::POD_WORKERS, &metrics.mailboxes);
    let (volumes, volumes_end) =
        mailbox(windlass_volume_manager::VOLUME_MANAGER, &metrics.mailboxes);
    let (node_end, node) = watch::channel(NodeUpdate::default());
    let (requests, requests_end) = slots(CONTAINER_MANAGER, &metrics.mailboxes);
    let (answers, answers_end) = slots(windlass_sync_loop::SYNC_LOOP, &metrics.mailboxes);
    let (scope_end, scope) = watch::channel(Arc::default());
    let (node_shutdown_end, node_shutdown) = watch::channel(ShutdownState::default());
    let (pressure_end, pressure) = watch::channel(NodePressure::default());
    let (runtime_state_end, runtime_state) = watch::channel(RuntimeState::unknown());
    let (sources_ready_end, sources_ready) = watch::channel(SourcesReady::default());
    let (volumes_in_use_end, volumes_in_use) = watch::channel(None);
    let links = Links {
        config,
        changes,
        objects_changed,
        volumes_changed,
        terminations,
        allocations: AllocationsHandle { requests, scope },
        pleg: PlegHandle {
            mailbox: pleg,
            cache: StatusCache::new(),
        },
        oom_kills: OomKillCache::default(),
        workers: PodWorkersHandle {
            updates,
            mailbox: workers,
        },
        volumes: VolumesHandle {
            mailbox: volumes,
            mounted: MountedVolumeCache::default(),
        },
        node,
        node_shutdown,
        pressure,
        runtime_state,
        sources_ready,
        volumes_in_use,
    };
    let ends = Ends {
        pods: PodEnds {
            sync_loop: SyncLoopEnds {
                config: config_end,
                pleg: changes_end,
                objects: objects_end,
                volumes: volumes_changed_end,
                terminations: terminations_end,
                allocations: answers_end,
                runtime_state: runtime_state_end,
                sources_ready: sources_ready_end,
            },
            queries: workers_end,
            updates: updates_end,
        },
        container_manager: ContainerManagerEnds {
            requests: requests_end,
            answers,
            scope: scope_end,
        },
        pleg: pleg_end,
        volumes: volumes_end,
        node: node_end,
        node_shutdown: node_shutdown_end,
        pressure: pressure_end,
        volumes_in_use: volumes_in_use_end,
    };
    (links, ends)
}
