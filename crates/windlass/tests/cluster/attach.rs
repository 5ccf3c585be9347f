//! Volumes that a controller attaches. The test is the driver's external attacher and, without a
//! controller manager, the controller.

use std::path::PathBuf;

use serde_json::{Value, json};
use windlass_client::ObjectKey;
use windlass_csi::attachment_name;
use windlass_testing::agent::NODE_NAME;
use windlass_testing::csi_driver::{
    Call, CsiDriver, DriverOptions, Fault, FaultKind, Method, mounts_below,
};
use windlass_types::corev1::Node;
use windlass_types::storagev1::VolumeAttachment;

use crate::claims::reports;
use crate::control_plane::Kind;
use crate::csi::{bound, called, install, patch_status, with_claim};
use crate::objects::{HOLD, main_status, object, pod, uid};
use crate::test_env::{SOON, TestEnv, eventually};

const DRIVER: &str = "rack.csi.test";
/// PersistentVolume, claim and handle.
const VOLUME: &str = "vault";
/// The volume in the status of the node.
const DEVICE: &str = "kubernetes.io/csi/rack.csi.test^vault";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_volume_is_used_only_while_attached_in_use() {
    volume_is_used_only_while_attached_in_use(Kind::Fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_volume_is_used_only_while_attached_in_use() {
    // a real attach/detach controller, if present
    let kind = match Kind::WithControllers.assets() {
        Ok(_) => Kind::WithControllers,
        Err(_) => Kind::Real,
    };
    volume_is_used_only_while_attached_in_use(kind).await;
}

async fn volume_is_used_only_while_attached_in_use(kind: Kind) {
    let Some(mut env) = TestEnv::start(kind, "k-attach").await else {
        return;
    };
    let root = env.agent.root_dir();
    let options = DriverOptions::new(root.clone(), DRIVER);
    let driver = install(&env, options, json!({ "attachRequired": true })).await;
    bound(&env, VOLUME, DRIVER, json!({})).await;
    let created = env.create(&with_claim("attach", VOLUME, json!({}))).await;
    env.create(&pod("attach-free", HOLD, json!({}))).await;
    in_use(&env, true).await;
    env.pod_ready("attach-free").await;
    it_waits_and_says_for_what(&mut env, &created).await;

    // a restarted agent waits for the same
    env.agent.kill().unwrap();
    env.respawn().await;
    it_waits_and_says_for_what(&mut env, &created).await;
    in_use(&env, true).await;
    assert_eq!(about_the_volume(&driver), [], "nothing is touched before");

    let context = json!({ "rack": "7", "devicePath": "/dev/rack7" });
    attach(&env, kind, &context).await;
    env.pod_ready("attach").await;
    for method in [Method::NodeStageVolume, Method::NodePublishVolume] {
        let calls = driver.calls_of(method);
        assert_eq!(calls.len(), 1, "{calls:?}");
        assert_eq!(json!(calls[0].publish_context), context);
    }
    in_use(&env, true).await;
    it_outlives_an_agent(&mut env, &driver, &created).await;
    it_is_in_use_until_it_is_unstaged(&mut env, kind, &driver, &created).await;

    assert_eq!(driver.violations(), Vec::<String>::new());
    let left: Vec<PathBuf> = mounts_below(&root.join("plugins"));
    assert_eq!(left, Vec::<PathBuf>::new());
    env.stop().await;
}

/// Driver calls for the volume.
fn about_the_volume(driver: &CsiDriver) -> Vec<Call> {
    let mut calls = driver.calls();
    calls.retain(|call| call.volume == VOLUME);
    calls
}

fn names_the_volume(node: &Value, list: &str) -> bool {
    let listed = node["status"][list].as_array();
    let mut names = listed.into_iter().flatten().map(|entry| match entry {
        Value::String(name) => name.as_str(),
        attached => attached["name"].as_str().unwrap_or_default(),
    });
    names.any(|name| name == DEVICE)
}

/// Waits until `volumesInUse` has the volume, or no longer has it.
async fn in_use(env: &TestEnv, wanted: bool) {
    let what = format!("volume reported in use: {wanted}");
    env.wait_for::<Node>(ObjectKey::cluster(NODE_NAME), &what, |node| {
        names_the_volume(node, "volumesInUse") == wanted
    })
    .await;
}

async fn it_waits_and_says_for_what(env: &mut TestEnv, created: &Value) {
    let words = format!(
        "Volume not attached according to node status for volume \"{VOLUME}\" (UniqueName: \
         \"{DEVICE}\")"
    );
    let told = format!("Unable to attach or mount volumes: {words}");
    reports(env, created, &told).await;
    let waits = env.watch.wait_for("the pod waits", SOON, |table| {
        let blocker = table
            .pods
            .get(uid(created))
            .and_then(|it| it.blocker.as_ref());
        blocker.is_some_and(|it| it.reason == "FailedAttachVolume" && it.message.contains(&words))
    });
    waits.await.unwrap();
    env.pod("attach", "waits for its volume", |pod| {
        main_status(pod)["state"]["waiting"]["reason"] == "ContainerCreating"
    })
    .await;
}

/// Acts as attacher and, without a controller manager, as controller.
async fn attach(env: &TestEnv, kind: Kind, context: &Value) {
    let name = attachment_name(VOLUME, DRIVER, NODE_NAME);
    let at = ObjectKey::cluster(&name);
    if kind != Kind::WithControllers {
        let attachment: VolumeAttachment = object(json!({
            "metadata": { "name": name },
            "spec": { "attacher": DRIVER, "nodeName": NODE_NAME,
                "source": { "persistentVolumeName": VOLUME } },
        }));
        env.create(&attachment).await;
    }
    env.wait_for::<VolumeAttachment>(at, "exists", |_| true)
        .await;
    let attached = json!({ "status": { "attached": true, "attachmentMetadata": context } });
    patch_status::<VolumeAttachment>(env, at, attached).await;
    if kind != Kind::WithControllers {
        let volumes = json!([{ "name": DEVICE, "devicePath": "" }]);
        let attached = json!({ "status": { "volumesAttached": volumes } });
        patch_status::<Node>(env, ObjectKey::cluster(NODE_NAME), attached).await;
    }
}

async fn it_outlives_an_agent(env: &mut TestEnv, driver: &CsiDriver, created: &Value) {
    env.runtime.exec(uid(created), "echo gold > /v/word").await;
    let running = env.runtime.running(uid(created)).await;
    let calls = about_the_volume(driver);
    env.agent.kill().unwrap();
    env.respawn().await;
    let ready = env.watch.wait_for("the pod is ready", SOON, |table| {
        let pod = table.pods.get(uid(created));
        pod.is_some_and(|pod| pod.ready && pod.blocker.is_none())
    });
    ready.await.unwrap();
    let ids = |list: &[windlass_proto::cri_v1::Container]| -> Vec<String> {
        list.iter().map(|container| container.id.clone()).collect()
    };
    let after = env.runtime.running(uid(created)).await;
    assert_eq!(ids(&after), ids(&running));
    assert_eq!(
        env.runtime.exec(uid(created), "cat /v/word").await,
        "gold\n"
    );
    assert_eq!(about_the_volume(driver), calls, "the driver was not asked");
    in_use(env, true).await;
}

/// A controller detaches a volume only after it is no longer in use.
async fn it_is_in_use_until_it_is_unstaged(
    env: &mut TestEnv,
    kind: Kind,
    driver: &CsiDriver,
    created: &Value,
) {
    let busy = FaultKind::Reject(tonic::Code::Internal, "the drawer is stuck".to_owned());
    driver.always(Method::NodeUnstageVolume, Some(Fault::before(busy)));
    env.delete_pod("attach", Some(1)).await;
    env.pod_gone(created).await;
    called(driver, Method::NodeUnstageVolume, 2).await;
    env.agent.kill().unwrap();
    env.respawn().await;
    let tried = driver.calls_of(Method::NodeUnstageVolume).len();
    called(driver, Method::NodeUnstageVolume, tried + 1).await;
    let node = env
        .get::<Node>(ObjectKey::cluster(NODE_NAME))
        .await
        .unwrap();
    for list in ["volumesInUse", "volumesAttached"] {
        assert!(names_the_volume(&node, list), "{list}: {node}");
    }
    driver.always(Method::NodeUnstageVolume, None);
    in_use(env, false).await;
    assert_eq!(driver.staged(VOLUME), Vec::<PathBuf>::new());
    assert_eq!(driver.published(VOLUME), Vec::<PathBuf>::new());
    if kind != Kind::WithControllers {
        return;
    }
    env.wait_for::<Node>(ObjectKey::cluster(NODE_NAME), "has it detached", |node| {
        !names_the_volume(node, "volumesAttached")
    })
    .await;
    let name = attachment_name(VOLUME, DRIVER, NODE_NAME);
    eventually("the attachment is gone", SOON, async || {
        let attachment = env.get::<VolumeAttachment>(ObjectKey::cluster(&name)).await;
        attachment.map_or(Ok(()), |it| Err(it.to_string()))
    })
    .await;
}
