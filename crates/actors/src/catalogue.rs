//! Every message that crosses from one actor to another, and the handles that send them.
//!
//! A type marked `Message:` here has a row in `docs/actors.md`; `cargo xtask tidy` compares the
//! two. Commands are imperative, events past tense, queries begin with `Get`. Messages of an actor
//! to itself (completions, timers) stay in its own crate.

mod allocations;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
pub use windlass_eviction::Pressure;
use windlass_mailboxes::{MailboxSender, Merge, SendError, SlotSender};
pub use windlass_types::PhaseOverride;
use windlass_types::corev1::Node;
pub use windlass_types::view::{PodWorkerState, RejectedManifest};
use windlass_types::{
    DeviceName, ObservedPod, PodExt, PodLifecycleEvent, PodOp, PodSource, PodUid, PodUpdate,
    ProbeKind, ReadyVolumes, Reason, Retry, SharedPod, VolumesNotReady,
};
pub use windlass_volume_plan::volume_reconciler::TearDownRequester;
use windlass_volume_plan::volume_source::PodVolumes;

pub use allocations::{
    AllocateResources, AllocationScope, AllocationsHandle, PluginResourceUpdate, ResourcesAllocated,
};

use crate::mounted_volume_cache::MountedVolumeCache;

/// Message: a pod source sends its pods to PodStorage.
#[derive(Debug)]
pub struct SourceSnapshot {
    /// The source.
    pub source: PodSource,
    /// `Set` for a complete snapshot, `Restore` for pods from a checkpoint; the API source also
    /// sends `Add`, `Update`, `Remove` where it works incrementally.
    pub op: PodOp,
    /// The pods, defaulted and validated.
    pub pods: Vec<SharedPod>,
    /// Manifests rejected in this pass, for the user.
    pub rejected: Vec<RejectedManifest>,
}

/// Message: PodStorage notifies the SyncLoop of a change to the desired pods.
#[derive(Debug)]
pub struct ConfigChanged(pub PodUpdate);

/// Message: the PLEG notifies the SyncLoop of a changed runtime state of a pod, or of a runtime
/// call that hangs or has returned.
///
/// Coalesced per pod, so it is never dropped; the cache already holds the new state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodChanged {
    /// The changes, without repeats.
    pub events: Vec<PodLifecycleEvent>,
    /// The hung runtime calls of the pod changed.
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

/// Kind of an update for a pod worker.
#[derive(Clone, Debug, PartialEq)]
pub enum UpdateKind {
    /// The pod is desired, new or changed.
    Run(SharedPod),
    /// Resync: the runtime state changed, or a timer fired.
    Sync,
    /// Stop the pod.
    Kill(KillPod),
}

/// Terminates a pod with the shortest requested grace period.
#[derive(Clone, Debug, PartialEq)]
pub struct KillPod {
    /// Grace period; `None` uses that of the pod.
    pub grace: Option<Duration>,
    /// Text for the `Killing` event and `explain`.
    pub reason: String,
    /// The pod is no longer desired: remove it after termination.
    pub removed: bool,
    /// Observed state of an orphaned pod.
    pub orphan: Option<Arc<ObservedPod>>,
    /// Terminal phase of a rejected, evicted or shut down pod.
    pub phase_override: Option<PhaseOverride>,
}

/// Message: the SyncLoop sends an update of one pod to PodWorkers (coalesced per UID).
#[derive(Clone, Debug, PartialEq)]
pub struct UpdatePod {
    /// The newest desired pod of the coalesced updates.
    pub run: Option<SharedPod>,
    /// The merged kill of the coalesced updates.
    pub kill: Option<KillPod>,
    /// The run is newer than the kill: restart the pod after termination.
    pub run_after_kill: bool,
}

impl UpdatePod {
    /// Creates an update of the given kind.
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
    /// Keeps the shorter grace period, any removal, and the first phase override with its reason;
    /// without one the newest reason.
    fn merge(&mut self, newer: Self) {
        self.grace = shorter(self.grace, newer.grace);
        self.removed |= newer.removed;
        self.orphan = newer.orphan.or_else(|| self.orphan.take());
        // the first decision stands: a pod fails once
        if self.phase_override.is_none() {
            self.reason = newer.reason;
            self.phase_override = newer.phase_override;
        }
    }
}

