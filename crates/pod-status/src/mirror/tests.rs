//! Mirror pod plans and the created object.

use std::fmt;
use std::sync::Arc;

use windlass_types::corev1::{Container, PodSpec, PodStatus};
use windlass_types::metav1::Time;
use windlass_types::view::PodWorkerState::{SyncPod, TerminatedPod, TerminatingPod};

use super::*;

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

fn pod(uid: &str, annotations: &[(&str, &str)]) -> Pod {
    let annotations = annotations
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    Pod {
        metadata: ObjectMeta {
            name: Some("web-n1".into()),
            namespace: Some("kube-system".into()),
            uid: Some(uid.into()),
            annotations: Some(annotations.collect()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![Container {
                name: "web".into(),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        status: Some(PodStatus::default()),
    }
}

fn static_pod(hash: &str, worker: PodWorkerState) -> LocalStatus {
    LocalStatus {
        pod: Arc::new(pod(hash, &[(names::ANN_CONFIG_HASH, hash)])),
        status: Arc::default(),
        worker,
        observed: true,
        released: false,
    }
}

/// `hash`, or `hash!` with a deletionTimestamp.
fn mirror(text: &str) -> Pod {
    let hash = text.trim_end_matches('!');
    let mut mirror = pod("m", &[(names::ANN_CONFIG_MIRROR, hash)]);
    if text.ends_with('!') {
        mirror.metadata.deletion_timestamp = Some(Time(windlass_types::Timestamp::UNIX_EPOCH));
    }
    mirror
}

fn cluster(node: &str, sources_ready: bool) -> Cluster {
    let node = (node != "unknown").then(|| NodeOwner {
        name: "n1".into(),
        uid: "node-uid".into(),
        deleting: node == "deleting",
    });
    Cluster {
        node,
        sources_ready,
    }
}

#[test]
fn mirror_pod_follows_static_pod() {
    for (phase, there, node, ready, expected) in [
        (Some(SyncPod), "", "known", false, "create(h1)"),
        (Some(SyncPod), "", "unknown", true, "nothing"),
        (Some(SyncPod), "", "deleting", true, "nothing"),
        (Some(SyncPod), "h1", "known", true, "nothing"),
        (Some(SyncPod), "h0", "known", false, "replace"),
        (Some(SyncPod), "h0", "unknown", true, "nothing"),
        (Some(SyncPod), "h1!", "known", true, "replace"),
        (Some(SyncPod), "h1!", "deleting", true, "nothing"),
        (Some(TerminatingPod), "", "known", true, "nothing"),
        (Some(TerminatingPod), "h1!", "known", true, "nothing"),
        (Some(TerminatedPod), "", "known", true, "nothing"),
        (Some(TerminatedPod), "h1", "known", true, "nothing"),
        (Some(TerminatedPod), "h1!", "known", true, "delete"),
        (None, "", "known", true, "nothing"),
        (None, "h1", "known", false, "nothing"),
        (None, "h1", "known", true, "delete"),
        (None, "h1", "unknown", true, "delete"),
    ] {
        let wanted = phase.map(|phase| static_pod("h1", phase));
        let there = (!there.is_empty()).then(|| mirror(there));
        let plan = mirror_plan(wanted.as_ref(), there.as_ref(), &cluster(node, ready));
        assert_eq!(
            plan.to_string(),
            expected,
            "{phase:?} {there:?} {node} {ready}"
        );
    }
}

#[test]
fn mirror_pod_of_terminating_static_pod_is_kept() {
    let owner = |phases: &[(&str, PodWorkerState, bool)]| {
        let all: Vec<_> = phases
            .iter()
            .map(|(hash, phase, released)| LocalStatus {
                released: *released,
                ..static_pod(hash, *phase)
            })
            .collect();
        mirrored(all.iter()).map(|p| p.pod.metadata.uid.clone().unwrap_or_default())
    };
    let [old, new] = ["old", "new"];
    assert_eq!(owner(&[]), None);
    assert_eq!(
        owner(&[(new, SyncPod, false), (old, TerminatingPod, false)]).as_deref(),
        Some(old)
    );
    assert_eq!(
        owner(&[(old, TerminatedPod, false), (new, SyncPod, false)]).as_deref(),
        Some(old)
    );
    assert_eq!(
        owner(&[(old, TerminatedPod, true), (new, SyncPod, false)]).as_deref(),
        Some(new)
    );
}

#[test]
fn mirror_pod_is_copy_owned_by_node() {
    let mut original = pod(
        "h1",
        &[
            (names::ANN_CONFIG_HASH, "h1"),
            (names::ANN_CONFIG_SOURCE, "file"),
            ("a", "b"),
        ],
    );
    original.metadata.labels = Some([("tier".to_owned(), "control-plane".to_owned())].into());
    original.metadata.resource_version = Some("7".into());
    let owner = cluster("known", true).node.expect("an owner");
    let copy = serde_json::to_value(mirror_of(&original, &owner)).expect("JSON");
    assert_eq!(
        copy["metadata"],
        serde_json::json!({
            "name": "web-n1",
            "namespace": "kube-system",
            "labels": {"tier": "control-plane"},
            "annotations": {
                "a": "b",
                "kubernetes.io/config.hash": "h1",
                "kubernetes.io/config.mirror": "h1",
                "kubernetes.io/config.source": "file",
            },
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "Node",
                "name": "n1",
                "uid": "node-uid",
                "controller": true,
            }],
        })
    );
    assert_eq!(copy["spec"]["nodeName"], "n1");
    assert_eq!(copy["spec"]["containers"][0]["name"], "web");
    assert!(copy.get("status").is_none());
}
