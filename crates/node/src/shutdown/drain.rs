//! Stops one group of pods after the other.
//!
//! A group ends when the API server has the terminal phases of its pods: the next group may contain
//! the network of the node, and the host stops the agent after the last one.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use windlass_actors::TerminatePod;
use windlass_mailboxes::SlotSender;
use windlass_pod_lifecycle::shutdown::{ShutdownGroup, ShutdownPlan, phase_override};
use windlass_status::PodStatusStore;
use windlass_types::view::PodWorkerState;
use windlass_types::{PodExt, PodUid, SharedPod};

/// Returns the pods to stop. Includes pods that are terminating, because their grace period may
/// have to shrink.
pub(super) fn active_pods(
    status_store: &PodStatusStore,
) -> impl Iterator<Item = SharedPod> + use<> {
    let entries = status_store.snapshot().into_iter();
    entries
        .filter(|entry| entry.worker_state != PodWorkerState::TerminatedPod)
        .map(|entry| entry.pod)
}

/// Time for the statuses of a group that was stopped. They are sent within a second, unless the API
/// server is unreachable; then the host must not be delayed further.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Stops the groups in order. A group ends when its pods and their volumes are torn down and their
/// statuses are sent, or at its deadline.
pub(super) async fn drain(
    plan: ShutdownPlan,
    terminations: SlotSender<PodUid, TerminatePod>,
    status_store: PodStatusStore,
) {
    for group in plan.groups {
        let deadline = Instant::now() + group.period.period;
        let priority = group.period.priority;
        tracing::info!(
            priority,
            pods = group.pods.len(),
            "shutdown: stopping a group of pods"
        );
        for pod in &group.pods {
            terminations.put(pod.uid(), termination(&group, pod));
        }
        let uids: Vec<PodUid> = group.pods.iter().map(|pod| pod.uid()).collect();
        match timeout_at(deadline, released(uids.clone(), &status_store)).await {
            Ok(()) => tracing::info!(priority, "shutdown: group of pods stopped"),
            Err(_) => tracing::warn!(priority, "shutdown: group of pods not stopped in time"),
        }
        let deadline = deadline.min(Instant::now() + REPORT_TIMEOUT);
        let reported = status_store.reported_as_finished(&uids);
        if timeout_at(deadline, reported).await.is_err() {
            tracing::warn!(priority, "shutdown: statuses of a group not sent in time");
        }
    }
}

fn termination(group: &ShutdownGroup, pod: &SharedPod) -> TerminatePod {
    TerminatePod {
        grace: Some(group.grace(pod)),
        reason: "the node is shutting down".to_owned(),
        phase_override: phase_override(),
    }
}

/// Waits until each pod is stopped and its volumes are torn down, or its entry is removed.
async fn released(mut uids: Vec<PodUid>, status_store: &PodStatusStore) {
    let mut changes = status_store.subscribe();
    loop {
        uids.retain(|uid| status_store.get(uid).is_some_and(|entry| !entry.released));
        if uids.is_empty() || changes.next().await.is_none() {
            return;
        }
    }
}
