//! The node object and its lease.

use serde_json::{Value, json};
use windlass_client::{ObjectKey, Patch};
use windlass_testing::agent::NODE_NAME;
use windlass_types::Timestamp;
use windlass_types::coordinationv1::Lease;
use windlass_types::corev1::Node;

use crate::control_plane::Kind;
use crate::objects::{condition, object, uid};
use crate::test_env::{Credentials, LEASE_SECONDS, TestEnv};

const LEASE: ObjectKey<'static> = ObjectKey {
    namespace: Some("kube-node-lease"),
    name: NODE_NAME,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_the_node_registers_and_stays() {
    the_node_registers_and_stays(Kind::Fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_the_node_registers_and_stays() {
    the_node_registers_and_stays(Kind::Real).await;
}

async fn the_node_registers_and_stays(kind: Kind) {
    let Some(mut env) = TestEnv::prepare(kind, "k-node", Credentials::Certificate).await else {
        return;
    };
    // foreign labels and taints of an existing node are kept
    let foreign: Node = object(json!({
        "metadata": {
            "name": NODE_NAME,
            "labels": { "example.com/rack": "r7", "kubernetes.io/os": "plan9" },
            "annotations": { "example.com/note": "kept" },
        },
        "spec": { "taints": [
            { "key": "example.com/dedicated", "value": "x", "effect": "PreferNoSchedule" },
        ]},
    }));
    let foreign = env.create(&foreign).await;
    let routed = json!({ "type": "NetworkUnavailable", "status": "False", "reason": "Routed" });
    let patch = Patch::StrategicMerge(json!({ "status": { "conditions": [routed] } }));
    let at = ObjectKey::cluster(NODE_NAME);
    env.api
        .patch::<Node>(at, Some("status"), &patch)
        .await
        .unwrap();
    env.agent.spawn().unwrap();
    let node = env.node_ready().await;
    assert_eq!(uid(&node), uid(&foreign), "the node object was replaced");
    foreign_parts_are_kept(&node);
    its_status_is_whole(&node);
    the_lease_is_renewed(&env, &node).await;
    a_deleted_node_comes_back(&env, &node).await;
    env.stop().await;
}

fn foreign_parts_are_kept(node: &Value) {
    let labels = &node["metadata"]["labels"];
    assert_eq!(labels["example.com/rack"], "r7", "{labels}");
    let note = &node["metadata"]["annotations"]["example.com/note"];
    assert_eq!(note, "kept", "{}", node["metadata"]);
    let taints = node["spec"]["taints"].as_array().expect("taints");
    let kept = taints.iter().any(|t| t["key"] == "example.com/dedicated");
    assert!(kept, "{taints:?}");
    let routed = condition(node, "NetworkUnavailable");
    assert_eq!(
        routed["reason"], "Routed",
        "{}",
        node["status"]["conditions"]
    );
    // labels of the agent are restored
    for (name, value) in [
        ("kubernetes.io/hostname", NODE_NAME),
        ("kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/os", "linux"),
    ] {
        assert_eq!(labels[name], value, "{labels}");
    }
    assert_eq!(
        labels["kubernetes.io/arch"],
        labels["beta.kubernetes.io/arch"]
    );
}

fn its_status_is_whole(node: &Value) {
    let status = &node["status"];
    for set in ["capacity", "allocatable"] {
        for resource in ["cpu", "memory", "ephemeral-storage", "pods"] {
            assert!(status[set][resource].is_string(), "{set}: {}", status[set]);
        }
    }
    assert_eq!(status["capacity"]["pods"], "110");
    let addresses = status["addresses"].as_array().expect("addresses");
    let kinds: Vec<&str> = addresses
        .iter()
        .filter_map(|a| a["type"].as_str())
        .collect();
    assert_eq!(kinds, ["InternalIP", "Hostname"], "{addresses:?}");
    assert_eq!(addresses[1]["address"], NODE_NAME);
    for (kind, value, reason) in [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ] {
        let condition = condition(node, kind);
        assert_eq!(condition["status"], value, "{condition}");
        assert_eq!(condition["reason"], reason, "{condition}");
        for time in ["lastHeartbeatTime", "lastTransitionTime"] {
            assert!(condition[time].is_string(), "{condition}");
        }
    }
    let info = &status["nodeInfo"];
    let runtime = info["containerRuntimeVersion"].as_str().unwrap_or("");
    assert!(runtime.starts_with("containerd://"), "{info}");
    assert!(
        info["kubeletVersion"]
            .as_str()
            .is_some_and(|v| v.starts_with("v1.36.")),
        "{info}"
    );
    for field in [
        "kernelVersion",
        "osImage",
        "architecture",
        "bootID",
        "machineID",
    ] {
        assert!(info[field].is_string(), "{field} in {info}");
    }
    assert_eq!(info["operatingSystem"], "linux");
    let images = status["images"].as_array().expect("images");
    assert!(!images.is_empty(), "the images on the node");
}

fn renewed(lease: &Value) -> Timestamp {
    let time = lease["spec"]["renewTime"].as_str().expect("renewTime");
    time.parse().expect("a time")
}

async fn the_lease_is_renewed(env: &TestEnv, node: &Value) {
    let lease = env.wait_for::<Lease>(LEASE, "exists", |_| true).await;
    assert_eq!(lease["spec"]["holderIdentity"], NODE_NAME);
    assert_eq!(lease["spec"]["leaseDurationSeconds"], LEASE_SECONDS);
    let owner = &lease["metadata"]["ownerReferences"][0];
    assert_eq!(owner["kind"], "Node", "{lease}");
    assert_eq!(owner["uid"], uid(node), "{lease}");
    let mut last = renewed(&lease);
    for _ in 0..2 {
        let next = env
            .wait_for::<Lease>(LEASE, "is renewed", |lease| renewed(lease) > last)
            .await;
        let pause = renewed(&next).duration_since(last).as_secs_f64();
        let quarter = LEASE_SECONDS as f64 / 4.0;
        assert!(
            (quarter * 0.5..quarter * 2.0).contains(&pause),
            "renewed after {pause} s"
        );
        last = renewed(&next);
    }
}

async fn a_deleted_node_comes_back(env: &TestEnv, old: &Value) {
    let at = ObjectKey::cluster(NODE_NAME);
    env.api
        .delete::<Node>(at, &Default::default())
        .await
        .unwrap();
    env.wait_for::<Node>(at, "is Ready again", |node| {
        uid(node) != uid(old) && condition(node, "Ready")["status"] == "True"
    })
    .await;
}
