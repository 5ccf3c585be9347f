//! Every message that crosses from one actor to another, and the handles that send them.
//!
//! A type marked `Message:` here has a row in `docs/actors.md`; `cargo xtask tidy` compares the
//! two. Commands are imperative, events past tense, queries begin with `Get`. What an actor
//! says to itself (job answers, timers) stays in its own crate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
pub use windlass_types::PhaseOverride;
pub use windlass_volume_plan::volume_plan::Releaser;
use windlass_volume_plan::volume_source::PodVolumes;
use windlass_types::corev1::Node;
pub use windlass_types::view::{RejectedManifest, PodWorkerState};
use windlass_types::{
    DeviceName, ObservedPod, PodExt, PodLifecycleEvent, PodOp, PodSource, PodUid, PodUpdate,
    ProbeKind, ReadyVolumes, Reason, Retry, SharedPod, VolumesNotReady,
};

use crate::mailbox::{MailboxSender, SendError};
use crate::settled::SettledVolumes;
use crate::slots::{Merge, SlotSender};

/// Message: a source tells PodStorage what it has.
#[derive(Debug)]
pub struct SourceSnapshot {
    /// Which source.
    pub source: PodSource,
    /// `Set` for a complete snapshot, `Restore` for pods from a checkpoint; the API source also
    /// sends `Add`, `Update`, `Remove` where it works incrementally.
    pub op: PodOp,
    /// The pods, defaulted and validated.
    pub pods: Vec<SharedPod>,
    /// What was refused in this pass, for the user.
    pub rejected: Vec<RejectedManifest>,
}

/// Message: PodStorage tells the SyncLoop what changed in the set of desired pods.
#[derive(Debug)]
pub struct ConfigChanged(pub PodUpdate);

/// Message: the PLEG tells the SyncLoop that a pod's runtime state changed, or that a call about
/// it hangs or no longer does.
///
/// Coalesced per pod, so it is never dropped; the cache already holds the new state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodChanged {
    /// What changed, without repeats.
    pub events: Vec<PodLifecycleEvent>,
    /// There is news of calls about the pod that the runtime does not answer.
    pub calls: bool,
}

impl Merge for PodChanged {
    fn merge(&mut self, newer: Self) {
        self.calls |= newer.calls;
        for event in newer.events {
            if !self.events.contains(&event) {
                self.events.push(event);
            }
        }
    }
}

/// Why a pod worker is told something.
#[derive(Clone, Debug, PartialEq)]
pub enum UpdateKind {
    /// The pod is desired, new or changed.
    Run(SharedPod),
    /// Look again: the runtime changed, or a tick is due.
    Sync,
    /// Stop the pod.
    Kill(KillPod),
}

/// Stop a pod, with the shortest grace period anyone asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct KillPod {
    /// Grace period; `None` uses the pod's own.
    pub grace: Option<Duration>,
    /// Text for the `Killing` event and `explain`.
    pub reason: String,
    /// The pod is no longer desired: forget it once it has stopped.
    pub removed: bool,
    /// For a pod without a configuration: what runs.
    pub orphan: Option<Arc<ObservedPod>>,
    /// A phase that was decided for the pod (rejected, evicted, node shutdown); it ends with it.
    pub verdict: Option<PhaseOverride>,
}

/// Message: the SyncLoop tells PodWorkers what to do with one pod (coalesced per UID).
#[derive(Clone, Debug, PartialEq)]
pub struct UpdatePod {
    /// The newest desired pod among what was coalesced.
    pub run: Option<SharedPod>,
    /// A kill among what was coalesced.
    pub kill: Option<KillPod>,
    /// The run came after the kill: the pod is to come back.
    pub run_after_kill: bool,
}

impl UpdatePod {
    /// One message of the given kind.
    pub fn new(kind: UpdateKind) -> Self {
        let mut this = Self {
            run: None,
            kill: None,
            run_after_kill: false,
        };
        match kind {
            UpdateKind::Run(pod) => this.run = Some(pod),
            UpdateKind::Sync => {}
            UpdateKind::Kill(kill) => this.kill = Some(kill),
        }
        this
    }
}

impl Merge for UpdatePod {
    fn merge(&mut self, newer: Self) {
        if let Some(kill) = newer.kill {
            self.run_after_kill = false;
            match &mut self.kill {
                Some(waiting) => waiting.merge(kill),
                None => self.kill = Some(kill),
            }
        }
        if let Some(pod) = newer.run {
            self.run_after_kill = self.kill.is_some();
            self.run = Some(pod);
        }
    }
}

