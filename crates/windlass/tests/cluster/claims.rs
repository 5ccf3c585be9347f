//! Claims, and what is behind them. Nobody binds a claim here but the test, as a controller would.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_client::{At, Patch, Selector};
use windlass_testing::agent::NODE_NAME;
use windlass_types::corev1::{ConfigMap, Event, PersistentVolume, PersistentVolumeClaim};

use crate::control_plane::Kind;
use crate::fixture::{Fixture, SOON, eventually};
use crate::objects::{HOLD, container_with, main_status, object, pod, uid};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_pods_mount_or_wait_for_pvcs() {
    pods_mount_or_wait_for_pvcs(Kind::Fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_pods_mount_or_wait_for_pvcs() {
    pods_mount_or_wait_for_pvcs(Kind::Real).await;
}

async fn pods_mount_or_wait_for_pvcs(kind: Kind) {
    let Some(fixture) = Fixture::start(kind, "k-claims").await else {
        return;
    };
    tokio::join!(
        Box::pin(a_claim_of_a_host_path_is_shown(&fixture)),
        Box::pin(a_missing_claim_is_waited_for(&fixture)),
        Box::pin(a_local_volume_is_mounted_on_its_node_only(&fixture)),
        Box::pin(an_ephemeral_volume_waits_for_a_claim_of_its_own(&fixture)),
    );
    // alone: it is about time
    Box::pin(a_changed_config_map_is_in_the_file_within_two_seconds(
        &fixture,
    ))
    .await;
    fixture.stop().await;
}

/// A new directory of the machine with one file.
fn directory(fixture: &Fixture, name: &str) -> PathBuf {
    let dir = fixture.manifests.with_file_name(name);
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("who"), name).unwrap();
    dir
}

async fn make_claim(fixture: &Fixture, name: &str, owner: Option<&Value>) -> Value {
    let owners: Vec<Value> = owner
        .into_iter()
        .map(|pod| {
            json!({
                "apiVersion": "v1", "kind": "Pod", "controller": true, "uid": uid(pod),
                "name": pod["metadata"]["name"],
            })
        })
        .collect();
    let claim: PersistentVolumeClaim = object(json!({
        "metadata": { "namespace": "default", "name": name, "ownerReferences": owners },
        "spec": {
            "storageClassName": "",
            "volumeName": format!("pv-{name}"),
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        },
    }));
    fixture.create(&claim).await
}

async fn make_volume(fixture: &Fixture, claim: &Value, source: Value) {
    let name = claim["metadata"]["name"].as_str().expect("a name");
    let mut spec = json!({
        "storageClassName": "",
        "accessModes": ["ReadWriteOnce"],
        "capacity": { "storage": "1Gi" },
        "claimRef": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "namespace": "default", "name": name, "uid": uid(claim),
        },
    });
    if let (Value::Object(spec), Value::Object(source)) = (&mut spec, source) {
        spec.extend(source);
    }
    let volume = json!({ "metadata": { "name": format!("pv-{name}") }, "spec": spec });
    let volume: PersistentVolume = object(volume);
    fixture.create(&volume).await;
}

async fn bind(fixture: &Fixture, name: &str) {
    let status = json!({
        "phase": "Bound",
        "accessModes": ["ReadWriteOnce"],
        "capacity": { "storage": "1Gi" },
    });
    let patch = Patch::Merge(json!({ "status": status }));
    let at = At::namespaced("default", name);
    let patched = fixture
        .api
        .patch::<PersistentVolumeClaim>(at, Some("status"), &patch);
    patched.await.unwrap();
}

fn mounts_at_v(volume: Value) -> Value {
    let mounts = json!({ "volumeMounts": [{ "name": "v", "mountPath": "/v" }] });
    let mut volume = volume;
    volume["name"] = json!("v");
    json!({ "containers": [container_with(HOLD, mounts)], "volumes": [volume] })
}

fn by_claim(claim: &str) -> Value {
    mounts_at_v(json!({ "persistentVolumeClaim": { "claimName": claim } }))
}

/// Waits until an event of the pod says this.
pub(crate) async fn says(fixture: &Fixture, pod: &Value, wanted: &str) {
    let selector = Selector {
        namespace: Some("default".to_owned()),
        fields: Some(format!("involvedObject.uid={}", uid(pod))),
        labels: None,
    };
    eventually(wanted, SOON, async || {
        let listed = fixture
            .api
            .list::<Event>(&selector, &Default::default())
            .await;
        let (events, _) = listed.map_err(|error| error.to_string())?;
        let messages: Vec<_> = events.into_iter().filter_map(|e| e.message).collect();
        let said = messages.iter().any(|message| message.contains(wanted));
        said.then_some(()).ok_or_else(|| format!("{messages:?}"))
    })
    .await;
}

