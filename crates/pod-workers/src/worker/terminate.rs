//! The jobs of a worker that terminate a pod: stop, and removal of volumes and directories.

use std::sync::Arc;
use std::time::Duration;

use windlass_actors::TearDownRequester;
use windlass_pod_lifecycle::stop::with_unobserved_exits;
use windlass_runtime::KillPodRequest;
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::{ObservedPod, PodUid, Retry, SharedPod};

use super::WorkerDeps;
use super::claims::unprepare_claims;
use super::jobs::{JobError, read_termination_messages};

/// Timeout of the final inspection of a stopped pod, which reads how its containers ended.
const FINAL_READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which that inspection is checked for a hung call; it is abandoned one interval
/// later.
const HUNG_READ_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum final inspections that may still show a stopped pod as running.
const MAX_FINAL_READS: u32 = 3;

/// Input of a terminating sync.
#[derive(Debug)]
pub(crate) struct TerminatingJob {
    /// The pod; `None` for an orphaned one.
    pub(crate) pod: Option<SharedPod>,
    /// Grace period of the containers.
    pub(crate) grace: Duration,
    /// Time since the first terminating sync of this agent run.
    pub(crate) waited: Duration,
}

/// Stops a pod, verifies that it stopped, and unprepares its resource claims.
///
/// Running containers are taken from the runtime's lists, so that a hung status call does not block
/// the stop.
pub(crate) async fn sync_terminating_pod(
    deps: &WorkerDeps,
    uid: &PodUid,
    TerminatingJob { pod, grace, waited }: TerminatingJob,
) -> Result<Arc<ObservedPod>, JobError> {
    let cached = deps.pleg.cache.get(uid);
    let cached = cached.unwrap_or_else(|| {
        Arc::new(ObservedPod {
            uid: uid.clone(),
            ..ObservedPod::default()
        })
    });
    let request = KillPodRequest {
        pod: pod.clone(),
        observed: Arc::clone(&cached),
        grace,
        waited,
        message: String::new(),
    };
    if mutated(Mutation::VolumesUnmountedEarly) {
        let by = TearDownRequester::Worker;
        deps.volumes.tear_down(uid, by).await?;
    }
    deps.runtime.kill_pod(request).await?;
    let observed = read_stopped_pod(deps, uid, cached).await?;
    // before the status is terminal: controllers then deallocate the claims
    unprepare_claims(deps, uid).await?;
    Ok(match &pod {
        Some(pod) => read_termination_messages(deps, pod, observed).await,
        None => observed,
    })
}

/// Reads how the containers of a stopped pod ended. The lists decide whether it is stopped; if the
/// inspection fails, the exit codes are unknown.
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
                message: format!("{left} is still running after the stop"),
                retry: Retry::Soon,
            });
        }
        match read {
            // the inspection is older than the lists
            Some(observed) => last = observed,
            None => break,
        }
    }
    tracing::warn!(pod = %uid, "inspection of stopped pod failed, container exit codes unknown");
    Ok(Arc::new(with_unobserved_exits(&last)))
}

/// Inspects a pod; `None` if that fails or a call of the pod hangs.
async fn final_read(deps: &WorkerDeps, uid: &PodUid) -> Option<Arc<ObservedPod>> {
    let hung = async {
        while deps.hung.for_pod(uid).is_empty() {
            tokio::time::sleep(HUNG_READ_CHECK_INTERVAL).await;
        }
        // the call may have hung before; this attempt may succeed
        tokio::time::sleep(HUNG_READ_CHECK_INTERVAL).await;
    };
    tokio::select! {
        biased;
        read = deps.pleg.inspect(uid) => read.ok(),
        () = hung => None,
        () = tokio::time::sleep(FINAL_READ_TIMEOUT) => None,
    }
}

/// Tears down volumes and removes directories. Dead containers and sandboxes are left to garbage
/// collection, so that their logs stay readable.
pub(crate) async fn sync_terminated_pod(deps: &WorkerDeps, uid: &PodUid) -> Result<(), JobError> {
    deps.volumes
        .tear_down(uid, TearDownRequester::Worker)
        .await?;
    let released = deps.runtime.cleanup_pod(uid).await;
    released.map_err(|error| JobError {
        message: error.to_string(),
        retry: error.retry(),
    })
}