impl Merge for KillPod {
    /// The grace period only shrinks, and a removal stays one.
    fn merge(&mut self, newer: Self) {
        self.grace = match (self.grace, newer.grace) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.removed |= newer.removed;
        self.reason = newer.reason;
        self.orphan = newer.orphan.or_else(|| self.orphan.take());
        // the first decision stands: a pod fails once
        self.verdict = self.verdict.take().or(newer.verdict);
    }
}

/// Message: asks PodWorkers for the phase of every worker.
#[derive(Debug)]
pub struct GetPodWorkers {
    /// Where the answer goes.
    pub reply: oneshot::Sender<BTreeMap<PodUid, WorkerStanding>>,
}

/// What PodWorkers knows of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerStanding {
    /// Its phase.
    pub phase: PodWorkerState,
    /// Its pod is a static one; `None` if only the runtime has the pod.
    pub is_static: Option<bool>,
}

/// Message: the SyncLoop tells PodWorkers whether the runtime can be worked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeState {
    /// Why the runtime cannot be used; jobs wait while this is set.
    pub runtime_error: Option<String>,
    /// Why the pod network cannot be used; pods without host network wait while this is set.
    pub network_error: Option<String>,
    /// Why nobody knows what runs; jobs go on, the node is not ready.
    pub pleg_error: Option<String>,
    /// The last check was answered: an error above is the runtime's own word.
    pub answered: bool,
}

impl RuntimeState {
    /// Before the first check.
    pub fn unknown() -> Self {
        Self {
            runtime_error: Some("not checked yet".into()),
            network_error: None,
            pleg_error: None,
            answered: false,
        }
    }

    /// True if jobs may run.
    pub fn usable(&self) -> bool {
        self.runtime_error.is_none()
    }
}

/// Message: the ApiSource tells the StatusManager what the API server has of one pod (mirror pods
/// included), coalesced per UID.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiPodSeen {
    /// The newest object.
    Present(SharedPod),
    /// The object is gone.
    Gone,
}

impl Merge for ApiPodSeen {
    fn merge(&mut self, newer: Self) {
        *self = newer;
    }
}

/// Message: the object cache tells the SyncLoop that something a pod refers to came, changed or
/// went (coalesced per pod).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectsChanged;

impl Merge for ObjectsChanged {
    fn merge(&mut self, Self: Self) {}
}

/// Message: a PodWorker's job asks the VolumeManager for the volumes of its pod. From then on they
/// are desired, until [`TearDownVolumes`].
#[derive(Debug)]
pub struct SetUpVolumes {
    /// The pod.
    pub pod: SharedPod,
    /// Its volumes; what differs from what is set up is brought up to date.
    pub volumes: Arc<PodVolumes>,
    /// How long the asker waits for what is under way.
    pub patience: Duration,
    /// Answered when all of them are ready, one has failed, or the patience has ended. Of what
    /// comes later the SyncLoop hears by [`VolumesChanged`].
    pub reply: oneshot::Sender<Result<ReadyVolumes, VolumesNotReady>>,
}

/// Message: a PodWorker's job, or housekeeping for a pod that nobody asks for, has the
/// VolumeManager release everything of a pod's volumes.
#[derive(Debug)]
pub struct TearDownVolumes {
    /// Which pod.
    pub uid: PodUid,
    /// Who says so.
    pub by: Releaser,
    /// Answered when nothing is left, or something resists.
    pub reply: oneshot::Sender<Result<(), VolumesNotReady>>,
}

/// What the VolumeManager hears through its mailbox.
#[derive(Debug)]
pub enum VolumeManagerMessage {
    /// See [`SetUpVolumes`].
    SetUp(SetUpVolumes),
    /// See [`TearDownVolumes`].
    TearDown(TearDownVolumes),
}

/// Message: the VolumeManager tells the SyncLoop that volumes of a pod came to be ready, or failed
/// otherwise than before, after the pod's job was answered (coalesced per pod).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumesChanged {
    /// A volume holds more than the pod may: the pod is to be evicted, with this message.
    pub over_limit: Option<String>,
    /// The node has no room for its volumes: the pod is to fail, with this message.
    pub no_room: Option<String>,
}

impl Merge for VolumesChanged {
    fn merge(&mut self, newer: Self) {
        // the first reason stands: a pod is evicted once
        self.over_limit = self.over_limit.take().or(newer.over_limit);
        self.no_room = self.no_room.take().or(newer.no_room);
    }
}