/// Returns the shorter grace period; `None` is that of the pod.
fn shorter(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Message: requests the termination of a desired pod from the SyncLoop, for a node shutdown or an
/// eviction (coalesced per UID).
#[derive(Clone, Debug, PartialEq)]
pub struct TerminatePod {
    /// Grace period; `None` uses that of the pod.
    pub grace: Option<Duration>,
    /// Text for the `Killing` event and `explain`.
    pub reason: String,
    /// The cause: terminal phase, reason and message of the pod.
    pub phase_override: PhaseOverride,
}

impl Merge for TerminatePod {
    /// Keeps the shorter grace period, and the first cause with its reason.
    fn merge(&mut self, newer: Self) {
        self.grace = shorter(self.grace, newer.grace);
    }
}

impl From<TerminatePod> for KillPod {
    fn from(request: TerminatePod) -> Self {
        Self {
            grace: request.grace,
            reason: request.reason,
            removed: false,
            orphan: None,
            phase_override: Some(request.phase_override),
        }
    }
}

/// Message: requests the status of every pod worker.
#[derive(Debug)]
pub struct GetPodWorkers {
    /// Receives the statuses.
    pub reply: oneshot::Sender<BTreeMap<PodUid, PodWorkerStatus>>,
}

/// Status of one pod worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodWorkerStatus {
    /// State of the worker.
    pub state: PodWorkerState,
    /// True for a static pod; `None` for an orphaned pod.
    pub is_static: Option<bool>,
}

/// Message: the SyncLoop publishes the readiness of the container runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeState {
    /// Why the runtime cannot be used; jobs wait while this is set.
    pub runtime_error: Option<String>,
    /// Why the pod network cannot be used; pods without host network wait while this is set.
    pub network_error: Option<String>,
    /// Why relists fail; jobs continue, the node is not ready.
    pub pleg_error: Option<String>,
    /// The runtime responded to the last check: an error above is its own.
    pub answered: bool,
}

impl RuntimeState {
    /// The state before the first check.
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

/// Message: the ApiSource sends the API object of one pod or mirror pod to the StatusManager
/// (coalesced per UID).
#[derive(Clone, Debug, PartialEq)]
pub enum ApiPodUpdate {
    /// The pod was created or changed.
    Applied(SharedPod),
    /// The pod was deleted.
    Deleted,
}

impl Merge for ApiPodUpdate {
    fn merge(&mut self, newer: Self) {
        *self = newer;
    }
}

/// Message: the object cache notifies the SyncLoop of a change to a reference of a pod (coalesced
/// per pod).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectsChanged;

impl Merge for ObjectsChanged {
    fn merge(&mut self, Self: Self) {}
}

/// Message: a job of a PodWorker requests the volumes of its pod from the VolumeManager. They stay
/// desired until [`TearDownVolumes`].
#[derive(Debug)]
pub struct SetUpVolumes {
    /// The pod.
    pub pod: SharedPod,
    /// Its desired volumes.
    pub volumes: Arc<PodVolumes>,
    /// How long the caller waits for operations in progress.
    pub timeout: Duration,
    /// Receives the result when all are ready, one failed, or the timeout expired. The SyncLoop
    /// receives later changes as [`VolumesChanged`].
    pub reply: oneshot::Sender<Result<ReadyVolumes, VolumesNotReady>>,
}

/// Message: a job of a PodWorker, or housekeeping for an orphaned pod, requests the teardown of
/// all volumes of a pod.
#[derive(Debug)]
pub struct TearDownVolumes {
    /// UID of the pod.
    pub uid: PodUid,
    /// The requester.
    pub by: TearDownRequester,
    /// Receives the result when all are torn down, or one failed.
    pub reply: oneshot::Sender<Result<(), VolumesNotReady>>,
}

/// Mailbox messages of the VolumeManager.
#[derive(Debug)]
pub enum VolumeManagerMessage {
    /// See [`SetUpVolumes`].
    SetUp(SetUpVolumes),
    /// See [`TearDownVolumes`].
    TearDown(TearDownVolumes),
}

/// Message: the VolumeManager notifies the SyncLoop of volumes that became ready, failed or were
/// torn down after their request timed out (coalesced per pod).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumesChanged {
    /// Message of the failure of a pod whose volumes exceed the attach limit of the node.
    pub no_room: Option<String>,
}

impl Merge for VolumesChanged {
    fn merge(&mut self, newer: Self) {
        // the first reason stands: a pod fails once
        self.no_room = self.no_room.take().or(newer.no_room);
    }
}

/// Message: the VolumeManager publishes the attached devices in use (`status.volumesInUse`)
/// before their first use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumesInUse(pub BTreeSet<DeviceName>);

/// Handle to the VolumeManager.
#[derive(Clone, Debug)]
pub struct VolumesHandle {
    /// Mailbox for requests.
    pub mailbox: MailboxSender<VolumeManagerMessage>,
    /// Volumes that are ready already.
    pub mounted: MountedVolumeCache,
}

