//! The jobs of a worker. Each is a future that ends with one result, soon after its token is
//! cancelled. This module has the sync, `terminate` the terminating and the terminated one.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use windlass_actors::InspectError;
use windlass_pod_lifecycle::actions::{ActionsInput, PodActions, compute_pod_actions};
use windlass_pod_lifecycle::backoff::BackoffTable;
use windlass_pod_lifecycle::deadline::{DeadlineInput, is_past_deadline};
use windlass_pod_lifecycle::pod_worker::JobId;
use windlass_pod_status::status::{Failures, PodSizes, StatusInput, generate_status};
use windlass_runtime::{KillPodError, StartFailure, SyncPodOutcome, SyncPodRequest};
use windlass_runtime_config::port::{InputsError, PodInputs};
use windlass_timelines::{RecordGuard, RecordKey, RecordKind, RecordOutcome};
use windlass_types::corev1::PodStatus;
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::view::{EventType, StartTimings};
use windlass_types::{
    ContainerState, ObservedPod, Phase, Pod, PodExt, PodProbeResults, PodUid, ReadyVolumes, Reason,
    Retry, SharedPod, Timestamp, VolumesNotReady, later,
};
use windlass_volume_plan::volume_source::{PodVolume, PodVolumes, VolumeSource, needs_resync};

use super::WorkerDeps;
use super::claims::{claim_devices, prepare_claims};
use crate::start_limiter::StartSlot;

/// Interval at which a pod checks whether another with the same full name has terminated.
const NAME_CONFLICT_RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Timeout of a volume refresh in the sync of a running pod.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for reading termination messages in a sync.
const TERMINATION_MESSAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Back-off after a failed API server request.
const INPUTS_SHORT_BACKOFF: Duration = Duration::from_secs(1);
/// Back-off after an object was missing or invalid; a change of the object ends it.
const INPUTS_LONG_BACKOFF: Duration = Duration::from_secs(30);

/// Time that a starting pod waits for its volumes before it reports them as a blocker. The
/// VolumeManager requeues the pod when they are ready.
const VOLUMES_TIMEOUT: Duration = Duration::from_secs(10);

/// Event of a job for its worker.
#[derive(Debug)]
pub enum JobEvent {
    /// Progress of a sync.
    Progress(JobId, Progress),
    /// A sync ended.
    Synced(JobId, Box<SyncReport>),
    /// A terminating sync ended.
    Killed(JobId, Result<Arc<ObservedPod>, JobError>),
    /// A terminated sync ended.
    Released(JobId, Result<(), JobError>),
    /// The job was cancelled.
    Cancelled(JobId),
}

/// Progress of a sync.
#[derive(Debug)]
pub enum Progress {
    /// Observed pod before the sync.
    Observed(Arc<ObservedPod>),
    /// Time at which the sync got its start slot.
    Dispatched(Timestamp),
}

/// Error of a whole job.
#[derive(Clone, Debug)]
pub struct JobError {
    /// Text.
    pub message: String,
    /// Retry class.
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

/// Cancellation of a sync: at the next await, but its part in the runtime ends by itself, so that a
/// container start in progress is not cut off.
#[derive(Clone, Debug)]
pub struct SyncCancellation {
    token: CancellationToken,
    /// Held while the runtime executes the plan.
    executing: Arc<Mutex<()>>,
}

impl SyncCancellation {
    /// Cancelled with the token.
    pub fn new(token: CancellationToken) -> Self {
        Self {
            token,
            executing: Arc::default(),
        }
    }

    /// Waits until the sync is cancelled and may be dropped. The runtime ends its part at once, or after
    /// a container start in progress, for which it waits 10 s at most.
    pub(crate) async fn may_drop(&self) {
        self.token.cancelled().await;
        drop(self.executing.lock().await);
    }

