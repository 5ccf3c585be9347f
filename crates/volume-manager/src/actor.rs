//! The VolumeManager actor.
//!
//! * owns: what volumes pods want and have ([`VolumePlan`]), who waits for an answer; writes what pods
//!   have that need not ask again ([`MountedVolumeCache`])
//! * receives: `SetUpVolumes`, `TearDownVolumes`, `NodeUpdate`, `SourcesReady`, answers of its own steps,
//!   one timer
//! * sends: `VolumesChanged` to the SyncLoop (coalesced per pod), `VolumesInUse` to NodeStatus
//! * invariant: a volume has one step under way; nothing is released that nobody asked to; every
//!   asker is answered
//! * bound and overflow: a request per pod's job; steps under way are bounded for each pod by the
//!   plan, threads by the plugins' lanes
//! * restart: who uses devices is looked up once, in the background; volumes are set up again by
//!   whoever needs them, which changes nothing, and found on the disk when they are to go

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, SpawnHandle, StreamHandler};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::WatchStream;
use windlass_actors::{NodeExpander, NodeUpdate, SetUpVolumes, MountedVolumeCache, SourcesReady, TearDownVolumes, VolumeManagerMessage, VolumesChanged, VolumesInUse};
use windlass_mailboxes::{CompletionSender, Completions, Delivery, Mailbox, SlotSender, completions, spawn_io};
use windlass_volume_plan::volume_plan::{AskId, Done, Input, Moment, Step, VolumePlan};
use windlass_volume_plan::volume_source::PodVolumes;
use windlass_metrics::Metrics;
use windlass_types::corev1::Node;
use windlass_types::view::EventType;
use windlass_types::{
    Clock, DeviceName, EventRecorder, PodExt, PodUid, ReadyVolumes, Reason, SharedPod,
    VolumesNotReady,
};
use windlass_volumes::VolumePlugins;

use crate::io;
use crate::measured::count_survey;
use crate::usage::VolumeUsages;

/// What the VolumeManager works with.
#[derive(Clone, Debug)]
pub struct VolumeManagerDeps {
    /// Sets up and releases single volumes.
    pub plugins: Arc<dyn VolumePlugins>,
    /// Dates what is written.
    pub clock: Arc<dyn Clock>,
    /// Records events of pods.
    pub events: Arc<dyn EventRecorder>,
    /// Says which claims are to grow, and hears what became of that.
    pub claims: Arc<dyn NodeExpander>,
    /// Hears what pods ask for, and that nothing of it is left.
    pub usages: VolumeUsages,
    /// What pods have and need not ask for.
    pub settled: MountedVolumeCache,
    /// The way to the SyncLoop.
    pub changed: SlotSender<PodUid, VolumesChanged>,
    /// The way to NodeStatus; `None` until something is known.
    pub in_use: watch::Sender<Option<VolumesInUse>>,
    /// The node's object, which says what is attached.
    pub node: watch::Receiver<NodeUpdate>,
    /// Until every source has spoken no device is taken back.
    pub sources_ready: watch::Receiver<SourcesReady>,
    /// Changes when a CSI driver registered.
    pub drivers: watch::Receiver<DriverRegistrations>,
    /// Counts what an earlier life left, and pods that found no room.
    pub metrics: Metrics,
}

/// How many CSI drivers have registered so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverRegistrations(pub u64);

/// See the module page.
#[derive(Debug)]
pub struct VolumeManager {
    deps: VolumeManagerDeps,
    plan: VolumePlan,
    began: Instant,
    asked: u64,
    set_ups: BTreeMap<AskId, SetUp>,
    releases: BTreeMap<AskId, TearDownVolumes>,
    timer: Option<SpawnHandle>,
    completions: CompletionSender<Done>,
    streams: Option<(Mailbox<VolumeManagerMessage>, Completions<Done>)>,
}

/// Somebody who waits for volumes.
#[derive(Debug)]
struct SetUp {
    pod: SharedPod,
    volumes: Arc<PodVolumes>,
    reply: oneshot::Sender<Result<ReadyVolumes, VolumesNotReady>>,
}

impl VolumeManager {
    /// An actor that hears `mailbox` once it is started.
    pub fn new(deps: VolumeManagerDeps, mailbox: Mailbox<VolumeManagerMessage>) -> Self {
        let (sender, stream) = completions();
        Self {
            deps,
            plan: VolumePlan::new(),
            began: Instant::now(),
            asked: 0,
            set_ups: BTreeMap::new(),
            releases: BTreeMap::new(),
            timer: None,
            completions: sender,
            streams: Some((mailbox, stream)),
        }
    }

