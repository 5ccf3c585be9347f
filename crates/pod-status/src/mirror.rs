//! Mirror pods: how a static pod is seen in the API.
//!
//! The API server has a copy of each static pod, made by the node agent and owned by the Node
//! object. The copy carries the hash of the static pod in an annotation: a copy with another
//! hash, or one that somebody deletes, is replaced. Nothing that happens to a mirror changes
//! what runs, and no static pod waits for its mirror.

use std::fmt;

use windlass_types::corev1::Node;
use windlass_types::metav1::{ObjectMeta, OwnerReference};
use windlass_types::view::PodWorkerState;
use windlass_types::{Pod, PodExt, names};

use crate::status_sync::LocalStatus;

/// What mirrors need to know of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// This node's object; `None` before it was read, and while there is none.
    pub node: Option<NodeOwner>,
    /// Every pod source has spoken: a mirror without a static pod is an orphan.
    pub sources_ready: bool,
}

/// The Node object as the owner of its mirror pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOwner {
    /// Name of the object.
    pub name: String,
    /// UID of the object; a node that registers again has another.
    pub uid: String,
    /// The object is being deleted: it gets no new mirrors.
    pub deleting: bool,
}

impl NodeOwner {
    /// `None` for an object that no server made.
    pub fn of(node: &Node) -> Option<Self> {
        Some(Self {
            name: node.metadata.name.clone()?,
            uid: node.metadata.uid.clone()?,
            deleting: node.metadata.deletion_timestamp.is_some(),
        })
    }
}

/// What to do about the mirror of one name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MirrorPlan {
    /// It is as it should be, or its time has not come.
    Nothing,
    /// Create this object.
    Create(Box<Pod>),
    /// Delete the mirror; the next plan creates another.
    Replace,
    /// Delete the mirror for good.
    Delete,
}

impl fmt::Display for MirrorPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Create(pod) => write!(f, "create({})", mirrored_hash(pod).unwrap_or_default()),
            Self::Replace => f.write_str("replace"),
            Self::Delete => f.write_str("delete"),
        }
    }
}

/// True for a mirror pod as the API server has it.
pub fn is_mirror(pod: &Pod) -> bool {
    mirrored_hash(pod).is_some()
}

/// True if the mirror is the copy of just this static pod.
pub fn mirrors(mirror: &Pod, static_pod: &Pod) -> bool {
    mirrored_hash(mirror) == static_pod.annotation(names::ANN_CONFIG_HASH)
}

/// Which of the static pods of one name the mirror stands for: one that still stops before its
/// successor, which has not started yet.
pub fn mirrored<'a>(statics: impl Iterator<Item = &'a LocalStatus>) -> Option<&'a LocalStatus> {
    statics.max_by_key(|p| match (p.worker, p.released) {
        (PodWorkerState::TerminatingPod, _) | (PodWorkerState::TerminatedPod, false) => 3,
        (PodWorkerState::SyncPod, _) => 1 + usize::from(p.looked),
        (PodWorkerState::TerminatedPod, true) => 0,
    })
}

/// Compares a static pod with its mirror. `static_pod` is `None` if no static pod of the name is
/// left on this node.
pub(crate) fn mirror_plan(
    static_pod: Option<&LocalStatus>,
    mirror: Option<&Pod>,
    cluster: &Cluster,
) -> MirrorPlan {
    let deleted = |mirror: &Pod| mirror.metadata.deletion_timestamp.is_some();
    let Some(wanted) = static_pod else {
        return match mirror {
            Some(_) if cluster.sources_ready => MirrorPlan::Delete,
            _ => MirrorPlan::Nothing,
        };
    };
    let owner = cluster.node.as_ref().filter(|node| !node.deleting);
    match (wanted.worker, mirror, owner) {
        // it shows how the pod ends
        (PodWorkerState::TerminatingPod, _, _) => MirrorPlan::Nothing,
        // the pod has ended by itself; who deletes the mirror has seen how
        (PodWorkerState::TerminatedPod, Some(mirror), _) if deleted(mirror) => MirrorPlan::Delete,
        (PodWorkerState::TerminatedPod, _, _) => MirrorPlan::Nothing,
        (PodWorkerState::SyncPod, None, Some(owner)) => {
            MirrorPlan::Create(Box::new(mirror_of(&wanted.pod, owner)))
        }
        (PodWorkerState::SyncPod, Some(mirror), Some(_))
            if deleted(mirror) || !mirrors(mirror, &wanted.pod) =>
        {
            MirrorPlan::Replace
        }
        (PodWorkerState::SyncPod, _, _) => MirrorPlan::Nothing,
    }
}

/// The mirror of a static pod, ready to be created. The server gives it its own UID.
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
