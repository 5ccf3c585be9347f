//! The three jobs of a worker: sync, kill, release. Each is a future that always ends with one
//! answer, and ends soon after its token is cancelled.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use windlass_actors::{InspectError, Releaser};
use windlass_pod_lifecycle::actions::{ActionsInput, PodActions, compute_pod_actions};
use windlass_pod_lifecycle::backoff::BackoffTable;
use windlass_pod_lifecycle::deadline::{Deadline, DeadlineInput, deadline};
use windlass_pod_lifecycle::pod_worker::JobId;
use windlass_pod_lifecycle::stop::with_unseen_ends;
use windlass_pod_status::status::{Failures, StatusInput, generate_status};
use windlass_runtime::{KillPodError, KillPodRequest, StartFailure, SyncPodOutcome, SyncPodRequest};
use windlass_runtime_config::inputs::{InputsError, PodInputs};
use windlass_timelines::{RecordGuard, RecordKey, RecordKind, RecordOutcome};
use windlass_types::corev1::PodStatus;
use windlass_types::view::{EventType, StartTimings};
use windlass_types::{
    ContainerState, ObservedPod, Pod, PodExt, PodProbeResults, PodUid, ReadyVolumes, Reason, Retry,
    SharedPod, Timestamp, VolumesNotReady, later, names,
};
use windlass_volume_plan::volume_source::{PodVolume, PodVolumes, VolumeSource, is_live};

use super::WorkerDeps;
use crate::start_limiter::StartSlot;

/// Pause before a pod looks again whether its predecessor has gone; housekeeping, which stops it,
/// comes every two seconds.
const PREDECESSOR_RETRY: Duration = Duration::from_millis(500);
/// How long a running pod's sync waits for fresh content of its volumes.
const REFRESH: Duration = Duration::from_secs(2);
/// A pod that was stopped waits this long for a read that says how its containers ended.
const FINAL_READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which such a read is checked for a hung call; it is given up one interval later.
const HUNG_READ_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Reads that may still show a stopped pod as alive, before what they do not show is unknown.
const MAX_FINAL_READS: u32 = 3;
/// How long a sync waits for what ended containers left to say.
const TERMINATION_MESSAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after the API server did not answer.
const INPUTS_RETRY_SOON: Duration = Duration::from_secs(1);
/// Pause after an object was missing or wrong; its appearance ends the pause.
const INPUTS_RETRY_LATER: Duration = Duration::from_secs(30);

/// How long a pod that is to start waits for its volumes before it says what it waits for. They are
/// set up meanwhile, and the VolumeManager tells when they are ready.
const VOLUMES_TIMEOUT: Duration = Duration::from_secs(10);

/// What a job tells its worker.
#[derive(Debug)]
pub enum JobEvent {
    /// A sync that goes on has news.
    Progress(JobId, Progress),
    /// A sync ended.
    Synced(JobId, Box<SyncReport>),
    /// A kill ended.
    Killed(JobId, Result<Arc<ObservedPod>, JobError>),
    /// A release ended.
    Released(JobId, Result<(), JobError>),
    /// The job was cancelled.
    Cancelled(JobId),
}

/// How far a sync is.
#[derive(Debug)]
pub enum Progress {
    /// The pod was found like this before anything was done.
    Observed(Arc<ObservedPod>),
    /// The sync got its start slot at this moment.
    Dispatched(Timestamp),
}

/// Why a job failed as a whole.
#[derive(Clone, Debug)]
pub struct JobError {
    /// In words.
    pub message: String,
    /// What trying again would bring.
    pub retry: Retry,
}

impl From<InspectError> for JobError {
    fn from(error: InspectError) -> Self {
        Self {
            message: error.to_string(),
            retry: Retry::Soon,
        }
    }
}

impl From<KillPodError> for JobError {
    fn from(error: KillPodError) -> Self {
        Self {
            message: error.to_string(),
            retry: error.retry(),
        }
    }
}

impl From<VolumesNotReady> for JobError {
    fn from(error: VolumesNotReady) -> Self {
        Self {
            message: error.message,
            retry: error.retry,
        }
    }
}

