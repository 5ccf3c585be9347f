//! Removes what a removed pod left in the runtime, so that a pod with the same UID does not adopt
//! its dead containers.

use std::time::Duration;

use windlass_types::PodUid;

use super::WorkerDeps;

/// Delay before the first retry of a failed removal; it doubles with each further one.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum delay: the interval of garbage collections.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Timeout of the inspection that updates the status cache: a hung call must not keep the removed
/// pod. The PLEG repeats the inspection when the call returns.
const CACHE_UPDATE_TIMEOUT: Duration = Duration::from_secs(3);

/// Removes the dead containers of a terminated pod, its sandboxes and its logs. Retries until no
/// dead container is left, then updates the status cache.
pub(crate) async fn remove_remains(deps: &WorkerDeps, uid: &PodUid) {
    let mut delay = RETRY_INTERVAL;
    loop {
        let removed = deps.runtime.remove_remains(uid).await;
        let (Ok(report) | Err(report)) = &removed;
        for failure in &report.failures {
            tracing::warn!(pod = %uid, failure, "removing remains of the pod failed");
        }
        if removed.is_ok() {
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
