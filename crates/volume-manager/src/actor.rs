//! The VolumeManager actor.
//!
//! * owns: desired and actual volumes ([`VolumeReconciler`]) and the waiting callers; writes the volumes of
//!   pods that are completely set up ([`MountedVolumeCache`])
//! * receives: `SetUpVolumes`, `TearDownVolumes`, `NodeUpdate`, `SourcesReady`, completions of its own
//!   steps, one timer
//! * sends: `VolumesChanged` to the SyncLoop (coalesced per pod), `VolumesInUse` to NodeStatus
//! * invariant: at most one step in progress per volume; volumes are torn down only on request; every
//!   caller gets a reply
//! * bound and overflow: one request per pod worker job; the reconciler bounds the steps in progress of each
//!   pod, the I/O queues of the plugins the threads
//! * restart: users of devices are reconstructed once in the background; volumes are set up again on
//!   request, which changes nothing, and discovered on the disk at tear-down

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, SpawnHandle, StreamHandler};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::WatchStream;
use windlass_actors::{
    MountedVolumeCache, NodeExpander, NodeUpdate, SetUpVolumes, SourcesReady, TearDownVolumes,
    VolumeManagerMessage, VolumesChanged, VolumesInUse,
};
use windlass_mailboxes::{
    CompletionSender, Completions, Delivery, Mailbox, SlotSender, completions, spawn_io,
};
use windlass_metrics::Metrics;
use windlass_types::corev1::Node;
use windlass_types::view::EventType;
use windlass_types::{
    Clock, ClockReading, DeviceName, EventRecorder, PodExt, PodUid, ReadyVolumes, Reason,
    SharedPod, VolumesNotReady,
};
use windlass_volume_plan::volume_reconciler::{
    Input, RequestId, Step, StepResult, VolumeReconciler,
};
use windlass_volume_plan::volume_source::PodVolumes;
use windlass_volumes::VolumePlugins;

use crate::instrumented::count_reconstruction;
use crate::io;
use crate::usage::VolumeUsages;

/// Dependencies of the VolumeManager.
#[derive(Clone, Debug)]
pub struct VolumeManagerDeps {
    /// Sets up and tears down volumes.
    pub plugins: Arc<dyn VolumePlugins>,
    /// Wall clock.
    pub clock: Arc<dyn Clock>,
    /// Records events of pods.
    pub events: Arc<dyn EventRecorder>,
    /// Reads and updates PVCs for expansion.
    pub expander: Arc<dyn NodeExpander>,
    /// Tracks the usage of volumes.
    pub usages: VolumeUsages,
    /// Volumes of pods that are completely set up.
    pub mounted: MountedVolumeCache,
    /// Sender to the SyncLoop.
    pub changed: SlotSender<PodUid, VolumesChanged>,
    /// Sender to NodeStatus; `None` until the reconstruction.
    pub in_use: watch::Sender<Option<VolumesInUse>>,
    /// The Node object, whose status has the attached volumes.
    pub node: watch::Receiver<NodeUpdate>,
    /// No device is unstaged until all sources are ready.
    pub sources_ready: watch::Receiver<SourcesReady>,
    /// Changes when a CSI driver registers.
    pub drivers: watch::Receiver<DriverRegistrations>,
    /// Counts reconstructions and rejected pods.
    pub metrics: Metrics,
}

/// Number of CSI driver registrations so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverRegistrations(pub u64);

/// The actor; see the module documentation.
#[derive(Debug)]
pub struct VolumeManager {
    deps: VolumeManagerDeps,
    reconciler: VolumeReconciler,
    began: Instant,
    last_request: u64,
    set_ups: BTreeMap<RequestId, SetUp>,
    tear_downs: BTreeMap<RequestId, TearDownVolumes>,
    timer: Option<SpawnHandle>,
    completions: CompletionSender<StepResult>,
    streams: Option<(Mailbox<VolumeManagerMessage>, Completions<StepResult>)>,
}

/// A caller that waits for its volumes.
#[derive(Debug)]
struct SetUp {
    pod: SharedPod,
    volumes: Arc<PodVolumes>,
    reply: oneshot::Sender<Result<ReadyVolumes, VolumesNotReady>>,
}

impl VolumeManager {
    /// Creates the actor; it reads `mailbox` after its start.
    pub fn new(deps: VolumeManagerDeps, mailbox: Mailbox<VolumeManagerMessage>) -> Self {
        let (sender, stream) = completions();
        Self {
            deps,
            reconciler: VolumeReconciler::new(),
            began: Instant::now(),
            last_request: 0,
            set_ups: BTreeMap::new(),
            tear_downs: BTreeMap::new(),
            timer: None,
            completions: sender,
            streams: Some((mailbox, stream)),
        }
    }

    fn handle(&mut self, input: Input, ctx: &mut Context<Self>) {
        let now = ClockReading {
            wall: self.deps.clock.now(),
            monotonic: self.began.elapsed(),
        };
        for step in self.reconciler.handle(input, now) {
            tracing::debug!(%step, "volume step");
            self.execute(step);
        }
        self.arm_timer(ctx);
    }

