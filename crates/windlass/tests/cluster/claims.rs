//! PVCs and their volumes. The test binds them, as a controller would.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_client::{ObjectKey, Patch, Selector};
use windlass_testing::agent::NODE_NAME;
use windlass_types::corev1::{ConfigMap, Event, PersistentVolume, PersistentVolumeClaim};

use crate::control_plane::Kind;
use crate::objects::{HOLD, container_with, main_status, object, pod, uid};
use crate::test_env::{SOON, TestEnv, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_pods_mount_or_wait_for_pvcs() {
    pods_mount_or_wait_for_pvcs(Kind::Fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_pods_mount_or_wait_for_pvcs() {
    pods_mount_or_wait_for_pvcs(Kind::Real).await;
}

async fn pods_mount_or_wait_for_pvcs(kind: Kind) {
    let Some(env) = TestEnv::start(kind, "k-claims").await else {
        return;
    };
    tokio::join!(
        Box::pin(a_claim_of_a_host_path_is_shown(&env)),
        Box::pin(a_missing_claim_is_waited_for(&env)),
        Box::pin(a_local_volume_is_mounted_on_its_node_only(&env)),
        Box::pin(an_ephemeral_volume_waits_for_a_claim_of_its_own(&env)),
    );
    // alone, because it measures time
    Box::pin(a_changed_config_map_is_in_the_file_within_two_seconds(&env)).await;
    env.stop().await;
}

/// A new directory of the host with one file.
fn directory(env: &TestEnv, name: &str) -> PathBuf {
    let dir = env.manifests.with_file_name(name);
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("who"), name).unwrap();
    dir
}

async fn make_claim(env: &TestEnv, name: &str, owner: Option<&Value>) -> Value {
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
    env.create(&claim).await
}

async fn make_volume(env: &TestEnv, claim: &Value, source: Value) {
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
    env.create(&volume).await;
}

async fn bind(env: &TestEnv, name: &str) {
    let status = json!({
        "phase": "Bound",
        "accessModes": ["ReadWriteOnce"],
        "capacity": { "storage": "1Gi" },
    });
    let patch = Patch::Merge(json!({ "status": status }));
    let at = ObjectKey::namespaced("default", name);
    let patched = env
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

/// Waits for an event of the pod with this message.
pub(crate) async fn reports(env: &TestEnv, pod: &Value, wanted: &str) {
    let selector = Selector {
        namespace: Some("default".to_owned()),
        fields: Some(format!("involvedObject.uid={}", uid(pod))),
        labels: None,
    };
    eventually(wanted, SOON, async || {
        let listed = env.api.list::<Event>(&selector, &Default::default()).await;
        let (events, _) = listed.map_err(|error| error.to_string())?;
        let messages: Vec<_> = events.into_iter().filter_map(|e| e.message).collect();
        let said = messages.iter().any(|message| message.contains(wanted));
        said.then_some(()).ok_or_else(|| format!("{messages:?}"))
    })
    .await;
}

async fn a_claim_of_a_host_path_is_shown(env: &TestEnv) {
    let dir = directory(env, "shown");
    let claim = make_claim(env, "shown", None).await;
    make_volume(env, &claim, json!({ "hostPath": { "path": dir } })).await;
    bind(env, "shown").await;
    let writes = env
        .create(&pod("claim-writes", HOLD, by_claim("shown")))
        .await;
    let mut spec = by_claim("shown");
    spec["volumes"][0]["persistentVolumeClaim"]["readOnly"] = json!(true);
    let reads = env.create(&pod("claim-reads", HOLD, spec)).await;
    tokio::join!(env.pod_ready("claim-writes"), env.pod_ready("claim-reads"));
    let said = env
        .runtime
        .exec(uid(&writes), "cat /v/who; echo x > /v/new")
        .await;
    assert_eq!(said, "shown");
    let said = env
        .runtime
        .exec(uid(&reads), "cat /v/new; touch /v/y || echo no")
        .await;
    assert_eq!(said.lines().last(), Some("no"), "{said}");
    assert_eq!(std::fs::read_to_string(dir.join("new")).unwrap(), "x\n");
}

async fn a_missing_claim_is_waited_for(env: &TestEnv) {
    let waits = env
        .create(&pod("claim-waits", HOLD, by_claim("late")))
        .await;
    env.pod("claim-waits", "waits for its claim", |pod| {
        main_status(pod)["state"]["waiting"]["reason"] == "ContainerCreating"
    })
    .await;
    // the real server may first reject access of the node to such a PVC
    reports(
        env,
        &waits,
        "error processing PVC default/late: failed to fetch PVC",
    )
    .await;
    let claim = make_claim(env, "late", None).await;
    reports(
        env,
        &waits,
        "error processing PVC default/late: PVC is not bound",
    )
    .await;
    make_volume(
        env,
        &claim,
        json!({ "hostPath": { "path": directory(env, "late") } }),
    )
    .await;
    bind(env, "late").await;
    env.pod_ready("claim-waits").await;
    let said = env.runtime.exec(uid(&waits), "cat /v/who").await;
    assert_eq!(said, "late");
}

async fn a_local_volume_is_mounted_on_its_node_only(env: &TestEnv) {
    let on = |node: &str, path: PathBuf| {
        json!({
            "local": { "path": path },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": "kubernetes.io/hostname", "operator": "In", "values": [node] },
            ]}]}},
        })
    };
    for (name, node) in [("local-here", NODE_NAME), ("local-there", "elsewhere")] {
        let claim = make_claim(env, name, None).await;
        make_volume(env, &claim, on(node, directory(env, name))).await;
        bind(env, name).await;
    }
    let here = env
        .create(&pod("local-here", HOLD, by_claim("local-here")))
        .await;
    let there = env
        .create(&pod("local-there", HOLD, by_claim("local-there")))
        .await;
    env.pod_ready("local-here").await;
    let said = env.runtime.exec(uid(&here), "cat /v/who").await;
    assert_eq!(said, "local-here");
    let refused = "MountVolume.NodeAffinity check failed for volume \"pv-local-there\" : \
                   no matching NodeSelectorTerms";
    reports(env, &there, refused).await;
}