/// What came of a sync.
#[derive(Debug)]
pub struct SyncReport {
    /// The pod as it was found afterwards.
    pub observed: Result<Arc<ObservedPod>, JobError>,
    /// What was done; `None` if the pod could not be read, is over or its deadline has passed.
    pub outcome: Option<SyncPodOutcome>,
    /// What is not as it should be and holds nothing up, such as a volume that shows what it did
    /// before; `None` if nobody looked.
    pub notes: Option<Vec<String>>,
}

impl SyncReport {
    /// For the pod's timeline: what was decided, or what failed first.
    pub(crate) fn in_short(&self) -> RecordOutcome {
        if let Err(error) = &self.observed {
            return RecordOutcome::failed(&error.message);
        }
        match &self.outcome {
            None => RecordOutcome::decided("the pod is over"),
            Some(outcome) if outcome.cancelled => RecordOutcome::Cancelled,
            Some(outcome) => match outcome.failures.first() {
                None => RecordOutcome::decided(&outcome.actions),
                Some(failure) => {
                    RecordOutcome::failed(format_args!("{}: {}", failure.reason, failure.message))
                }
            },
        }
    }

    /// Nothing was done.
    fn of(observed: Result<Arc<ObservedPod>, JobError>) -> Self {
        Self {
            observed,
            outcome: None,
            notes: None,
        }
    }
}

/// What a sync works on.
#[derive(Debug)]
pub struct SyncJob {
    /// The pod as asked.
    pub pod: SharedPod,
    /// Its delays.
    pub backoff: BackoffTable,
    /// What the probes say.
    pub probe_results: Arc<PodProbeResults>,
    /// Its status as it was reported last.
    pub status: Arc<PodStatus>,
    /// What that status was made from; `None` before the first sync.
    pub known: Option<Arc<ObservedPod>>,
    /// The pod network can be used.
    pub network_ready: bool,
}

/// Compares the pod with what runs and carries out the difference.
///
/// `progress` is told how the pod was found, if that is new, and when it has its start slot; a sync
/// that starts nothing needs none. What the pod refers to is resolved before it takes a slot: an object that
/// is missing delays no other pod.
pub async fn sync_pod(
    deps: &WorkerDeps,
    job: SyncJob,
    cancel: CancellationToken,
    progress: &(impl Fn(Progress) + Sync),
) -> SyncReport {
    let uid = job.pod.uid();
    let observed = match deps.pleg.observed(&uid).await {
        Ok(observed) => observed,
        Err(error) => return SyncReport::of(Err(error.into())),
    };
    let observed = with_termination_messages(deps, &job.pod, observed).await;
    if job.known.as_ref() != Some(&observed) {
        progress(Progress::Observed(Arc::clone(&observed)));
    }
    // its worker, which hears how the pod was found, ends it
    if past_deadline(deps, &job, &observed) {
        return SyncReport::of(Ok(observed));
    }
    let starts = starts_something(deps, &job, &observed);
    // it may have ended, and been removed, while nobody could tell this agent; what a reboot left
    // of it is no sign of the contrary
    if starts && !observed.is_alive() && job.pod.annotation(names::ANN_RESTORED).is_some() {
        let failure = StartFailure {
            container: None,
            reason: Reason::WaitingForApiServer,
            message: "known from an earlier life of the agent, to be confirmed by the API server"
                .to_owned(),
            retry: Retry::Later,
            retry_at: None,
        };
        return not_started(job, observed, failure);
    }
    if starts && has_ended(deps, &job, &observed) {
        return SyncReport::of(Ok(observed));
    }
    // once a pod has something in the runtime, its predecessor is gone
    if starts && job.pod.is_static() && observed.is_empty() {
        match deps.runtime.live_pod_with_same_name(&job.pod).await {
            Ok(None) => {}
            Ok(Some(uid)) => return wait_for_predecessor(deps, job, observed, &uid),
            Err(error) => {
                let error = JobError {
                    message: error.to_string(),
                    retry: error.retry(),
                };
                return SyncReport::of(Err(error));
            }
        }
    }
    if starts && observed.is_empty() && deps.objects.sandbox_inputs(&job.pod).is_some() {
        let slot = start_slot(deps, &uid, true).await;
        // the tokens of the pods before it may have taken long
        if let Some(inputs) = deps.objects.sandbox_inputs(&job.pod) {
            let started = (inputs, slot);
            let job = start_sandbox_first(deps, job, observed, started, cancel, progress);
            return Box::pin(job).await;
        }
    }
    let mut inputs = match resolved_inputs(deps, &job.pod, starts).await {
        Ok(inputs) => inputs,
        Err(error) => return wait_for_inputs(deps, job, observed, error),
    };
    let (ready, unready) = match set_up(deps, &job.pod, &inputs.volumes, starts).await {
        Ok(ready) => (ready, None),
        Err(error) => {
            let failure = volumes_not_ready(deps, &inputs.volumes, error);
            if starts {
                return not_started(job, observed, failure);
            }
            // what runs keeps what it sees
            (ReadyVolumes::default(), Some(failure))
        }
    };
    let notes = (!inputs.volumes.is_empty() && unready.is_none()).then_some(ready.kept);
    if let Some(error) = inputs.missing.take().filter(|_| starts) {
        return SyncReport {
            notes,
            ..wait_for_inputs(deps, job, observed, error)
        };
    }
    let slot = start_slot(deps, &uid, starts).await;
    if starts {
        progress(Progress::Dispatched(deps.clock.now()));
    }
    let pod = SharedPod::clone(&job.pod);
    let request = SyncPodRequest {
        pod: job.pod,
        observed: Arc::clone(&observed),
        backoff: job.backoff,
        probe_results: job.probe_results,
        network_ready: job.network_ready,
        inputs: Arc::new(inputs),
        volumes: ready.mounted,
    };
    let mut outcome = deps.runtime.sync_pod(request, cancel).await;
    if let Some(failure) = unready {
        outcome.retry_at = outcome.retry_at.into_iter().chain(failure.retry_at).min();
        outcome.failures.push(failure);
    }
    drop(slot);
    SyncReport {
        observed: observed_after(deps, &pod, &outcome, observed).await,
        outcome: Some(outcome),
        notes,
    }
}

