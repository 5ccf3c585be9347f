//! What a watch event means for PodStorage and the StatusManager, as a value.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use windlass_actors::ApiPodUpdate;
use windlass_types::{Pod, PodExt, PodOp, PodUid, SharedPod, names};

/// What the source has to tell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Say {
    /// PodStorage: these pods, by this operation.
    Storage(PodOp, Vec<SharedPod>),
    /// The StatusManager: what the API server has of one pod.
    Seen(PodUid, ApiPodUpdate),
}

impl fmt::Display for Say {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage(op, pods) => {
                let uids: Vec<_> = pods.iter().map(|pod| pod.uid().to_string()).collect();
                write!(f, "{op}[{}]", uids.join(" "))
            }
            Self::Seen(uid, ApiPodUpdate::Applied(_)) => write!(f, "seen({uid})"),
            Self::Seen(uid, ApiPodUpdate::Deleted) => write!(f, "gone({uid})"),
        }
    }
}

/// The pods as last seen.
#[derive(Debug, Default)]
pub(crate) struct ApiPods {
    pods: BTreeMap<PodUid, SharedPod>,
}

impl ApiPods {
    /// The complete set was read.
    pub(crate) fn synced(&mut self, pods: Vec<Pod>) -> Vec<Say> {
        let before = std::mem::take(&mut self.pods);
        let mut say = Vec::new();
        for pod in pods.into_iter().map(Arc::new) {
            let uid = pod.uid();
            if before.get(&uid) != Some(&pod) {
                say.push(Say::Seen(uid.clone(), ApiPodUpdate::Applied(pod.clone())));
            }
            self.pods.insert(uid, pod);
        }
        let gone = before
            .into_keys()
            .filter(|uid| !self.pods.contains_key(uid));
        say.extend(gone.map(|uid| Say::Seen(uid, ApiPodUpdate::Deleted)));
        let to_run = self.pods.values().filter(|pod| !is_mirror(pod)).cloned();
        say.push(Say::Storage(PodOp::Set, to_run.collect()));
        say
    }

    /// A pod is new or changed.
    pub(crate) fn applied(&mut self, pod: Pod) -> Vec<Say> {
        let pod = Arc::new(pod);
        let uid = pod.uid();
        self.pods.insert(uid.clone(), pod.clone());
        let mut say = vec![Say::Seen(uid, ApiPodUpdate::Applied(pod.clone()))];
        if !is_mirror(&pod) {
            // the merger finds out whether it is an addition, a deletion or only a status
            say.push(Say::Storage(PodOp::Update, vec![pod]));
        }
        say
    }

    /// A pod is gone.
    pub(crate) fn deleted(&mut self, pod: Pod) -> Vec<Say> {
        let pod = Arc::new(pod);
        let uid = pod.uid();
        if self.pods.remove(&uid).is_none() {
            return Vec::new();
        }
        let mut say = vec![Say::Seen(uid, ApiPodUpdate::Deleted)];
        if !is_mirror(&pod) {
            say.push(Say::Storage(PodOp::Remove, vec![pod]));
        }
        say
    }
}

/// True for the API server's picture of a static pod.
fn is_mirror(pod: &Pod) -> bool {
    pod.annotation(names::ANN_CONFIG_MIRROR).is_some()
}