async fn an_ephemeral_volume_waits_for_a_claim_of_its_own(env: &TestEnv) {
    let template = json!({ "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "resources": { "requests": { "storage": "1Gi" } },
    }});
    let spec = || mounts_at_v(json!({ "ephemeral": { "volumeClaimTemplate": template } }));
    let owner = env.create(&pod("ephemeral", HOLD, spec())).await;
    let claim = make_claim(env, "ephemeral-v", Some(&owner)).await;
    // an unrelated PVC has the name of this pod's ephemeral PVC
    let robbed = env.create(&pod("robbed", HOLD, spec())).await;
    make_claim(env, "robbed-v", None).await;
    bind(env, "robbed-v").await;
    make_volume(
        env,
        &claim,
        json!({ "hostPath": { "path": directory(env, "ephemeral") } }),
    )
    .await;
    bind(env, "ephemeral-v").await;
    env.pod_ready("ephemeral").await;
    let said = env.runtime.exec(uid(&owner), "cat /v/who").await;
    assert_eq!(said, "ephemeral");
    let refused = "PVC default/robbed-v was not created for pod default/robbed (pod is not owner)";
    reports(env, &robbed, refused).await;
}

/// Takes the best of three measurements, because the host may be busy.
async fn a_changed_config_map_is_in_the_file_within_two_seconds(env: &TestEnv) {
    let map: ConfigMap = object(json!({
        "metadata": { "name": "quick", "namespace": "default" }, "data": { "n": "0" },
    }));
    env.create(&map).await;
    let spec = mounts_at_v(json!({ "configMap": { "name": "quick" } }));
    let shows = env.create(&pod("quick", HOLD, spec)).await;
    env.pod_ready("quick").await;
    let mut fastest = Duration::MAX;
    for n in ["1", "2", "3"] {
        let patch = Patch::Merge(json!({ "data": { "n": n } }));
        let at = ObjectKey::namespaced("default", "quick");
        env.api.patch::<ConfigMap>(at, None, &patch).await.unwrap();
        let began = Instant::now();
        eventually("the changed ConfigMap is in the volume", SOON, async || {
            let now = env.runtime.exec(uid(&shows), "cat /v/n").await;
            if now == n { Ok(()) } else { Err(now) }
        })
        .await;
        fastest = fastest.min(began.elapsed());
    }
    assert!(fastest < Duration::from_secs(2), "{fastest:?}");
}
