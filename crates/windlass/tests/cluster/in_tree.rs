//! Volumes of an in-tree type that a CSI driver replaced, inline and behind a PVC. The test is the
//! attach/detach controller and the external attacher.

use std::path::PathBuf;

use serde_json::{Value, json};
use windlass_client::ObjectKey;
use windlass_csi::attachment_name;
use windlass_testing::agent::NODE_NAME;
use windlass_testing::csi_driver::{Call, CsiDriver, DriverOptions, Method, mounts_below};
use windlass_types::corev1::Node;
use windlass_types::storagev1::VolumeAttachment;

use crate::control_plane::Kind;
use crate::csi::{bound, called, install, patch_status, with_claim};
use crate::objects::{HOLD, object, pod, uid};
use crate::test_env::{SOON, TestEnv};

const DRIVER: &str = "ebs.csi.aws.com";
/// Handles of the two volumes.
const VOLUMES: [&str; 2] = ["vol-bound", "vol-inline"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_in_tree_volumes_are_mounted_by_csi() {
    in_tree_volumes_are_mounted_by_csi(Kind::Fake, "k-in-tree").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_in_tree_volumes_are_mounted_by_csi() {
    in_tree_volumes_are_mounted_by_csi(Kind::Real, "k-in-tree-r").await;
}

async fn in_tree_volumes_are_mounted_by_csi(kind: Kind, name: &str) {
    let Some(mut env) = TestEnv::start(kind, name).await else {
        return;
    };
    let root = env.agent.root_dir();
    let options = DriverOptions::new(root.clone(), DRIVER);
    let driver = install(&env, options, json!({ "attachRequired": true })).await;
    let source = json!({ "volumeID": "aws://eu-west-1a/vol-bound", "fsType": "ext4" });
    let in_tree = json!({ "csi": null, "awsElasticBlockStore": source });
    bound(&env, "disk", DRIVER, in_tree).await;
    let claimed = env
        .create(&with_claim("ebs-bound", "disk", json!({})))
        .await;
    let source = json!({ "volumeID": "vol-inline", "partition": 1 });
    let volumes = json!([{ "name": "v", "awsElasticBlockStore": source }]);
    let spec = with_claim("ebs-inline", "unused", json!({ "volumes": volumes }));
    let inline = env.create(&spec).await;

    listed(&env, "volumesInUse", true).await;
    assert_eq!(
        about_the_volumes(&driver),
        [],
        "calls before the attachment"
    );
    for handle in VOLUMES {
        attachment(&env, handle).await;
    }
    let attached: Vec<Value> = VOLUMES
        .iter()
        .map(|handle| json!({ "name": device(handle), "devicePath": "" }))
        .collect();
    let attached = json!({ "status": { "volumesAttached": attached } });
    patch_status::<Node>(&env, ObjectKey::cluster(NODE_NAME), attached).await;
    tokio::join!(env.pod_ready("ebs-bound"), env.pod_ready("ebs-inline"));
    it_is_staged_and_published(&env, &driver, &claimed, &inline).await;

    // a restarted agent reconstructs both volumes without driver calls
    let calls = about_the_volumes(&driver);
    env.agent.kill().unwrap();
    env.respawn().await;
    for created in [&claimed, &inline] {
        let ready = env.watch.wait_for("the pod is ready", SOON, |table| {
            let pod = table.pods.get(uid(created));
            pod.is_some_and(|pod| pod.ready && pod.blocker.is_none())
        });
        ready.await.unwrap();
        let word = env.runtime.exec(uid(created), "cat /v/word").await;
        assert_eq!(word, "data\n");
    }
    assert_eq!(about_the_volumes(&driver), calls);
    listed(&env, "volumesInUse", true).await;

    // another agent run removes what this one has mounted
    for created in [&claimed, &inline] {
        let name = created["metadata"]["name"].as_str().unwrap();
        env.delete_pod(name, Some(1)).await;
        env.pod_gone(created).await;
    }
    called(&driver, Method::NodeUnstageVolume, 2).await;
    listed(&env, "volumesInUse", false).await;
    for handle in VOLUMES {
        assert_eq!(driver.staged(handle), Vec::<PathBuf>::new());
        assert_eq!(driver.published(handle), Vec::<PathBuf>::new());
    }
    assert_eq!(driver.violations(), Vec::<String>::new());
    let left: Vec<PathBuf> = mounts_below(&root.join("plugins"));
    assert_eq!(left, Vec::<PathBuf>::new());
    a_bad_volume_id_is_named(&mut env).await;
    env.stop().await;
}

async fn it_is_staged_and_published(
    env: &TestEnv,
    driver: &CsiDriver,
    claimed: &Value,
    inline: &Value,
) {
    for (handle, created, directory, fs_type, partition) in [
        ("vol-bound", claimed, "disk", "ext4", "0"),
        ("vol-inline", inline, "ebs.csi.aws.com-vol-inline", "", "1"),
    ] {
        for method in [Method::NodeStageVolume, Method::NodePublishVolume] {
            let calls = driver.calls_of(method);
            let mut calls = calls.iter().filter(|call| call.volume == handle);
            let (Some(call), None) = (calls.next(), calls.next()) else {
                panic!("{method:?} of {handle}: not one call");
            };
            assert_eq!(call.context["partition"], partition);
            assert_eq!(call.fs_type, fs_type);
            assert_eq!(call.publish_context["device"], handle);
        }
        let target = format!(
            "pods/{}/volumes/kubernetes.io~csi/{directory}/mount",
            uid(created)
        );
        let targets = driver.published(handle);
        assert_eq!(targets, [env.agent.root_dir().join(target)]);
        let command = "echo data > /v/word";
        env.runtime.exec(uid(created), command).await;
    }
}

/// A pod with an untranslatable volume reports the invalid field.
async fn a_bad_volume_id_is_named(env: &mut TestEnv) {
    let volumes = json!([{ "name": "v", "awsElasticBlockStore": { "volumeID": "aws://a/snap" } }]);
    let spec = with_claim("ebs-bad", "unused", json!({ "volumes": volumes }));
    let created = env.create(&spec).await;
    let words = "spec.volumes[v].awsElasticBlockStore.volumeID: \"aws://a/snap\" is not an EBS \
                 volume; write vol-ID or aws://ZONE/vol-ID";
    let blocked = env.watch.wait_for("the pod reports it", SOON, |table| {
        let pod = table.pods.get(uid(&created));
        let blocker = pod.and_then(|pod| pod.blocker.as_ref());
        blocker.is_some_and(|blocker| blocker.message.contains(words))
    });
    blocked.await.unwrap();
    // such a volume blocks no other pod
    env.create(&pod("ebs-none", HOLD, json!({}))).await;
    env.pod_ready("ebs-none").await;
}

/// Name of a volume in the status of the node.
fn device(handle: &str) -> String {
    format!("kubernetes.io/csi/{DRIVER}^{handle}")
}

/// Calls about the two volumes.
fn about_the_volumes(driver: &CsiDriver) -> Vec<Call> {
    let mut calls = driver.calls();
    calls.retain(|call| VOLUMES.contains(&call.volume.as_str()));
    calls
}

/// Waits until the status of the node lists both volumes, or none.
async fn listed(env: &TestEnv, list: &str, wanted: bool) {
    let what = format!("{list} has the volumes: {wanted}");
    env.wait_for::<Node>(ObjectKey::cluster(NODE_NAME), &what, |node| {
        let names = node["status"][list].as_array();
        let has = |handle: &&str| {
            let mut names = names.into_iter().flatten();
            names.any(|name| name.as_str() == Some(&device(handle)))
        };
        VOLUMES.iter().filter(|handle| has(handle)).count() == if wanted { 2 } else { 0 }
    })
    .await;
}

async fn attachment(env: &TestEnv, handle: &str) {
    let name = attachment_name(handle, DRIVER, NODE_NAME);
    let attachment: VolumeAttachment = object(json!({
        "metadata": { "name": name },
        "spec": { "attacher": DRIVER, "nodeName": NODE_NAME,
            "source": { "persistentVolumeName": handle } },
    }));
    env.create(&attachment).await;
    let attached = json!({ "attached": true, "attachmentMetadata": { "device": handle } });
    let status = json!({ "status": attached });
    patch_status::<VolumeAttachment>(env, ObjectKey::cluster(&name), status).await;
}