    /// Executes the part of the sync that ends by itself soon after the cancellation.
    async fn execute<T>(&self, part: impl Future<Output = T>) -> T {
        let _executing = self.executing.lock().await;
        part.await
    }
}

/// Result of a sync.
#[derive(Debug)]
pub struct SyncReport {
    /// Observed pod after the sync.
    pub observed: Result<Arc<ObservedPod>, JobError>,
    /// Outcome; `None` if the pod could not be read, is terminal or past its deadline.
    pub outcome: Option<SyncPodOutcome>,
    /// Problems that block nothing, such as an outdated volume; `None` if not checked.
    pub issues: Option<Vec<String>>,
}

impl SyncReport {
    /// Outcome for the pod's timeline: the plan or the first failure.
    pub(crate) fn record_outcome(&self) -> RecordOutcome {
        if let Err(error) = &self.observed {
            return RecordOutcome::failed(&error.message);
        }
        match &self.outcome {
            None => RecordOutcome::decided("terminal phase"),
            Some(outcome) if outcome.cancelled => RecordOutcome::Cancelled,
            Some(outcome) => match outcome.failures.first() {
                None => RecordOutcome::decided(&outcome.actions),
                Some(failure) => {
                    RecordOutcome::failed(format_args!("{}: {}", failure.reason, failure.message))
                }
            },
        }
    }

    /// True if the status cache may lack what this or an earlier sync (`before`) changed: the
    /// inspection after it failed.
    pub(crate) fn has_unread_changes(&self, before: bool) -> bool {
        let changed = self.outcome.as_ref().is_some_and(|it| it.changed);
        self.observed.is_err() && (before || changed)
    }