/// Starts a new pod whose tokens alone have to be requested. Its sandbox is made meanwhile, in a start
/// slot: tokens take a part of the time that a sandbox takes.
async fn start_sandbox_first(
    deps: &WorkerDeps,
    job: SyncJob,
    observed: Arc<ObservedPod>,
    (sandbox_inputs, slot): (PodInputs, Option<StartSlot>),
    cancel: CancellationToken,
    progress: &(impl Fn(Progress) + Sync),
) -> SyncReport {
    let pod = SharedPod::clone(&job.pod);
    progress(Progress::Dispatched(deps.clock.now()));
    let notes = OnceLock::new();
    let container_inputs = async {
        let resolved = resolved_inputs(deps, &pod, true).await;
        let mut inputs = resolved.map_err(|error| inputs_failure(deps, &pod, error))?;
        let ready = set_up(deps, &pod, &inputs.volumes, true).await;
        let ready = ready.map_err(|error| volumes_not_ready(deps, &inputs.volumes, error))?;
        // only this job sets it
        let _ = notes.set(ready.kept);
        match inputs.missing.take() {
            Some(error) => Err(inputs_failure(deps, &pod, error)),
            None => Ok((Arc::new(inputs), ready.mounted)),
        }
    };
    let request = SyncPodRequest {
        pod: job.pod,
        observed: Arc::clone(&observed),
        backoff: job.backoff,
        probe_results: job.probe_results,
        network_ready: job.network_ready,
        inputs: Arc::new(sandbox_inputs),
        volumes: ReadyVolumes::default().mounted,
    };
    let started = deps
        .runtime
        .sync_new_pod(request, Some(Box::pin(container_inputs)), cancel);
    let outcome = started.await;
    drop(slot);
    SyncReport {
        observed: observed_after(deps, &pod, &outcome, observed).await,
        outcome: Some(outcome),
        notes: notes.into_inner(),
    }
}