    fn handle(&mut self, input: Input, ctx: &mut Context<Self>) {
        let at = Moment {
            uptime: self.began.elapsed(),
            now: self.deps.clock.now(),
        };
        for step in self.plan.handle(input, at) {
            tracing::debug!(%step, "volume plan");
            self.carry_out(step);
        }
        self.arm_timer(ctx);
    }

    fn carry_out(&mut self, step: Step) {
        match step {
            // an asker that has gone asks again
            Step::Ready(ask, result) => {
                if let Some(asked) = self.set_ups.remove(&ask) {
                    if let Ok(ready) = &result {
                        self.deps.settled.put(&asked.pod, &asked.volumes, ready);
                    }
                    let _ = asked.reply.send(result);
                }
            }
            Step::Released(ask, result) => {
                if let Some(asked) = self.releases.remove(&ask) {
                    if result.is_ok() {
                        self.deps.usages.all_gone(&asked.uid);
                    }
                    let _ = asked.reply.send(result);
                }
            }
            Step::Wake(uid) => self.deps.changed.put(uid, VolumesChanged::default()),
            Step::Record(pod, event_type, reason, message) => {
                let events = &self.deps.events;
                events.record(&pod, None, event_type, reason, &message);
            }
            Step::Reject(pod, message) => {
                let (events, reason) = (&self.deps.events, Reason::VolumeAttachmentLimitExceeded);
                events.record(&pod, None, EventType::Warning, reason, &message);
                let rejections = &self.deps.metrics.sync_loop.admission_rejections;
                rejections.with_label_values(&[reason.as_str()]).inc();
                let no_room = Some(message);
                let changed = VolumesChanged {
                    no_room,
                    ..VolumesChanged::default()
                };
                self.deps.changed.put(pod.uid(), changed);
            }
            Step::RecordClaim(claim, event_type, reason, message) => {
                let events = &self.deps.events;
                events.record_object(claim, event_type, reason, &message);
            }
            Step::InUse(devices) => {
                self.deps.in_use.send_replace(Some(VolumesInUse(devices)));
            }
            step => {
                let (plugins, completions) = (Arc::clone(&self.deps.plugins), self.completions.clone());
                let claims = Arc::clone(&self.deps.claims);
                let now = self.deps.clock.now();
                spawn_io("volume-step", async move {
                    if let Some(done) = io::work(&*plugins, &*claims, step, now).await {
                        completions.send(done);
                    }
                });
            }
        }
    }

    /// One timer for everything that is waited for, none while nothing is.
    fn arm_timer(&mut self, ctx: &mut Context<Self>) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        if let Some(delay) = self.plan.wakes_in(self.began.elapsed()) {
            self.timer = Some(ctx.run_later(delay, |this, ctx| {
                this.timer = None;
                this.handle(Input::Tick, ctx);
            }));
        }
    }

    fn next_ask(&mut self) -> AskId {
        self.asked += 1;
        AskId(self.asked)
    }

    fn set_up(&mut self, request: SetUpVolumes, ctx: &mut Context<Self>) {
        let ask = self.next_ask();
        self.deps.settled.forget(&request.pod.uid());
        for volume in &*request.volumes {
            self.deps.usages.desired(&request.pod, volume, false);
        }
        let asked = SetUp {
            pod: SharedPod::clone(&request.pod),
            volumes: Arc::clone(&request.volumes),
            reply: request.reply,
        };
        self.set_ups.insert(ask, asked);
        let input = Input::SetUp {
            ask,
            pod: request.pod,
            volumes: request.volumes,
            patience: request.timeout,
        };
        self.handle(input, ctx);
    }

    fn tear_down(&mut self, request: TearDownVolumes, ctx: &mut Context<Self>) {
        let ask = self.next_ask();
        let (uid, by) = (request.uid.clone(), request.by);
        self.releases.insert(ask, request);
        self.deps.settled.forget(&uid);
        self.handle(Input::TearDown { ask, uid, by }, ctx);
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
        self.handle(Input::Tick, ctx);
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

impl StreamHandler<Delivery<Done>> for VolumeManager {
    fn handle(&mut self, delivery: Delivery<Done>, ctx: &mut Context<Self>) {
        delivery.open(|done| {
            if let Done::Surveyed(result) = &done {
                count_survey(&self.deps.metrics.volumes, result);
            }
            self.handle(Input::Done(done), ctx);
        });
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<NodeUpdate> for VolumeManager {
    fn handle(&mut self, seen: NodeUpdate, ctx: &mut Context<Self>) {
        if let Some(node) = &seen.0 {
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
        self.handle(Input::DriverCame, ctx);
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
