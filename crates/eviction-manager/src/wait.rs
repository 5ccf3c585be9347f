//! Waits for the end of an evicted pod.

use std::time::Duration;

use tokio::time::timeout;
use windlass_status::PodStatusStore;
use windlass_types::PodUid;

/// Time for the cleanup of an evicted pod after its grace period (upstream `podCleanupTimeout`).
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until the pod's containers are stopped and its volumes torn down, or its entry is removed.
/// False if that takes longer than its grace period and [`CLEANUP_TIMEOUT`].
pub(crate) async fn wait_for_end(store: &PodStatusStore, uid: &PodUid, grace: Duration) -> bool {
    let released = async {
        let mut changes = store.subscribe();
        while store.get(uid).is_some_and(|entry| !entry.released) {
            if changes.next().await.is_none() {
                return;
            }
        }
    };
    timeout(grace.saturating_add(CLEANUP_TIMEOUT), released)
        .await
        .is_ok()
}
