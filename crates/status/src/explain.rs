//! Explains why a pod is not in its desired state, from its timeline and status. Shared by the
//! control API and the node API.

use std::sync::Arc;

use tokio::sync::watch;
use windlass_eviction::{EVICTED, EvictionStatus};
use windlass_pod_status::status::{last_probe_failure, waiting_for};
use windlass_pod_status::timeline::relevant_records;
use windlass_timelines::Timelines;
use windlass_types::PodExt;
use windlass_types::explain::{BlockerView, EvictionView, Explanation, PodTimeline, ResizeView};
use windlass_types::view::Blocker;

use crate::{PodStatusEntry, PodStatusStore, current_entry};

/// Cloneable source of timelines and explanations. Does not block.
#[derive(Clone, Debug)]
pub struct PodExplainer {
    /// Statuses of the pods.
    pub status_store: PodStatusStore,
    /// Timelines of the pods.
    pub timelines: Timelines,
    /// Evictions.
    pub eviction: watch::Receiver<Arc<EvictionStatus>>,
    /// Name of the node, which a user may omit from the name of a static pod.
    pub node_name: String,
}

impl PodExplainer {
    /// Returns the timeline of a current or recently removed pod.
    pub fn timeline(&self, namespace: &str, name: &str) -> Option<PodTimeline> {
        let found = self.timelines.find(namespace, name);
        found.or_else(|| self.timelines.find(namespace, &self.static_pod_name(name)))
    }

    /// Returns the blocker and the recent records of a pod.
    pub fn explanation(&self, namespace: &str, name: &str) -> Option<Explanation> {
        let mut entries = self.status_store.find(namespace, name);
        if entries.is_empty() {
            entries = self
                .status_store
                .find(namespace, &self.static_pod_name(name));
        }
        current_entry(&entries).map(|entry| self.explain(entry))
    }

    fn explain(&self, entry: &PodStatusEntry) -> Explanation {
        let uid = entry.pod.uid();
        let blocker = entry.blocker.as_ref();
        let resize = self.resize(entry);
        let explains = blocker.is_some() || resize.is_some();
        let timeline = explains.then(|| self.timelines.get(&uid)).flatten();
        Explanation {
            namespace: entry.pod.namespace().to_owned(),
            pod: entry.pod.name().to_owned(),
            uid: uid.to_string(),
            phase: entry.status.phase.clone(),
            worker_state: entry.worker_state.to_string(),
            stale_status: entry.has_stale_status(),
            blocker: blocker.map(|blocker| {
                let message = blocker_message(blocker, entry);
                BlockerView::new(blocker, message, waiting_for(blocker))
            }),
            eviction: self.eviction(entry),
            resize,
            issues: entry.issues.clone(),
            records: timeline.map_or_else(Vec::new, |timeline| relevant_records(&timeline.records)),
        }
    }

    fn resize(&self, entry: &PodStatusEntry) -> Option<ResizeView> {
        let requested = self.status_store.requested(&entry.pod.uid());
        Some(ResizeView {
            next_retry: requested.and_then(|requested| requested.next_retry),
            ..ResizeView::from_status(&entry.status)?
        })
    }

    fn eviction(&self, entry: &PodStatusEntry) -> Option<EvictionView> {
        let eviction = self.eviction.borrow();
        let record = eviction.eviction(&entry.pod.uid());
        let status = &entry.status;
        if record.is_none() && status.reason.as_deref() != Some(EVICTED) {
            return None;
        }
        Some(EvictionView {
            message: status.message.clone().unwrap_or_default(),
            evicted_at: record.map(|record| record.at),
            explanation: record.map(|record| record.explanation.clone()),
        })
    }

    fn static_pod_name(&self, name: &str) -> String {
        format!("{name}-{}", self.node_name)
    }
}

/// Returns the message of a blocker, with the last failure of its probe.
pub fn blocker_message(blocker: &Blocker, entry: &PodStatusEntry) -> String {
    match last_probe_failure(blocker, &entry.status, &entry.events) {
        Some(failure) => format!("{}: {failure}", blocker.message),
        None => blocker.message.clone(),
    }
}