/// Message: the VolumeManager tells NodeStatus which attached devices pods of this node use
/// (`status.volumesInUse`), before any of them is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumesInUse(pub BTreeSet<DeviceName>);

/// The way to the VolumeManager.
#[derive(Clone, Debug)]
pub struct VolumesHandle {
    /// Mailbox for requests.
    pub mailbox: MailboxSender<VolumeManagerMessage>,
    /// What needs none.
    pub settled: SettledVolumes,
}

impl VolumesHandle {
    /// Has the volumes of a pod set up; a pod without volumes, or that has exactly these, is ready at
    /// once. Who waits longer than `patience` hears what for.
    ///
    /// # Errors
    /// One failed, or is not ready yet.
    pub async fn set_up(
        &self,
        pod: &SharedPod,
        volumes: &Arc<PodVolumes>,
        patience: Duration,
    ) -> Result<ReadyVolumes, VolumesNotReady> {
        if volumes.is_empty() {
            return Ok(ReadyVolumes::default());
        }
        if let Some(ready) = self.settled.get(pod, volumes) {
            return Ok(ready);
        }
        // what is on its way changes what the pod has
        self.settled.forget(&pod.uid());
        let (reply, answer) = oneshot::channel();
        let message = VolumeManagerMessage::SetUp(SetUpVolumes {
            pod: SharedPod::clone(pod),
            volumes: Arc::clone(volumes),
            patience,
            reply,
        });
        self.mailbox.send(message).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    /// Has everything of a pod's volumes released, also what an earlier life of the agent left.
    ///
    /// # Errors
    /// Something resists, or does not end.
    pub async fn tear_down(&self, uid: &PodUid, by: Releaser) -> Result<(), VolumesNotReady> {
        self.settled.forget(uid);
        let (reply, answer) = oneshot::channel();
        let message = VolumeManagerMessage::TearDown(TearDownVolumes {
            uid: uid.clone(),
            by,
            reply,
        });
        self.mailbox.send(message).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

fn stopped() -> VolumesNotReady {
    VolumesNotReady {
        reason: Reason::FailedMount,
        message: "the VolumeManager has stopped".to_owned(),
        retry: Retry::Soon,
        retry_at: None,
    }
}

/// Message: a PodWorker tells the three probe managers what its pod has running, coalesced per
/// UID. A repeat asks them to probe at once what is not ready yet.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbePod {
    /// Probe what runs of this pod, as far as its phase allows.
    Probe(ProbeTargets),
    /// The pod is released: forget it, verdicts included.
    Forget,
}

/// What of a pod can be probed.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeTargets {
    /// The pod as asked.
    pub pod: SharedPod,
    /// The pod as found.
    pub observed: Arc<ObservedPod>,
    /// Its primary address, the node's for a pod on the host network.
    pub pod_ip: Option<std::net::IpAddr>,
    /// How far its worker is: while it terminates, liveness and startup probes rest; after that
    /// all do.
    pub phase: PodWorkerState,
}

impl ProbeTargets {
    /// True if this is the very same: nobody looked at the pod or changed it in between.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pod, &other.pod)
            && Arc::ptr_eq(&self.observed, &other.observed)
            && self.pod_ip == other.pod_ip
            && self.phase == other.phase
    }
}

impl Merge for ProbePod {
    fn merge(&mut self, newer: Self) {
        *self = newer;
    }
}

/// Message: a probe manager tells the SyncLoop that a verdict changed (coalesced per pod);
/// [`crate::ProbeResults`] already holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeUpdate {
    /// What changed, in order.
    pub changes: Vec<ProbeChange>,
}

/// One changed verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeChange {
    /// Which probe.
    pub kind: ProbeKind,
    /// Which container.
    pub container: String,
    /// Succeeds.
    pub success: bool,
}

impl Merge for ProbeUpdate {
    fn merge(&mut self, newer: Self) {
        for change in newer.changes {
            self.changes
                .retain(|old| (old.kind, &old.container) != (change.kind, &change.container));
            self.changes.push(change);
        }
    }
}

/// The way to the three probe managers, and to what they found.
#[derive(Clone, Debug)]
pub struct ProbesHandle {
    /// A lane for each manager, in the order of [`ProbeKind::ALL`].
    pub lanes: [SlotSender<PodUid, ProbePod>; 3],
    /// What they found.
    pub results: crate::ProbeResults,
}

impl ProbesHandle {
    /// Tells all managers what a pod has running; never waits.
    pub fn probe(&self, uid: &PodUid, message: &ProbePod) {
        for lane in &self.lanes {
            lane.put(uid.clone(), message.clone());
        }
    }
}

