//! Why a pod is as it is: its timeline, and what keeps it from what was asked. The control API and
//! the node's own API answer with the same.

use windlass_pod_status::status::{probe_complaint, who_goes_on};
use windlass_pod_status::timeline::relevant_records;
use windlass_status::{PodStatusStore, PodStatusEntry, current_entry};
use windlass_timelines::Timelines;
use windlass_types::PodExt;
use windlass_types::view::Blocker;
use windlass_types::explain::{BlockerView, Explanation, PodTimeline};

/// The cloneable handle to the answers. Nothing here waits.
#[derive(Clone, Debug)]
pub struct PodExplainer {
    /// Pods as asked and as they are.
    pub board: PodStatusStore,
    /// What touched them.
    pub timelines: Timelines,
    /// Name of the node, which a user may leave out at the end of a static pod's.
    pub node_name: String,
}

impl PodExplainer {
    /// What touched a pod; `None` if there is none of this name, and none left lately.
    pub fn timeline(&self, namespace: &str, name: &str) -> Option<PodTimeline> {
        let found = self.timelines.find(namespace, name);
        found.or_else(|| self.timelines.find(namespace, &self.of_this_node(name)))
    }

    /// What keeps a pod from what was asked, and what led to it.
    pub fn explanation(&self, namespace: &str, name: &str) -> Option<Explanation> {
        let mut entries = self.board.find(namespace, name);
        if entries.is_empty() {
            entries = self.board.find(namespace, &self.of_this_node(name));
        }
        current_entry(&entries).map(|entry| self.explain(entry))
    }

    fn explain(&self, entry: &PodStatusEntry) -> Explanation {
        let uid = entry.pod.uid();
        let blocker = entry.blocker.as_ref();
        let timeline = blocker.and_then(|_| self.timelines.get(&uid));
        Explanation {
            namespace: entry.pod.namespace().to_owned(),
            pod: entry.pod.name().to_owned(),
            uid: uid.to_string(),
            phase: entry.status.phase.clone(),
            worker_state: entry.worker_state.to_string(),
            blocker: blocker.map(|blocker| {
                let message = blocker_message(blocker, entry);
                BlockerView::new(blocker, message, who_goes_on(blocker))
            }),
            issues: entry.issues.clone(),
            records: timeline.map_or_else(Vec::new, |timeline| relevant_records(&timeline.records)),
        }
    }

    fn of_this_node(&self, name: &str) -> String {
        format!("{name}-{}", self.node_name)
    }
}

/// The words of a blocker, with what the probe that it names complained of.
pub(crate) fn blocker_message(blocker: &Blocker, entry: &PodStatusEntry) -> String {
    match probe_complaint(blocker, &entry.status, &entry.events) {
        Some(complaint) => format!("{}: {complaint}", blocker.message),
        None => blocker.message.clone(),
    }
}