impl VolumesHandle {
    /// Sets up the volumes of a pod and returns them. After `timeout` the error names the operation
    /// in progress.
    ///
    /// # Errors
    /// A volume failed, or is not ready yet.
    pub async fn set_up(
        &self,
        pod: &SharedPod,
        volumes: &Arc<PodVolumes>,
        timeout: Duration,
    ) -> Result<ReadyVolumes, VolumesNotReady> {
        if volumes.is_empty() {
            return Ok(ReadyVolumes::default());
        }
        if let Some(ready) = self.mounted.get(pod, volumes) {
            return Ok(ready);
        }
        // the request changes the volumes of the pod
        self.mounted.forget(&pod.uid());
        let (reply, response) = oneshot::channel();
        let message = VolumeManagerMessage::SetUp(SetUpVolumes {
            pod: SharedPod::clone(pod),
            volumes: Arc::clone(volumes),
            timeout,
            reply,
        });
        self.mailbox.send(message).await.map_err(|_| stopped())?;
        response.await.map_err(|_| stopped())?
    }

    /// Tears down all volumes of a pod, including those of a previous agent run.
    ///
    /// # Errors
    /// A volume could not be torn down in time.
    pub async fn tear_down(
        &self,
        uid: &PodUid,
        by: TearDownRequester,
    ) -> Result<(), VolumesNotReady> {
        self.mounted.forget(uid);
        let (reply, response) = oneshot::channel();
        let message = VolumeManagerMessage::TearDown(TearDownVolumes {
            uid: uid.clone(),
            by,
            reply,
        });
        self.mailbox.send(message).await.map_err(|_| stopped())?;
        response.await.map_err(|_| stopped())?
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

/// Message: a PodWorker sends the running containers of its pod to the probe managers (coalesced
/// per UID). A repeat triggers an attempt of every probe that is not ready yet.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbePod {
    /// Probe the running containers, as far as the worker state allows.
    Probe(ProbeTargets),
    /// Stop probing the pod and drop its results.
    Forget,
}

/// Probe targets of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeTargets {
    /// The desired pod.
    pub pod: SharedPod,
    /// The observed pod.
    pub observed: Arc<ObservedPod>,
    /// Primary address of the pod; that of the node for the host network.
    pub pod_ip: Option<std::net::IpAddr>,
    /// State of the worker. Terminating pods have no liveness and startup probes, terminated pods
    /// none.
    pub state: PodWorkerState,
}

impl ProbeTargets {
    /// True if both share the same pod and observation.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pod, &other.pod)
            && Arc::ptr_eq(&self.observed, &other.observed)
            && self.pod_ip == other.pod_ip
            && self.state == other.state
    }
}

impl Merge for ProbePod {
    fn merge(&mut self, newer: Self) {
        *self = newer;
    }
}

/// Message: a probe manager notifies the SyncLoop of changed probe results (coalesced per pod);
/// [`crate::ProbeResults`] already holds them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeUpdate {
    /// The changes in order.
    pub changes: Vec<ProbeChange>,
}

/// A changed probe result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeChange {
    /// Kind of the probe.
    pub kind: ProbeKind,
    /// Name of the container.
    pub container: String,
    /// True for success, false for failure.
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

/// Handle to the three probe managers and their results.
#[derive(Clone, Debug)]
pub struct ProbesHandle {
    /// A sender for each manager, in the order of [`ProbeKind::ALL`].
    pub managers: [SlotSender<PodUid, ProbePod>; 3],
    /// Their results.
    pub results: crate::ProbeResults,
}

impl ProbesHandle {
    /// Sends `message` to all managers; never waits.
    pub fn probe(&self, uid: &PodUid, message: &ProbePod) {
        for manager in &self.managers {
            manager.put(uid.clone(), message.clone());
        }
    }
}

/// Message: NodeStatus publishes the Node object of this node; `None` before the first read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeUpdate(pub Option<Arc<Node>>);

/// Message: NodeShutdown publishes the state of the host shutdown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownState {
    /// The host is about to shut down: new pods are rejected, the node is not ready.
    pub shutting_down: bool,
}

/// Message: the EvictionManager publishes the pressure conditions of the node; `None` before its
/// first pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodePressure(pub Option<Pressure>);

/// Message: the SyncLoop publishes whether all sources are ready; housekeeping waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourcesReady(pub bool);

/// Message: a PodWorker sends its state to PodWorkers (coalesced per UID).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerStateChanged {
    /// The new state.
    pub state: PodWorkerState,
    /// The resources of the pod are cleaned up, and the worker has ended.
    pub finished: bool,
}