/// Message: NodeStatus tells what the API server has as this node's object; `None` before the
/// first read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSeen(pub Option<Arc<Node>>);

/// Message: NodeShutdown tells everyone how far the machine's shutdown is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownState {
    /// The machine is about to shut down: no new pod is admitted, the node is not ready.
    pub shutting_down: bool,
}

/// Message: the SyncLoop tells whether every configured source has spoken; until then nothing
/// may be cleaned up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourcesReady(pub bool);

/// What PodWorkers hears through its mailbox.
#[derive(Debug)]
pub enum PodWorkersMessage {
    /// See [`GetPodWorkers`].
    Get(GetPodWorkers),
    /// See [`WorkerFinished`].
    Finished(WorkerFinished),
}

/// Message: a PodWorker tells PodWorkers that its pod has stopped and everything is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerFinished {
    /// Which worker.
    pub uid: PodUid,
}

/// The way to PodWorkers.
#[derive(Clone, Debug)]
pub struct PodWorkersHandle {
    /// Coalescing lane for desired state and kills.
    pub updates: SlotSender<PodUid, UpdatePod>,
    /// Mailbox for queries and answers.
    pub mailbox: MailboxSender<PodWorkersMessage>,
}

impl PodWorkersHandle {
    /// Tells the worker of a pod something; never waits, never loses.
    pub fn update_pod(&self, uid: PodUid, update: UpdatePod) {
        self.updates.put(uid, update);
    }

    /// What PodWorkers knows of every worker.
    pub async fn standings(&self) -> Result<BTreeMap<PodUid, WorkerStanding>, SendError> {
        let (reply, answer) = oneshot::channel();
        self.mailbox
            .send(PodWorkersMessage::Get(GetPodWorkers { reply }))
            .await?;
        answer.await.map_err(|_| SendError)
    }
}

/// Message: asks the PLEG to read one pod from the runtime now.
#[derive(Debug)]
pub struct InspectPod {
    /// Which pod.
    pub uid: PodUid,
    /// Receives an observation that began after this message was sent.
    pub reply: oneshot::Sender<Result<Arc<ObservedPod>, InspectError>>,
}

/// Why a pod could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectError(pub String);

impl std::fmt::Display for InspectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InspectError {}

/// Message: asks the PLEG what the runtime has of a pod, as far as it knows.
#[derive(Debug)]
pub struct GetObserved {
    /// Which pod.
    pub uid: PodUid,
    /// Answered from the cache; before the first listing, as soon as the pod has been read.
    pub reply: oneshot::Sender<Result<Arc<ObservedPod>, InspectError>>,
}

/// What the PLEG hears through its mailbox.
#[derive(Debug)]
pub enum PlegMessage {
    /// See [`InspectPod`].
    Inspect(InspectPod),
    /// See [`GetObserved`].
    Observed(GetObserved),
}

/// The way to the PLEG.
#[derive(Clone, Debug)]
pub struct PlegHandle {
    /// Mailbox for requests.
    pub mailbox: MailboxSender<PlegMessage>,
    /// What was last seen.
    pub cache: crate::StatusCache,
}

impl PlegHandle {
    /// Reads one pod from the runtime now; the cache holds the same answer.
    pub async fn inspect(&self, uid: &PodUid) -> Result<Arc<ObservedPod>, InspectError> {
        self.ask(|reply| {
            PlegMessage::Inspect(InspectPod {
                uid: uid.clone(),
                reply,
            })
        })
        .await
    }

    /// What the runtime is known to have of a pod; empty if nothing.
    pub async fn observed(&self, uid: &PodUid) -> Result<Arc<ObservedPod>, InspectError> {
        if let Some(pod) = self.cache.get(uid) {
            return Ok(pod);
        }
        self.ask(|reply| {
            PlegMessage::Observed(GetObserved {
                uid: uid.clone(),
                reply,
            })
        })
        .await
    }

    async fn ask(
        &self,
        message: impl FnOnce(ObservedReply) -> PlegMessage,
    ) -> Result<Arc<ObservedPod>, InspectError> {
        let stopped = || InspectError("the PLEG has stopped".into());
        let (reply, answer) = oneshot::channel();
        self.mailbox
            .send(message(reply))
            .await
            .map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

/// Where an observation is sent.
type ObservedReply = oneshot::Sender<Result<Arc<ObservedPod>, InspectError>>;
