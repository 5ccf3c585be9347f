//! The three jobs of a worker: sync, kill, release. Each is a future that always ends with one
//! answer, and ends soon after its token is cancelled.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use windlass_actors::InspectError;
use windlass_core::actions::{ActionsInput, PodActions, compute_pod_actions};
use windlass_core::backoff::BackoffTable;
use windlass_core::pod_worker::JobId;
use windlass_runtime::{
    KillPodError, KillPodRequest, PodRuntime, StartFailure, SyncPodOutcome, SyncPodRequest,
};
use windlass_types::view::StartTimings;
use windlass_types::{
    ContainerState, ObservedPod, Pod, PodExt, PodUid, Reason, Retry, SharedPod, Timestamp,
};

use super::WorkerDeps;

/// Pause before a pod looks again whether its predecessor has gone; housekeeping, which stops it,
/// comes every two seconds.
const PREDECESSOR_RETRY: Duration = Duration::from_millis(500);

/// What a job tells its worker.
#[derive(Debug)]
pub enum JobAnswer {
    /// A sync got its start slot at this moment.
    Dispatched(JobId, Timestamp),
    /// A sync ended.
    Synced(JobId, Box<SyncReport>),
    /// A kill ended.
    Killed(JobId, Result<Arc<ObservedPod>, JobError>),
    /// A release ended.
    Released(JobId, Result<(), JobError>),
    /// The job was cancelled.
    Cancelled(JobId),
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

/// What came of a sync.
#[derive(Debug)]
pub struct SyncReport {
    /// The pod as it was found afterwards.
    pub observed: Result<Arc<ObservedPod>, JobError>,
    /// What was done; `None` if the pod could not be read.
    pub outcome: Option<SyncPodOutcome>,
}

/// What a sync works on.
#[derive(Debug)]
pub struct SyncJob {
    /// The pod as asked.
    pub pod: SharedPod,
    /// Its delays.
    pub backoff: BackoffTable,
    /// The pod network can be used.
    pub network_ready: bool,
}

/// Compares the pod with what runs and carries out the difference.
///
/// `dispatched` is told when the pod has its start slot; a sync that starts nothing needs none.
pub async fn sync(
    deps: &WorkerDeps,
    job: SyncJob,
    cancel: CancellationToken,
    dispatched: impl FnOnce(Timestamp),
) -> SyncReport {
    let uid = job.pod.uid();
    let observed = match deps.pleg.observed(&uid).await {
        Ok(observed) => observed,
        Err(error) => {
            return SyncReport {
                observed: Err(error.into()),
                outcome: None,
            };
        }
    };
    let starts = starts_something(deps, &job, &observed);
    // once a pod has something in the runtime, its predecessor is gone
    if starts && job.pod.is_static() && observed.is_empty() {
        match deps.runtime.namesake(&job.pod).await {
            Ok(None) => {}
            Ok(Some(uid)) => return wait_for_predecessor(deps, job, observed, &uid),
            Err(error) => {
                let error = JobError {
                    message: error.to_string(),
                    retry: error.retry(),
                };
                return SyncReport {
                    observed: Err(error),
                    outcome: None,
                };
            }
        }
    }
    let slot = match starts {
        true => deps.pacer.acquire().await,
        false => None,
    };
    dispatched(deps.clock.now());
    let pod = SharedPod::clone(&job.pod);
    let request = SyncPodRequest {
        pod: job.pod,
        observed: Arc::clone(&observed),
        backoff: job.backoff,
        network_ready: job.network_ready,
    };
    let outcome = deps.runtime.sync_pod(request, cancel).await;
    drop(slot);
    let observed = if outcome.changed {
        deps.pleg.inspect(&uid).await.map_err(JobError::from)
    } else {
        Ok(observed)
    };
    let observed = match observed {
        Ok(observed) => Ok(with_termination_messages(deps, &pod, observed).await),
        Err(error) => Err(error),
    };
    SyncReport {
        observed,
        outcome: Some(outcome),
    }
}

/// Adds what ended containers left as their termination message; the runtime does not know it.
async fn with_termination_messages(
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

fn starts_something(deps: &WorkerDeps, job: &SyncJob, observed: &ObservedPod) -> bool {
    let actions = compute_pod_actions(ActionsInput {
        pod: &job.pod,
        observed,
        backoff: &job.backoff,
        policy: deps.settings.restart_policy,
        now: deps.clock.now(),
    });
    actions.create_sandbox
        || !actions.init_to_start.is_empty()
        || !actions.containers_to_start.is_empty()
}

/// A pod of the same name is alive. Among pods with a worker the registry keeps that from
/// happening; this one was edited while the agent was away, has no worker, and is stopped by
/// housekeeping once every source has spoken.
fn wait_for_predecessor(
    deps: &WorkerDeps,
    job: SyncJob,
    observed: Arc<ObservedPod>,
    predecessor: &PodUid,
) -> SyncReport {
    let retry_at = deps.clock.now().checked_add(PREDECESSOR_RETRY).ok();
    let failure = StartFailure {
        container: None,
        reason: Reason::WaitingForPredecessor,
        message: format!("the pod of the same name with UID {predecessor} still runs"),
        retry: Retry::Soon,
        retry_at,
    };
    let outcome = SyncPodOutcome {
        actions: PodActions::default(),
        failures: vec![failure],
        backoff: job.backoff,
        timings: StartTimings::default(),
        changed: false,
        retry_at,
        cancelled: false,
    };
    SyncReport {
        observed: Ok(observed),
        outcome: Some(outcome),
    }
}

/// Stops everything of a pod and makes sure that it stopped.
///
/// What lives is taken from the runtime's lists, not from a read of the pod: a pod of which a
/// status call hangs can still be stopped.
pub async fn kill(
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
    if !deps.runtime.alive(uid).await?.is_empty() {
        let observed = Arc::clone(&seen);
        let request = KillPodRequest {
            pod: pod.clone(),
            observed,
            grace,
            message: String::new(),
        };
        deps.runtime.kill_pod(request).await?;
        if let Some(left) = deps.runtime.alive(uid).await?.first() {
            return Err(JobError {
                message: format!("{left} still runs after it was stopped"),
                retry: Retry::Soon,
            });
        }
    }
    // only for the status: the pod is stopped whether it can be read or not
    let observed = deps.pleg.inspect(uid).await.unwrap_or(seen);
    Ok(match &pod {
        Some(pod) => with_termination_messages(deps, pod, observed).await,
        None => observed,
    })
}

/// Releases volumes and directories. The dead containers and sandboxes go with the garbage
/// collection, so that their logs stay readable meanwhile.
pub async fn release(runtime: &PodRuntime, uid: &PodUid) -> Result<(), JobError> {
    runtime.cleanup_pod(uid).await.map_err(|error| JobError {
        message: error.to_string(),
        retry: error.retry(),
    })
}