impl Merge for WorkerStateChanged {
    fn merge(&mut self, newer: Self) {
        self.state = newer.state;
        self.finished |= newer.finished;
    }
}

/// Handle to PodWorkers.
#[derive(Clone, Debug)]
pub struct PodWorkersHandle {
    /// Coalescing sender of pod updates.
    pub updates: SlotSender<PodUid, UpdatePod>,
    /// Mailbox for queries.
    pub mailbox: MailboxSender<GetPodWorkers>,
}

impl PodWorkersHandle {
    /// Sends an update to the worker of a pod; never waits, never fails.
    pub fn update_pod(&self, uid: PodUid, update: UpdatePod) {
        self.updates.put(uid, update);
    }

    /// Returns the status of every worker.
    pub async fn statuses(&self) -> Result<BTreeMap<PodUid, PodWorkerStatus>, SendError> {
        let (reply, response) = oneshot::channel();
        self.mailbox.send(GetPodWorkers { reply }).await?;
        response.await.map_err(|_| SendError)
    }
}

/// Message: the EvictionManager requests the removal of all unused images from the ImageGcManager.
#[derive(Debug)]
pub struct DeleteUnusedImages {
    /// Receives the result of a pass that started after this message was sent.
    pub reply: oneshot::Sender<Result<(), String>>,
}

/// Handle to the ImageGcManager.
#[derive(Clone, Debug)]
pub struct ImageGcHandle {
    /// Mailbox for requests.
    pub mailbox: MailboxSender<DeleteUnusedImages>,
}

impl ImageGcHandle {
    /// Removes all images that nothing uses.
    ///
    /// # Errors
    /// Some could not be removed, or what is used could not be read.
    pub async fn delete_unused_images(&self) -> Result<(), String> {
        let (reply, response) = oneshot::channel();
        let stopped = || "the image garbage collection has stopped".to_owned();
        let sent = self.mailbox.send(DeleteUnusedImages { reply }).await;
        sent.map_err(|_| stopped())?;
        response.await.map_err(|_| stopped())?
    }
}

/// Message: requests an inspection of one pod from the PLEG.
#[derive(Debug)]
pub struct InspectPod {
    /// UID of the pod.
    pub uid: PodUid,
    /// Receives an observation that started after this message was sent.
    pub reply: oneshot::Sender<Result<Arc<ObservedPod>, InspectError>>,
}

/// Error of an inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectError(pub String);

impl std::fmt::Display for InspectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InspectError {}

/// Message: requests the last observation of a pod from the PLEG.
#[derive(Debug)]
pub struct GetObserved {
    /// UID of the pod.
    pub uid: PodUid,
    /// Receives the cached observation; before the first relist, that of an inspection.
    pub reply: oneshot::Sender<Result<Arc<ObservedPod>, InspectError>>,
}

/// Mailbox messages of the PLEG.
#[derive(Debug)]
pub enum PlegMessage {
    /// See [`InspectPod`].
    Inspect(InspectPod),
    /// See [`GetObserved`].
    Observed(GetObserved),
}

/// Handle to the PLEG.
#[derive(Clone, Debug)]
pub struct PlegHandle {
    /// Mailbox for requests.
    pub mailbox: MailboxSender<PlegMessage>,
    /// The last observations.
    pub cache: crate::StatusCache,
}

impl PlegHandle {
    /// Inspects one pod and returns the observation, which the cache holds too.
    pub async fn inspect(&self, uid: &PodUid) -> Result<Arc<ObservedPod>, InspectError> {
        self.request(|reply| {
            PlegMessage::Inspect(InspectPod {
                uid: uid.clone(),
                reply,
            })
        })
        .await
    }

    /// Returns the last observation of a pod; empty if the runtime has nothing of it.
    pub async fn observed(&self, uid: &PodUid) -> Result<Arc<ObservedPod>, InspectError> {
        if let Some(pod) = self.cache.get(uid) {
            return Ok(pod);
        }
        self.request(|reply| {
            PlegMessage::Observed(GetObserved {
                uid: uid.clone(),
                reply,
            })
        })
        .await
    }

    async fn request(
        &self,
        message: impl FnOnce(ObservedReply) -> PlegMessage,
    ) -> Result<Arc<ObservedPod>, InspectError> {
        let stopped = || InspectError("the PLEG has stopped".into());
        let (reply, response) = oneshot::channel();
        self.mailbox
            .send(message(reply))
            .await
            .map_err(|_| stopped())?;
        response.await.map_err(|_| stopped())?
    }
}

/// Receiver of an observation.
type ObservedReply = oneshot::Sender<Result<Arc<ObservedPod>, InspectError>>;

#[cfg(test)]
mod tests;
