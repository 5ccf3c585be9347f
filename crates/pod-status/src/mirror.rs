//! Mirror pods: static pods in the API.
//!
//! The agent creates a mirror pod for each static pod, owned by the Node object, with the hash of
//! the static pod in an annotation. A deleted mirror pod, or one with another hash, is replaced.
//! Mirror pods do not affect what runs, and static pods do not wait for them.

use windlass_types::corev1::Node;
use windlass_types::metav1::{ObjectMeta, OwnerReference};
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::view::PodWorkerState;
use windlass_types::{Pod, PodExt, names};

use crate::status_sync::LocalStatus;

/// Cluster state for mirror pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The Node object; `None` before it was read or without one.
    pub node: Option<NodeOwner>,
    /// All pod sources are ready: a mirror pod without a static pod is orphaned.
    pub sources_ready: bool,
}

/// The Node object as the owner of its mirror pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOwner {
    /// Name of the object.
    pub name: String,
    /// UID of the object.
    pub uid: String,
    /// The object has a deletionTimestamp, which prevents new mirror pods.
    pub deleting: bool,
}

impl NodeOwner {
    /// Creates the owner; `None` without a name or UID.
    pub fn from_node(node: &Node) -> Option<Self> {
        Some(Self {
            name: node.metadata.name.clone()?,
            uid: node.metadata.uid.clone()?,
            deleting: node.metadata.deletion_timestamp.is_some(),
        })
    }
}

/// Action for the mirror pod of one name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MirrorPlan {
    Nothing,
    Create(Box<Pod>),
    /// Delete the mirror pod; the next plan creates another.
    Replace,
    Delete,
}

/// True for a mirror pod.
pub fn is_mirror(pod: &Pod) -> bool {
    mirrored_hash(pod).is_some()
}

/// True if the mirror pod has the hash of the static pod.
pub fn mirrors(mirror: &Pod, static_pod: &Pod) -> bool {
    mirrored_hash(mirror) == static_pod.annotation(names::ANN_CONFIG_HASH)
        && !mutated(Mutation::MirrorAlwaysReplaced)
}

/// Returns the static pod of one name that the mirror pod represents: a terminating one before the
/// one that is blocked on its termination.
pub fn mirrored<'a>(statics: impl Iterator<Item = &'a LocalStatus>) -> Option<&'a LocalStatus> {
    statics.max_by_key(|p| match (p.worker, p.released) {
        (PodWorkerState::TerminatingPod, _) | (PodWorkerState::TerminatedPod, false) => 3,
        (PodWorkerState::SyncPod, _) => 1 + usize::from(p.observed),
        (PodWorkerState::TerminatedPod, true) => 0,
    })
}

/// Compares a static pod with its mirror pod.
pub(crate) fn mirror_plan(
    static_pod: Option<&LocalStatus>,
    mirror: Option<&Pod>,
    cluster: &Cluster,
) -> MirrorPlan {
    let deleted = |mirror: &Pod| mirror.metadata.deletion_timestamp.is_some();
    let Some(desired) = static_pod else {
        return match mirror {
            Some(_) if cluster.sources_ready => MirrorPlan::Delete,
            _ => MirrorPlan::Nothing,
        };
    };
    let owner = cluster.node.as_ref().filter(|node| !node.deleting);
    match (desired.worker, mirror, owner) {
        // the mirror pod shows the termination
        (PodWorkerState::TerminatingPod, _, _) => MirrorPlan::Nothing,
        // the pod completed and its mirror pod was deleted by a user
        (PodWorkerState::TerminatedPod, Some(mirror), _) if deleted(mirror) => MirrorPlan::Delete,
        (PodWorkerState::TerminatedPod, _, _) => MirrorPlan::Nothing,
        (PodWorkerState::SyncPod, None, Some(owner)) => {
            MirrorPlan::Create(Box::new(mirror_of(&desired.pod, owner)))
        }
        (PodWorkerState::SyncPod, Some(mirror), Some(_))
            if (deleted(mirror) && !mutated(Mutation::MirrorStaysTerminating))
                || !mirrors(mirror, &desired.pod) =>
        {
            MirrorPlan::Replace
        }
        (PodWorkerState::SyncPod, _, _) => MirrorPlan::Nothing,
    }
}

/// Returns the mirror pod of a static pod, to be created.
pub fn mirror_of(static_pod: &Pod, owner: &NodeOwner) -> Pod {
    let meta = &static_pod.metadata;
    let mut annotations = meta.annotations.clone().unwrap_or_default();
    let hash = static_pod.annotation(names::ANN_CONFIG_HASH);
    annotations.insert(
        names::ANN_CONFIG_MIRROR.to_owned(),
        hash.unwrap_or_default().to_owned(),
    );
    let mut spec = static_pod.spec.clone().unwrap_or_default();
    spec.node_name = Some(owner.name.clone());
    Pod {
        metadata: ObjectMeta {
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            labels: meta.labels.clone(),
            annotations: Some(annotations),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: owner.name.clone(),
                uid: owner.uid.clone(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

fn mirrored_hash(pod: &Pod) -> Option<&str> {
    pod.annotation(names::ANN_CONFIG_MIRROR)
}

#[cfg(test)]
mod tests;