/// A slot for a sync that starts something.
async fn start_slot(deps: &WorkerDeps, uid: &PodUid, starts: bool) -> Option<StartSlot> {
    let touch = waits(deps, uid, "start slot", starts);
    let slot = match starts {
        true => deps.start_limiter.acquire().await,
        false => None,
    };
    ended(touch, RecordOutcome::Done);
    slot
}

/// The pod after a pass over it.
async fn observed_after(
    deps: &WorkerDeps,
    pod: &SharedPod,
    outcome: &SyncPodOutcome,
    before: Arc<ObservedPod>,
) -> Result<Arc<ObservedPod>, JobError> {
    if !outcome.changed {
        return Ok(before);
    }
    let observed = deps.pleg.inspect(&pod.uid()).await?;
    Ok(read_termination_messages(deps, pod, observed).await)
}

/// A sync that starts something waits; what one that does not refreshes in passing holds nobody up.
fn waits(
    deps: &WorkerDeps,
    uid: &PodUid,
    for_what: &'static str,
    starts: bool,
) -> Option<RecordGuard> {
    let what = || RecordKey::new(RecordKind::Wait, for_what);
    starts.then(|| deps.timelines.begin(uid, what()))
}

fn ended(touch: Option<RecordGuard>, outcome: RecordOutcome) {
    if let Some(touch) = touch {
        touch.end(outcome);
    }
}

/// What a sync found, with what ended containers left to say: told without it, a pod would be over
/// before its last words are known.
async fn with_termination_messages(
    deps: &WorkerDeps,
    pod: &Pod,
    observed: Arc<ObservedPod>,
) -> Arc<ObservedPod> {
    let read = read_termination_messages(deps, pod, Arc::clone(&observed));
    let read = tokio::time::timeout(TERMINATION_MESSAGE_TIMEOUT, read).await;
    read.unwrap_or(observed)
}

