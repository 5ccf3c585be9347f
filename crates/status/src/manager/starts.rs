//! Which pods are starting, for the figures of how long that takes.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_actors::ApiPodUpdate;
use windlass_pod_lifecycle::pod_start::{PodStart, pod_start};
use windlass_metrics::StartMetrics;
use windlass_types::{PodExt, PodUid, Timestamp};

use crate::status_store::StatusChange;

/// Pods of the API server from their first sight until they have started. Those that had begun
/// when this agent came are not among them, as by upstream.
///
/// *bound* one entry for each pod that the API server has of this node.
#[derive(Debug, Default)]
pub(super) struct Starts(BTreeMap<PodUid, Following>);

#[derive(Clone, Copy, Debug)]
enum Following {
    /// Its pulls took so long.
    Start(Duration),
    /// It does not count, whatever becomes of it.
    Nothing,
}

impl Starts {
    /// What the node says.
    pub(super) fn board(&mut self, change: &StatusChange) {
        for entry in &change.changed {
            if let Some(Following::Start(pulling)) = self.0.get_mut(&entry.pod.uid()) {
                *pulling = entry.timings.pulling;
            }
        }
    }

    /// What the watch says of a pod.
    pub(super) fn api(
        &mut self,
        uid: &PodUid,
        seen: &ApiPodUpdate,
        now: Timestamp,
        metrics: &StartMetrics,
    ) {
        let ApiPodUpdate::Applied(pod) = seen else {
            self.0.remove(uid);
            return;
        };
        let following = self.0.get(uid).copied();
        let pulling = match following {
            Some(Following::Start(pulling)) => pulling,
            Some(Following::Nothing) => return,
            None => Duration::ZERO,
        };
        match pod_start(pod, pulling, now) {
            PodStart::Begins => {
                self.0.insert(uid.clone(), Following::Start(pulling));
            }
            PodStart::Excluded => {
                self.0.insert(uid.clone(), Following::Nothing);
            }
            PodStart::Took { total, objective } if following.is_some() => {
                metrics.observe_start(total.as_secs_f64());
                if let Some(objective) = objective {
                    metrics.observe_sli(objective.as_secs_f64(), !pod.host_network());
                }
                self.0.insert(uid.clone(), Following::Nothing);
            }
            PodStart::UnderWay | PodStart::Took { .. } => {}
        }
    }
}
