//! Waits for the end of an evicted pod.

use std::time::Duration;

use tokio::time::timeout;
use windlass_status::PodStatusStore;
use windlass_types::PodUid;

/// Time for the cleanup of an evicted pod after its grace period (upstream `podCleanupTimeout`).
pub(crate) const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until the pod's containers are stopped and its volumes torn down, or its entry is removed.
/// A pod without an entry has ended if it `had_entry`; a restored pod gets one from its worker.
/// False if that takes longer than `limit`.
pub(crate) async fn wait_for_end(
    store: &PodStatusStore,
    uid: &PodUid,
    mut had_entry: bool,
    limit: Duration,
) -> bool {
    let ended = async {
        let mut changes = store.subscribe();
        loop {
            let entry = store.get(uid);
            if entry.as_ref().map_or(had_entry, |entry| entry.released) {
                return;
            }
            had_entry |= entry.is_some();
            if changes.next().await.is_none() {
                return;
            }
        }
    };
    timeout(limit, ended).await.is_ok()
}

#[cfg(test)]
mod tests {
    //! Changes of the entry of a pod, one a second, during a wait of at most 5 s.

    use tokio::time::{Instant, sleep};
    use windlass_status::PodStatusEntry;
    use windlass_types::{Pod, PodExt, SharedPod};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn check(had_entry: bool, changes: &str, expected: (bool, u64)) {
        let store = PodStatusStore::new();
        let mut pod = Pod::default();
        pod.metadata.uid = Some("hog-uid".to_owned());
        let pod = SharedPod::new(pod);
        let began = Instant::now();
        let change = async {
            for change in changes.split(' ') {
                match change {
                    "none" => {}
                    "removed" => store.remove(&pod.uid()),
                    _ => store.publish(PodStatusEntry {
                        released: change == "released",
                        ..PodStatusEntry::new(SharedPod::clone(&pod))
                    }),
                }
                sleep(SECOND).await;
            }
        };
        let uid = pod.uid();
        let wait = async {
            let has_ended = wait_for_end(&store, &uid, had_entry, 5 * SECOND).await;
            (has_ended, began.elapsed().as_secs())
        };
        let ((), found) = tokio::join!(change, wait);
        assert_eq!(found, expected, "{changes}, had an entry: {had_entry}");
    }

    #[tokio::test(start_paused = true)]
    async fn pod_has_ended_when_it_is_released_or_removed() {
        for had_entry in [true, false] {
            check(had_entry, "published", (false, 5)).await;
            check(had_entry, "published released", (true, 1)).await;
            check(had_entry, "published published removed", (true, 2)).await;
            check(had_entry, "released", (true, 0)).await;
        }
        check(true, "none", (true, 0)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn restored_pod_has_not_ended_before_its_worker_starts() {
        check(false, "none", (false, 5)).await;
        check(false, "none published released", (true, 2)).await;
        check(false, "none published published removed", (true, 3)).await;
    }
}