/// True if the status says that the pod is over although the runtime lacks containers: one that
/// ran, is gone and may not run again is not made a second time.
fn has_ended(deps: &WorkerDeps, job: &SyncJob, observed: &ObservedPod) -> bool {
    let failures = Failures::new();
    let status = generate_status(StatusInput {
        previous: Some(&*job.status).filter(|status| status.phase.is_some()),
        ..deps.status_input(&job.pod, observed, &job.probe_results, &failures)
    });
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Adds what ended containers left as their termination message; the runtime does not know it.
async fn read_termination_messages(
    deps: &WorkerDeps,
    pod: &Pod,
    observed: Arc<ObservedPod>,
) -> Arc<ObservedPod> {
    let mut messages = Vec::new();
    for (index, container) in observed.containers.iter().enumerate() {
        if container.state == ContainerState::Exited
            && let Some(message) = deps.runtime.termination_message(pod, container).await
        {
            messages.push((index, message));
        }
    }
    if messages.is_empty() {
        return observed;
    }
    let mut observed = Arc::unwrap_or_clone(observed);
    for (index, message) in messages {
        observed.containers[index].message = message;
    }
    Arc::new(observed)
}

/// [`inputs`], with the wait in the pod's timeline.
async fn resolved_inputs(
    deps: &WorkerDeps,
    pod: &SharedPod,
    starts: bool,
) -> Result<PodInputs, InputsError> {
    let touch = waits(deps, &pod.uid(), "references", starts);
    let resolved = inputs(deps, pod, starts).await;
    let outcome = RecordOutcome::from_result(&resolved.as_ref().map_err(|error| &error.message));
    ended(touch, outcome);
    resolved
}

/// Has the pod's volumes set up, with the wait in its timeline.
async fn set_up(
    deps: &WorkerDeps,
    pod: &SharedPod,
    volumes: &Arc<PodVolumes>,
    starts: bool,
) -> Result<ReadyVolumes, VolumesNotReady> {
    let patience = if starts { VOLUMES_TIMEOUT } else { REFRESH };
    let touch = waits(deps, &pod.uid(), "volumes", starts);
    let ready = deps.volumes.set_up(pod, volumes, patience).await;
    let outcome = RecordOutcome::from_result(&ready.as_ref().map_err(|error| &error.message));
    ended(touch, outcome);
    ready
}

/// What the pod refers to. A pod that starts something waits for it; one that runs has its
/// volumes refreshed if that is possible at once.
async fn inputs(
    deps: &WorkerDeps,
    pod: &SharedPod,
    starts: bool,
) -> Result<PodInputs, InputsError> {
    if starts {
        return deps.objects.inputs(pod).await;
    }
    let mut volumes = PodExt::spec(&**pod).volumes.iter().flatten();
    if !volumes.any(is_live) {
        return Ok(PodInputs::default());
    }
    let refreshed = tokio::time::timeout(REFRESH, deps.objects.inputs(pod)).await;
    match refreshed {
        Ok(Ok(inputs)) => Ok(inputs),
        // what the pod sees stays as it is
        Ok(Err(error)) => {
            tracing::debug!(pod = %pod.full_name(), %error, "volumes not refreshed");
            Ok(PodInputs::default())
        }
        Err(_) => Ok(PodInputs::default()),
    }
}

fn past_deadline(deps: &WorkerDeps, job: &SyncJob, observed: &ObservedPod) -> bool {
    let found = deadline(DeadlineInput {
        pod: &job.pod,
        status: &job.status,
        observed,
        now: deps.clock.now(),
    });
    found == Deadline::Passed
}

fn starts_something(deps: &WorkerDeps, job: &SyncJob, observed: &ObservedPod) -> bool {
    let actions = compute_pod_actions(ActionsInput {
        pod: &job.pod,
        observed,
        backoff: &job.backoff,
        probe_results: &job.probe_results,
        policy: deps.settings.restart_policy,
        now: deps.clock.now(),
    });
    actions.starts_something()
}

/// A pod of the same name is alive. Among pods with a worker the registry keeps that from
/// happening; this one was edited while the agent was away, has no worker, and is stopped by
/// housekeeping once the sources of static pods have spoken.
fn wait_for_predecessor(
    deps: &WorkerDeps,
    job: SyncJob,
    observed: Arc<ObservedPod>,
    predecessor: &PodUid,
) -> SyncReport {
    let failure = StartFailure {
        container: None,
        reason: Reason::WaitingForPodTermination,
        message: format!("the pod of the same name with UID {predecessor} still runs"),
        retry: Retry::Soon,
        retry_at: deps.clock.now().checked_add(PREDECESSOR_RETRY).ok(),
    };
    not_started(job, observed, failure)
}

fn wait_for_inputs(
    deps: &WorkerDeps,
    job: SyncJob,
    observed: Arc<ObservedPod>,
    error: InputsError,
) -> SyncReport {
    let failure = inputs_failure(deps, &job.pod, error);
    not_started(job, observed, failure)
}

/// Something the pod refers to cannot be had. A change of the object brings the pod back at
/// once, the time is for what no watch tells.
fn inputs_failure(deps: &WorkerDeps, pod: &Pod, error: InputsError) -> StartFailure {
    let delay = match error.retry {
        Retry::Soon => INPUTS_RETRY_SOON,
        Retry::Later | Retry::Never => INPUTS_RETRY_LATER,
    };
    let (events, message) = (&deps.events, &error.message);
    events.record(pod, None, EventType::Warning, error.reason, message);
    StartFailure {
        container: None,
        reason: error.reason,
        message: error.message,
        retry: error.retry,
        retry_at: deps.clock.now().checked_add(delay).ok(),
    }
}

/// A volume failed, or is still being set up. The VolumeManager has recorded it, tries again by
/// itself and wakes the pod; a pod that asks when the next try is due hears what comes of it. What a
/// volume is to show is looked up by the pod alone: a change of the object brings it back at once,
/// the time is for what no watch tells.
fn volumes_not_ready(
    deps: &WorkerDeps,
    volumes: &PodVolumes,
    error: VolumesNotReady,
) -> StartFailure {
    let withheld = |volume: &PodVolume| matches!(volume.source, VolumeSource::Withheld(..));
    let look = later(deps.clock.now(), INPUTS_RETRY_LATER);
    let look = volumes.iter().any(withheld).then_some(look);
    StartFailure {
        container: None,
        reason: error.reason,
        message: error.message,
        retry: error.retry,
        retry_at: error.retry_at.into_iter().chain(look).min(),
    }
}

/// A sync that ended before it touched anything.
fn not_started(job: SyncJob, observed: Arc<ObservedPod>, failure: StartFailure) -> SyncReport {
    let retry_at = failure.retry_at;
    let outcome = SyncPodOutcome {
        actions: PodActions::default(),
        failures: vec![failure],
        backoff: job.backoff,
        timings: StartTimings::default(),
        changed: false,
        retry_at,
        resync_at: None,
        cancelled: false,
    };
    SyncReport {
        outcome: Some(outcome),
        ..SyncReport::of(Ok(observed))
    }
}

/// Stops everything of a pod and makes sure that it stopped.
///
/// What lives is taken from the runtime's lists, not from a read of the pod: a pod of which a
/// status call hangs can still be stopped.
pub async fn sync_terminating_pod(
    deps: &WorkerDeps,
    uid: &PodUid,
    pod: Option<SharedPod>,
    grace: Duration,
) -> Result<Arc<ObservedPod>, JobError> {
    let seen = deps.pleg.cache.get(uid);
    let seen = seen.unwrap_or_else(|| {
        Arc::new(ObservedPod {
            uid: uid.clone(),
            ..ObservedPod::default()
        })
    });
    let request = KillPodRequest {
        pod: pod.clone(),
        observed: Arc::clone(&seen),
        grace,
        message: String::new(),
    };
    deps.runtime.kill_pod(request).await?;
    let observed = read_stopped_pod(deps, uid, seen).await?;
    Ok(match &pod {
        Some(pod) => read_termination_messages(deps, pod, observed).await,
        None => observed,
    })
}

/// Reads how the containers of a stopped pod ended. The lists decide whether it is stopped: if it
/// cannot be read, the ends that nothing shows are unknown.
async fn read_stopped_pod(
    deps: &WorkerDeps,
    uid: &PodUid,
    mut last: Arc<ObservedPod>,
) -> Result<Arc<ObservedPod>, JobError> {
    for _ in 0..MAX_FINAL_READS {
        let read = final_read(deps, uid).await;
        if let Some(observed) = read.as_ref().filter(|observed| !observed.is_alive()) {
            return Ok(Arc::clone(observed));
        }
        if let Some(left) = deps.runtime.live_objects(uid).await?.first() {
            return Err(JobError {
                message: format!("{left} still runs after it was stopped"),
                retry: Retry::Soon,
            });
        }
        match read {
            // older than the lists
            Some(observed) => last = observed,
            None => break,
        }
    }
    tracing::warn!(pod = %uid, "stopped pod not readable, the ends of its containers are unknown");
    Ok(Arc::new(with_unseen_ends(&last)))
}

/// Reads a pod; `None` if that fails, or if a call of the pod hangs.
async fn final_read(deps: &WorkerDeps, uid: &PodUid) -> Option<Arc<ObservedPod>> {
    let hung = async {
        while deps.hung.for_pod(uid).is_empty() {
            tokio::time::sleep(HUNG_READ_CHECK_INTERVAL).await;
        }
        // known to hang from before: it may be answered this time
        tokio::time::sleep(HUNG_READ_CHECK_INTERVAL).await;
    };
    tokio::select! {
        biased;
        read = deps.pleg.inspect(uid) => read.ok(),
        () = hung => None,
        () = tokio::time::sleep(FINAL_READ_TIMEOUT) => None,
    }
}

/// Releases volumes and directories. The dead containers and sandboxes go with the garbage
/// collection, so that their logs stay readable meanwhile.
pub async fn sync_terminated_pod(deps: &WorkerDeps, uid: &PodUid) -> Result<(), JobError> {
    deps.volumes.tear_down(uid, Releaser::Worker).await?;
    let released = deps.runtime.cleanup_pod(uid).await;
    released.map_err(|error| JobError {
        message: error.to_string(),
        retry: error.retry(),
    })
}