    fn execute(&mut self, step: Step) {
        match step {
            Step::ReplySetUp(request, result) => {
                if let Some(set_up) = self.set_ups.remove(&request) {
                    if let Ok(ready) = &result {
                        self.deps.mounted.put(&set_up.pod, &set_up.volumes, ready);
                    }
                    let _ = set_up.reply.send(result);
                }
            }
            Step::ReplyTearDown(request, result) => {
                if let Some(tear_down) = self.tear_downs.remove(&request) {
                    if result.is_ok() {
                        self.deps.usages.remove_pod(&tear_down.uid);
                    }
                    let _ = tear_down.reply.send(result);
                }
            }
            Step::RequeuePod(uid) => self.deps.changed.put(uid, VolumesChanged::default()),
            Step::Record(pod, event_type, reason, message) => {
                let events = &self.deps.events;
                events.record(&pod, None, event_type, reason, &message);
            }
            Step::Reject(pod, message) => {
                let (events, reason) = (&self.deps.events, Reason::VolumeAttachmentLimitExceeded);
                events.record(&pod, None, EventType::Warning, reason, &message);
                let rejections = &self.deps.metrics.sync_loop.admission_rejections;
                rejections.with_label_values(&[reason.as_str()]).inc();
                let changed = VolumesChanged {
                    no_room: Some(message),
                };
                self.deps.changed.put(pod.uid(), changed);
            }
            Step::RecordPvc(pvc, event_type, reason, message) => {
                let events = &self.deps.events;
                events.record_object(pvc, event_type, reason, &message);
            }
            Step::ReportInUse(devices) => {
                self.deps.in_use.send_replace(Some(VolumesInUse(devices)));
            }
            step => {
                let (plugins, completions) =
                    (Arc::clone(&self.deps.plugins), self.completions.clone());
                let expander = Arc::clone(&self.deps.expander);
                let now = self.deps.clock.now();
                spawn_io("volume-step", async move {
                    if let Some(done) = io::execute(&*plugins, &*expander, step, now).await {
                        completions.send(done);
                    }
                });
            }
        }
    }

    /// Sets one timer for the next deadline of the reconciler, if any.
    fn arm_timer(&mut self, ctx: &mut Context<Self>) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        if let Some(delay) = self.reconciler.next_wake_up(self.began.elapsed()) {
            self.timer = Some(ctx.run_later(delay, |this, ctx| {
                this.timer = None;
                this.handle(Input::TimerFired, ctx);
            }));
        }
    }

    fn next_request(&mut self) -> RequestId {
        self.last_request += 1;
        RequestId(self.last_request)
    }

    fn set_up(&mut self, request: SetUpVolumes, ctx: &mut Context<Self>) {
        let id = self.next_request();
        self.deps.mounted.forget(&request.pod.uid());
        for volume in &*request.volumes {
            self.deps.usages.track(&request.pod, volume, false);
        }
        let set_up = SetUp {
            pod: SharedPod::clone(&request.pod),
            volumes: Arc::clone(&request.volumes),
            reply: request.reply,
        };
        self.set_ups.insert(id, set_up);
        let input = Input::SetUp {
            request: id,
            pod: request.pod,
            volumes: request.volumes,
            timeout: request.timeout,
        };
        self.handle(input, ctx);
    }

    fn tear_down(&mut self, request: TearDownVolumes, ctx: &mut Context<Self>) {
        let id = self.next_request();
        let (uid, by) = (request.uid.clone(), request.by);
        self.tear_downs.insert(id, request);
        self.deps.mounted.forget(&uid);
        self.handle(
            Input::TearDown {
                request: id,
                uid,
                by,
            },
            ctx,
        );
    }
}

impl Actor for VolumeManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let Some((mailbox, completions)) = self.streams.take() else {
            return;
        };
        ctx.add_stream(mailbox);
        ctx.add_stream(completions);
        ctx.add_stream(WatchStream::new(self.deps.node.clone()));
        ctx.add_stream(WatchStream::new(self.deps.sources_ready.clone()));
        ctx.add_stream(WatchStream::from_changes(self.deps.drivers.clone()));
        self.handle(Input::TimerFired, ctx);
    }
}

impl StreamHandler<Delivery<VolumeManagerMessage>> for VolumeManager {
    fn handle(&mut self, delivery: Delivery<VolumeManagerMessage>, ctx: &mut Context<Self>) {
        delivery.open(|message| match message {
            VolumeManagerMessage::SetUp(request) => self.set_up(request, ctx),
            VolumeManagerMessage::TearDown(request) => self.tear_down(request, ctx),
        });
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<Delivery<StepResult>> for VolumeManager {
    fn handle(&mut self, delivery: Delivery<StepResult>, ctx: &mut Context<Self>) {
        delivery.open(|result| {
            if let StepResult::Reconstructed(reconstruction) = &result {
                count_reconstruction(&self.deps.metrics.volumes, reconstruction);
            }
            self.handle(Input::StepFinished(result), ctx);
        });
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<NodeUpdate> for VolumeManager {
    fn handle(&mut self, update: NodeUpdate, ctx: &mut Context<Self>) {
        if let Some(node) = &update.0 {
            let (attached, in_use) = volumes_of_node(node);
            self.handle(Input::Node { attached, in_use }, ctx);
        }
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<SourcesReady> for VolumeManager {
    fn handle(&mut self, ready: SourcesReady, ctx: &mut Context<Self>) {
        if ready.0 {
            self.handle(Input::SourcesReady, ctx);
        }
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<DriverRegistrations> for VolumeManager {
    fn handle(&mut self, _: DriverRegistrations, ctx: &mut Context<Self>) {
        self.handle(Input::DriverRegistered, ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

/// `volumesAttached` and `volumesInUse` of a node's status.
fn volumes_of_node(node: &Node) -> (BTreeSet<DeviceName>, BTreeSet<DeviceName>) {
    let status = node.status.as_ref();
    let attached = status.and_then(|status| status.volumes_attached.as_ref());
    let attached = attached.into_iter().flatten();
    let in_use = status.and_then(|status| status.volumes_in_use.as_ref());
    let in_use = in_use.into_iter().flatten();
    (
        attached
            .map(|volume| DeviceName(volume.name.clone()))
            .collect(),
        in_use.map(|name| DeviceName(name.clone())).collect(),
    )
}