    /// A sync without actions.
    fn without_outcome(observed: Result<Arc<ObservedPod>, JobError>) -> Self {
        Self {
            observed,
            outcome: None,
            issues: None,
        }
    }
}

/// Input of a sync.
#[derive(Debug)]
pub struct SyncJob {
    /// The desired pod.
    pub pod: SharedPod,
    /// Its back-offs.
    pub backoff: BackoffTable,
    /// Its probe results.
    pub probe_results: Arc<PodProbeResults>,
    /// Its last published status.
    pub status: Arc<PodStatus>,
    /// Observed pod of that status; `None` before the first sync.
    pub known: Option<Arc<ObservedPod>>,
    /// The status cache may lack what an earlier sync changed.
    pub must_inspect: bool,
    /// Whether the pod network is ready.
    pub network_ready: bool,
}

/// Why a sync ends before it changes anything.
#[derive(Debug)]
enum Hold {
    /// The worker terminates the pod: it is past its deadline or in a terminal phase.
    Ended,
    /// The runtime could not be read.
    Failed(JobError),
    /// The pod cannot start yet.
    NotStarted {
        /// The cause.
        failure: StartFailure,
        /// Issues of its volumes; `None` if not checked.
        issues: Option<Vec<String>>,
    },
}

impl From<StartFailure> for Hold {
    fn from(failure: StartFailure) -> Self {
        Self::NotStarted {
            failure,
            issues: None,
        }
    }
}

impl Hold {
    /// The report of the sync that it ends.
    fn report(self, job: SyncJob, observed: Arc<ObservedPod>) -> SyncReport {
        match self {
            Self::Ended => SyncReport::without_outcome(Ok(observed)),
            Self::Failed(error) => SyncReport::without_outcome(Err(error)),
            Self::NotStarted { failure, issues } => SyncReport {
                issues,
                ..not_started(job, observed, failure)
            },
        }
    }
}

/// What a sync needs besides the pod: its references and volumes.
#[derive(Debug)]
struct Prepared {
    inputs: PodInputs,
    volumes: ReadyVolumes,
    /// Volumes of a running pod that could not be refreshed.
    unready: Option<StartFailure>,
    /// Issues of the volumes; `None` if not checked.
    issues: Option<Vec<String>>,
}

/// Reconciles a pod: compares desired and observed state and executes the plan.
///
/// In upstream's order: the observed pod, checks that may end the sync, references, volumes,
/// resource claims, then the runtime. `progress` receives a new observation and the time of the
/// start slot. References are resolved before the slot is taken, so that a missing object does not
/// delay other pods.
pub async fn sync_pod(
    deps: &WorkerDeps,
    mut job: SyncJob,
    cancel: SyncCancellation,
    progress: &(impl Fn(Progress) + Sync),
) -> SyncReport {
    let observed = match observe(deps, &job).await {
        Ok(observed) => observed,
        Err(error) => return SyncReport::without_outcome(Err(error)),
    };
    let (policy, started) = (deps.settings.restart_policy, deps.settings.agent_started);
    job.backoff.catch_up(&job.pod, &observed, policy, started);
    if job.known.as_ref() != Some(&observed) {
        progress(Progress::Observed(Arc::clone(&observed)));
    }
    let actions = planned_actions(deps, &job, &observed);
    let starts = actions.starts_something();
    if let Err(hold) = check(deps, &job, &observed, starts).await {
        return hold.report(job, observed);
    }
    if starts
        && observed.is_empty()
        && claim_devices(deps, &job.pod).is_empty()
        && let Some(begun) = begin_sandbox_first(deps, &job.pod).await
    {
        let started = start_sandbox_first(deps, job, observed, begun, cancel, progress);
        return Box::pin(started).await;
    }
    let mut prepared = match prepare(deps, &job.pod, starts).await {
        Ok(prepared) => prepared,
        Err(hold) => return hold.report(job, observed),
    };
    if starts {
        match prepare_claims(deps, &job.pod, &actions).await {
            Ok(devices) => prepared.inputs.claim_devices = devices,
            Err(failure) => return Hold::from(failure).report(job, observed),
        }
    }
    let slot = start_slot(deps, &job.pod.uid(), starts).await;
    if starts {
        progress(Progress::Dispatched(deps.clock.now()));
    }
    execute(deps, job, observed, (prepared, slot), cancel).await
}

/// The observed pod, with termination messages.
async fn observe(deps: &WorkerDeps, job: &SyncJob) -> Result<Arc<ObservedPod>, JobError> {
    let uid = job.pod.uid();
    // a container that the cache lacks would be started again
    let observed = match job.must_inspect {
        true => deps.pleg.inspect(&uid).await?,
        false => deps.pleg.observed(&uid).await?,
    };
    Ok(with_termination_messages(deps, &job.pod, observed).await)
}

/// Checks whether the pod may be synced; `starts` if something of it is to be started.
async fn check(
    deps: &WorkerDeps,
    job: &SyncJob,
    observed: &ObservedPod,
    starts: bool,
) -> Result<(), Hold> {
    // its worker terminates it after the progress event
    if past_deadline(deps, job, observed) {
        return Err(Hold::Ended);
    }
    if !starts {
        return Ok(());
    }
    check_confirmed(deps, &job.pod, observed)?;
    if is_terminal(deps, job, observed) {
        return Err(Hold::Ended);
    }
    check_full_name(deps, &job.pod, observed).await
}

/// Holds back a pod from the checkpoint until the API server confirms it: it may have been deleted
/// while the agent was down. Remains of a reboot do not show otherwise. A pod whose kept objects are
/// in use starts without that.
fn check_confirmed(deps: &WorkerDeps, pod: &Pod, observed: &ObservedPod) -> Result<(), Hold> {
    if observed.is_alive() || !pod.is_restored() || deps.objects.kept_since(&pod.uid()).is_some() {
        return Ok(());
    }
    let failure = StartFailure {
        container: None,
        reason: Reason::WaitingForApiServer,
        message: "restored from the checkpoint; waiting for the API server to confirm the pod"
            .to_owned(),
        retry: Retry::Later,
        retry_at: None,
    };
    Err(failure.into())
}

/// Holds back a new static pod while another with the same full name is running. A pod with objects
/// in the runtime has passed this check before.
async fn check_full_name(deps: &WorkerDeps, pod: &Pod, observed: &ObservedPod) -> Result<(), Hold> {
    let ignores = mutated(Mutation::StaticPodsOverlap) || mutated(Mutation::StaticPodIgnoresOrphan);
    if !pod.is_static() || !observed.is_empty() || ignores {
        return Ok(());
    }
    match deps.runtime.live_pod_with_same_name(pod).await {
        Ok(None) => Ok(()),
        Ok(Some(other)) => Err(wait_for_pod_termination(deps, &other).into()),
        Err(error) => Err(Hold::Failed(JobError {
            message: error.to_string(),
            retry: error.retry(),
        })),
    }
}

/// Resolves the references of a pod and sets up its volumes.
async fn prepare(deps: &WorkerDeps, pod: &SharedPod, starts: bool) -> Result<Prepared, Hold> {
    let resolved = resolved_inputs(deps, pod, starts).await;
    let mut inputs = resolved.map_err(|error| inputs_failure(deps, pod, error))?;
    let (volumes, unready) = match set_up(deps, pod, &inputs.volumes, starts).await {
        Ok(ready) => (ready, None),
        Err(error) => {
            let failure = volumes_not_ready(deps, &inputs.volumes, error);
            if starts {
                return Err(failure.into());
            }
            // running containers keep their volumes
            (ReadyVolumes::default(), Some(failure))
        }
    };
    let checked = !inputs.volumes.is_empty() && unready.is_none();
    let issues = checked.then(|| volumes.kept.clone());
    if let Some(error) = inputs.missing.take().filter(|_| starts) {
        return Err(Hold::NotStarted {
            failure: inputs_failure(deps, pod, error),
            issues,
        });
    }
    Ok(Prepared {
        inputs,
        volumes,
        unready,
        issues,
    })
}

/// Executes the plan in the runtime, then frees the start slot and reads the pod again.
async fn execute(
    deps: &WorkerDeps,
    job: SyncJob,
    observed: Arc<ObservedPod>,
    (prepared, slot): (Prepared, Option<StartSlot>),
    cancel: SyncCancellation,
) -> SyncReport {
    let pod = SharedPod::clone(&job.pod);
    let request = SyncPodRequest {
        pod: job.pod,
        observed: Arc::clone(&observed),
        backoff: job.backoff,
        probe_results: job.probe_results,
        network_ready: job.network_ready,
        inputs: Arc::new(prepared.inputs),
        volumes: prepared.volumes.mounted,
    };
    let sync = deps.runtime.sync_pod(request, cancel.token.clone());
    let mut outcome = cancel.execute(sync).await;
    if let Some(failure) = prepared.unready {
        outcome.retry_at = outcome.retry_at.into_iter().chain(failure.retry_at).min();
        outcome.failures.push(failure);
    }
    drop(slot);
    SyncReport {
        observed: observed_after(deps, &pod, &outcome, observed).await,
        outcome: Some(outcome),
        issues: prepared.issues,
    }
}

/// Takes a start slot for a pod that needs only tokens from the API server; `None` for others.
async fn begin_sandbox_first(
    deps: &WorkerDeps,
    pod: &SharedPod,
) -> Option<(PodInputs, Option<StartSlot>)> {
    deps.objects.sandbox_inputs(pod)?;
    let slot = start_slot(deps, &pod.uid(), true).await;
    // resolved again: the wait for the slot may have been long
    let inputs = deps.objects.sandbox_inputs(pod)?;
    Some((inputs, slot))
}

/// Starts a new pod that needs only tokens from the API server: its sandbox is created while they
/// are requested.
async fn start_sandbox_first(
    deps: &WorkerDeps,
    job: SyncJob,
    observed: Arc<ObservedPod>,
    (sandbox_inputs, slot): (PodInputs, Option<StartSlot>),
    cancel: SyncCancellation,
    progress: &(impl Fn(Progress) + Sync),
) -> SyncReport {
    let pod = SharedPod::clone(&job.pod);
    progress(Progress::Dispatched(deps.clock.now()));
    let issues = OnceLock::new();
    let container_inputs = async {
        let resolved = resolved_inputs(deps, &pod, true).await;
        let mut inputs = resolved.map_err(|error| inputs_failure(deps, &pod, error))?;
        let ready = set_up(deps, &pod, &inputs.volumes, true).await;
        let ready = ready.map_err(|error| volumes_not_ready(deps, &inputs.volumes, error))?;
        // only this job sets it
        let _ = issues.set(ready.kept);
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
    let inputs = Some(Box::pin(container_inputs) as _);
    let sync = deps
        .runtime
        .sync_new_pod(request, inputs, cancel.token.clone());
    let outcome = cancel.execute(sync).await;
    drop(slot);
    SyncReport {
        observed: observed_after(deps, &pod, &outcome, observed).await,
        outcome: Some(outcome),
        issues: issues.into_inner(),
    }
}

/// Acquires a start slot for a sync that starts something.
async fn start_slot(deps: &WorkerDeps, uid: &PodUid, starts: bool) -> Option<StartSlot> {
    let record = waits(deps, uid, "start slot", starts);
    let slot = match starts {
        true => deps.start_limiter.acquire().await,
        false => None,
    };
    ended(record, RecordOutcome::Done);
    slot
}

/// Observed pod after a sync.
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

/// Begins the timeline record of a wait, for a sync that starts something.
pub(super) fn waits(
    deps: &WorkerDeps,
    uid: &PodUid,
    for_what: &'static str,
    starts: bool,
) -> Option<RecordGuard> {
    let what = || RecordKey::new(RecordKind::Wait, for_what);
    starts.then(|| deps.timelines.begin(uid, what()))
}

pub(super) fn ended(record: Option<RecordGuard>, outcome: RecordOutcome) {
    if let Some(record) = record {
        record.end(outcome);
    }
}

/// Adds termination messages, so that a terminal phase is not published without them.
async fn with_termination_messages(
    deps: &WorkerDeps,
    pod: &Pod,
    observed: Arc<ObservedPod>,
) -> Arc<ObservedPod> {
    let read = read_termination_messages(deps, pod, Arc::clone(&observed));
    let read = tokio::time::timeout(TERMINATION_MESSAGE_TIMEOUT, read).await;
    read.unwrap_or(observed)
}

/// True if the pod is in a terminal phase although its containers were removed: they are not
/// created again.
fn is_terminal(deps: &WorkerDeps, job: &SyncJob, observed: &ObservedPod) -> bool {
    let failures = Failures::new();
    let status = generate_status(StatusInput {
        previous: Some(&*job.status).filter(|status| status.phase.is_some()),
        ..deps.status_input(
            &job.pod,
            observed,
            &job.probe_results,
            &failures,
            PodSizes::default(),
        )
    });
    Phase::is_terminal_in(&status) && !mutated(Mutation::TerminatedPodRunsAgain)
}

/// Reads the termination messages of exited containers, which the runtime does not know.
pub(super) async fn read_termination_messages(
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

/// Resolves the pod's references, with a timeline record of the wait.
async fn resolved_inputs(
    deps: &WorkerDeps,
    pod: &SharedPod,
    starts: bool,
) -> Result<PodInputs, InputsError> {
    let record = waits(deps, &pod.uid(), "references", starts);
    let resolved = inputs(deps, pod, starts).await;
    let outcome = RecordOutcome::from_result(&resolved.as_ref().map_err(|error| &error.message));
    ended(record, outcome);
    resolved
}

/// Sets up the pod's volumes, with a timeline record of the wait.
async fn set_up(
    deps: &WorkerDeps,
    pod: &SharedPod,
    volumes: &Arc<PodVolumes>,
    starts: bool,
) -> Result<ReadyVolumes, VolumesNotReady> {
    let timeout = if starts {
        VOLUMES_TIMEOUT
    } else {
        REFRESH_TIMEOUT
    };
    let record = waits(deps, &pod.uid(), "volumes", starts);
    let ready = deps.volumes.set_up(pod, volumes, timeout).await;
    let outcome = RecordOutcome::from_result(&ready.as_ref().map_err(|error| &error.message));
    ended(record, outcome);
    ready
}

/// Resolves the pod's references. A running pod only refreshes its volumes, with a short timeout.
async fn inputs(
    deps: &WorkerDeps,
    pod: &SharedPod,
    starts: bool,
) -> Result<PodInputs, InputsError> {
    if starts {
        return deps.objects.inputs(pod).await;
    }
    let mut volumes = PodExt::spec(&**pod).volumes.iter().flatten();
    if !volumes.any(needs_resync) {
        return Ok(PodInputs::default());
    }
    let refreshed = tokio::time::timeout(REFRESH_TIMEOUT, deps.objects.inputs(pod)).await;
    match refreshed {
        Ok(Ok(inputs)) => Ok(inputs),
        // the pod keeps the old content
        Ok(Err(error)) => {
            tracing::debug!(pod = %pod.full_name(), %error, "volumes not refreshed");
            Ok(PodInputs::default())
        }
        Err(_) => Ok(PodInputs::default()),
    }
}

fn past_deadline(deps: &WorkerDeps, job: &SyncJob, observed: &ObservedPod) -> bool {
    is_past_deadline(DeadlineInput {
        pod: &job.pod,
        status: &job.status,
        observed,
        now: deps.clock.now(),
    })
}

fn planned_actions(deps: &WorkerDeps, job: &SyncJob, observed: &ObservedPod) -> PodActions {
    compute_pod_actions(ActionsInput {
        pod: &job.pod,
        observed,
        backoff: &job.backoff,
        probe_results: &job.probe_results,
        policy: deps.settings.restart_policy,
        now: deps.clock.now(),
    })
}

/// Reports that another pod with the same full name is running. It has no worker: the static pod
/// was edited while the agent was down. Housekeeping stops it once its sources are ready.
fn wait_for_pod_termination(deps: &WorkerDeps, other: &PodUid) -> StartFailure {
    StartFailure {
        container: None,
        reason: Reason::WaitingForPodTermination,
        message: format!("waiting for the termination of pod {other} with the same name"),
        retry: Retry::Soon,
        retry_at: deps
            .clock
            .now()
            .checked_add(NAME_CONFLICT_RETRY_INTERVAL)
            .ok(),
    }
}

/// Reports a reference that cannot be resolved. A change of the object requeues the pod
/// immediately; the retry is for changes without a watch.
fn inputs_failure(deps: &WorkerDeps, pod: &Pod, error: InputsError) -> StartFailure {
    let delay = match error.retry {
        Retry::Soon => INPUTS_SHORT_BACKOFF,
        Retry::Later | Retry::Never => INPUTS_LONG_BACKOFF,
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

/// Reports volumes that failed or are not set up yet. The VolumeManager retries them and requeues
/// the pod. Unavailable payloads are resolved by the pod: a change of the object requeues it, the
/// retry is for changes without a watch.
fn volumes_not_ready(
    deps: &WorkerDeps,
    volumes: &PodVolumes,
    error: VolumesNotReady,
) -> StartFailure {
    let unavailable =
        |volume: &PodVolume| matches!(volume.source, VolumeSource::PayloadUnavailable(..));
    let next_check = later(deps.clock.now(), INPUTS_LONG_BACKOFF);
    let next_check = volumes.iter().any(unavailable).then_some(next_check);
    StartFailure {
        container: None,
        reason: error.reason,
        message: error.message,
        retry: error.retry,
        retry_at: error.retry_at.into_iter().chain(next_check).min(),
    }
}

/// A sync that ended before it changed anything.
fn not_started(job: SyncJob, observed: Arc<ObservedPod>, failure: StartFailure) -> SyncReport {
    let retry_at = failure.retry_at;
    let outcome = SyncPodOutcome {
        actions: PodActions::default(),
        failures: vec![failure],
        backoff: job.backoff,
        timings: StartTimings::default(),
        resized: None,
        changed: false,
        retry_at,
        resync_at: None,
        cancelled: false,
    };
    SyncReport {
        outcome: Some(outcome),
        ..SyncReport::without_outcome(Ok(observed))
    }
}

#[cfg(test)]
mod tests;