async fn a_claim_of_a_host_path_is_shown(fixture: &Fixture) {
    let dir = directory(fixture, "shown");
    let claim = make_claim(fixture, "shown", None).await;
    make_volume(fixture, &claim, json!({ "hostPath": { "path": dir } })).await;
    bind(fixture, "shown").await;
    let writes = fixture
        .create(&pod("claim-writes", HOLD, by_claim("shown")))
        .await;
    let mut spec = by_claim("shown");
    spec["volumes"][0]["persistentVolumeClaim"]["readOnly"] = json!(true);
    let reads = fixture.create(&pod("claim-reads", HOLD, spec)).await;
    tokio::join!(
        fixture.pod_ready("claim-writes"),
        fixture.pod_ready("claim-reads")
    );
    let said = fixture
        .runtime
        .exec(uid(&writes), "cat /v/who; echo x > /v/new")
        .await;
    assert_eq!(said, "shown");
    let said = fixture
        .runtime
        .exec(uid(&reads), "cat /v/new; touch /v/y || echo no")
        .await;
    assert_eq!(said.lines().last(), Some("no"), "{said}");
    assert_eq!(std::fs::read_to_string(dir.join("new")).unwrap(), "x\n");
}

async fn a_missing_claim_is_waited_for(fixture: &Fixture) {
    let waits = fixture
        .create(&pod("claim-waits", HOLD, by_claim("late")))
        .await;
    fixture
        .pod("claim-waits", "waits for its claim", |pod| {
            main_status(pod)["state"]["waiting"]["reason"] == "ContainerCreating"
        })
        .await;
    // the real server may first say that the node has nothing to do with such a claim
    says(
        fixture,
        &waits,
        "error processing PVC default/late: failed to fetch PVC",
    )
    .await;
    let claim = make_claim(fixture, "late", None).await;
    says(
        fixture,
        &waits,
        "error processing PVC default/late: PVC is not bound",
    )
    .await;
    make_volume(
        fixture,
        &claim,
        json!({ "hostPath": { "path": directory(fixture, "late") } }),
    )
    .await;
    bind(fixture, "late").await;
    fixture.pod_ready("claim-waits").await;
    let said = fixture.runtime.exec(uid(&waits), "cat /v/who").await;
    assert_eq!(said, "late");
}

async fn a_local_volume_is_mounted_on_its_node_only(fixture: &Fixture) {
    let on = |node: &str, path: PathBuf| {
        json!({
            "local": { "path": path },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": "kubernetes.io/hostname", "operator": "In", "values": [node] },
            ]}]}},
        })
    };
    for (name, node) in [("local-here", NODE_NAME), ("local-there", "elsewhere")] {
        let claim = make_claim(fixture, name, None).await;
        make_volume(fixture, &claim, on(node, directory(fixture, name))).await;
        bind(fixture, name).await;
    }
    let here = fixture
        .create(&pod("local-here", HOLD, by_claim("local-here")))
        .await;
    let there = fixture
        .create(&pod("local-there", HOLD, by_claim("local-there")))
        .await;
    fixture.pod_ready("local-here").await;
    let said = fixture.runtime.exec(uid(&here), "cat /v/who").await;
    assert_eq!(said, "local-here");
    let refused = "MountVolume.NodeAffinity check failed for volume \"pv-local-there\" : \
                   no matching NodeSelectorTerms";
    says(fixture, &there, refused).await;
}

async fn an_ephemeral_volume_waits_for_a_claim_of_its_own(fixture: &Fixture) {
    let template = json!({ "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "resources": { "requests": { "storage": "1Gi" } },
    }});
    let spec = || mounts_at_v(json!({ "ephemeral": { "volumeClaimTemplate": template } }));
    let owner = fixture.create(&pod("ephemeral", HOLD, spec())).await;
    let claim = make_claim(fixture, "ephemeral-v", Some(&owner)).await;
    // somebody else's claim has the name that this pod's has to have
    let robbed = fixture.create(&pod("robbed", HOLD, spec())).await;
    make_claim(fixture, "robbed-v", None).await;
    bind(fixture, "robbed-v").await;
    make_volume(
        fixture,
        &claim,
        json!({ "hostPath": { "path": directory(fixture, "ephemeral") } }),
    )
    .await;
    bind(fixture, "ephemeral-v").await;
    fixture.pod_ready("ephemeral").await;
    let said = fixture.runtime.exec(uid(&owner), "cat /v/who").await;
    assert_eq!(said, "ephemeral");
    let refused = "PVC default/robbed-v was not created for pod default/robbed (pod is not owner)";
    says(fixture, &robbed, refused).await;
}

/// The best of three counts: a machine that is busy with something else is no slow agent.
async fn a_changed_config_map_is_in_the_file_within_two_seconds(fixture: &Fixture) {
    let map: ConfigMap = object(json!({
        "metadata": { "name": "quick", "namespace": "default" }, "data": { "n": "0" },
    }));
    fixture.create(&map).await;
    let spec = mounts_at_v(json!({ "configMap": { "name": "quick" } }));
    let shows = fixture.create(&pod("quick", HOLD, spec)).await;
    fixture.pod_ready("quick").await;
    let mut fastest = Duration::MAX;
    for n in ["1", "2", "3"] {
        let patch = Patch::Merge(json!({ "data": { "n": n } }));
        let at = At::namespaced("default", "quick");
        fixture
            .api
            .patch::<ConfigMap>(at, None, &patch)
            .await
            .unwrap();
        let began = Instant::now();
        eventually("the changed ConfigMap is in the volume", SOON, async || {
            let now = fixture.runtime.exec(uid(&shows), "cat /v/n").await;
            if now == n { Ok(()) } else { Err(now) }
        })
        .await;
        fastest = fastest.min(began.elapsed());
    }
    assert!(fastest < Duration::from_secs(2), "{fastest:?}");
}
