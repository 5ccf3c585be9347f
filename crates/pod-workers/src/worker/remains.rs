//! Removes what a removed pod left in the runtime, so that a pod with the same UID does not adopt
//! its dead containers.

use std::time::Duration;

use windlass_types::PodUid;

use super::WorkerDeps;

/// Delay before the first retry of a failed removal; it doubles with each further one.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum delay: the interval of garbage collections.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Attempts, with waits of 1 + 2 + 4 + 8 + 16 s between them, after which containers that the runtime
/// refuses to remove are left to garbage collection: they must not keep the removed pod.
const ATTEMPTS: u32 = 6;
/// Timeout of the inspection that updates the status cache: a hung call must not keep the removed
/// pod. The PLEG repeats the inspection when the call returns.
const CACHE_UPDATE_TIMEOUT: Duration = Duration::from_secs(3);

/// Removes the dead containers of a terminated pod, its sandboxes and its logs. Retries until no
/// dead container is left or the runtime has refused it [`ATTEMPTS`] times, then updates the status
/// cache.
pub(crate) async fn remove_remains(deps: &WorkerDeps, uid: &PodUid) {
    let mut delay = RETRY_INTERVAL;
    let mut refused = 0;
    loop {
        let removed = deps.runtime.remove_remains(uid).await;
        let (Ok(report) | Err(report)) = &removed;
        for failure in &report.failures {
            tracing::warn!(pod = %uid, failure, "removing remains of the pod failed");
        }
        if removed.is_ok() {
            break;
        }
        // without a list the runtime is down
        refused += u32::from(report.list_error.is_none());
        if refused == ATTEMPTS {
            tracing::warn!(pod = %uid, "remains of the pod left to garbage collection");
            break;
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(MAX_RETRY_INTERVAL);
    }
    // housekeeping may have removed the containers just before
    if deps.pleg.cache.get(uid).is_some() {
        let read = tokio::time::timeout(CACHE_UPDATE_TIMEOUT, deps.pleg.inspect(uid)).await;
        if !matches!(read, Ok(Ok(_))) {
            tracing::warn!(pod = %uid, "status cache of removed pod not updated");
        }
    }
}
