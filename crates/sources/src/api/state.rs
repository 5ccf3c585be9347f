//! Converts watch events into outputs for PodStorage and the StatusManager.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use windlass_actors::ApiPodUpdate;
use windlass_types::{Pod, PodExt, PodOp, PodUid, SharedPod, names};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ApiSourceOutput {
    /// An operation on pods, for PodStorage.
    ToStorage(PodOp, Vec<SharedPod>),
    ToStatusManager(PodUid, ApiPodUpdate),
}

impl fmt::Display for ApiSourceOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ToStorage(op, pods) => {
                let uids: Vec<_> = pods.iter().map(|pod| pod.uid().to_string()).collect();
                write!(f, "{op}[{}]", uids.join(" "))
            }
            Self::ToStatusManager(uid, ApiPodUpdate::Applied(_)) => write!(f, "applied({uid})"),
            Self::ToStatusManager(uid, ApiPodUpdate::Deleted) => write!(f, "deleted({uid})"),
        }
    }
}

/// The last known pods.
#[derive(Debug, Default)]
pub(crate) struct ApiPods {
    pods: BTreeMap<PodUid, SharedPod>,
}

impl ApiPods {
    /// Handles a list.
    pub(crate) fn synced(&mut self, pods: Vec<Pod>) -> Vec<ApiSourceOutput> {
        let before = std::mem::take(&mut self.pods);
        let mut outputs = Vec::new();
        for pod in pods.into_iter().map(Arc::new) {
            let uid = pod.uid();
            if before.get(&uid) != Some(&pod) {
                outputs.push(ApiSourceOutput::ToStatusManager(
                    uid.clone(),
                    ApiPodUpdate::Applied(pod.clone()),
                ));
            }
            self.pods.insert(uid, pod);
        }
        let deleted_uids = before
            .into_keys()
            .filter(|uid| !self.pods.contains_key(uid));
        outputs.extend(
            deleted_uids.map(|uid| ApiSourceOutput::ToStatusManager(uid, ApiPodUpdate::Deleted)),
        );
        let to_run = self.pods.values().filter(|pod| !is_mirror(pod)).cloned();
        outputs.push(ApiSourceOutput::ToStorage(PodOp::Set, to_run.collect()));
        outputs
    }

    /// Handles a new or changed pod.
    pub(crate) fn applied(&mut self, pod: Pod) -> Vec<ApiSourceOutput> {
        let pod = Arc::new(pod);
        let uid = pod.uid();
        self.pods.insert(uid.clone(), pod.clone());
        let mut outputs = vec![ApiSourceOutput::ToStatusManager(
            uid,
            ApiPodUpdate::Applied(pod.clone()),
        )];
        if !is_mirror(&pod) {
            // the merge determines whether it is an addition, a deletion or a status change
            outputs.push(ApiSourceOutput::ToStorage(PodOp::Update, vec![pod]));
        }
        outputs
    }

    pub(crate) fn deleted(&mut self, pod: Pod) -> Vec<ApiSourceOutput> {
        let pod = Arc::new(pod);
        let uid = pod.uid();
        if self.pods.remove(&uid).is_none() {
            return Vec::new();
        }
        let mut outputs = vec![ApiSourceOutput::ToStatusManager(uid, ApiPodUpdate::Deleted)];
        if !is_mirror(&pod) {
            outputs.push(ApiSourceOutput::ToStorage(PodOp::Remove, vec![pod]));
        }
        outputs
    }
}

fn is_mirror(pod: &Pod) -> bool {
    pod.annotation(names::ANN_CONFIG_MIRROR).is_some()
}
