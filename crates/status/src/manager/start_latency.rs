//! Measures the start latency of pods.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_actors::ApiPodUpdate;
use windlass_metrics::StartMetrics;
use windlass_pod_lifecycle::pod_start::{StartProgress, start_progress};
use windlass_types::{PodExt, PodUid, Timestamp};

use crate::status_store::StatusChange;

/// Tracks the pods of the API server until they have started. As upstream, pods that started before
/// the agent are excluded.
///
/// *bound* one entry for each API pod of this node.
#[derive(Debug, Default)]
pub(super) struct StartLatencyTracker(BTreeMap<PodUid, TrackedStart>);

#[derive(Clone, Copy, Debug)]
enum TrackedStart {
    /// Starting; with the duration of its image pulls.
    Starting(Duration),
    /// Started or excluded.
    Done,
}

impl StartLatencyTracker {
    /// Handles changes of the pod status store.
    pub(super) fn store_changed(&mut self, change: &StatusChange) {
        for entry in &change.changed {
            if let Some(TrackedStart::Starting(pulling)) = self.0.get_mut(&entry.pod.uid()) {
                *pulling = entry.timings.pulling;
            }
        }
    }

    /// Handles a change of an API object.
    pub(super) fn api_changed(
        &mut self,
        uid: &PodUid,
        update: &ApiPodUpdate,
        now: Timestamp,
        metrics: &StartMetrics,
    ) {
        let ApiPodUpdate::Applied(pod) = update else {
            self.0.remove(uid);
            return;
        };
        let tracked = self.0.get(uid).copied();
        let pulling = match tracked {
            Some(TrackedStart::Starting(pulling)) => pulling,
            Some(TrackedStart::Done) => return,
            None => Duration::ZERO,
        };
        match start_progress(pod, pulling, now) {
            StartProgress::NotStarted => {
                self.0.insert(uid.clone(), TrackedStart::Starting(pulling));
            }
            StartProgress::Excluded => {
                self.0.insert(uid.clone(), TrackedStart::Done);
            }
            StartProgress::Finished { total, objective } if tracked.is_some() => {
                metrics.observe_start(total.as_secs_f64());
                if let Some(objective) = objective {
                    metrics.observe_sli(objective.as_secs_f64(), !pod.host_network());
                }
                self.0.insert(uid.clone(), TrackedStart::Done);
            }
            StartProgress::InProgress | StartProgress::Finished { .. } => {}
        }
    }
}
