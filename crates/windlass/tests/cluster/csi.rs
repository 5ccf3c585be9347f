//! Volumes of a CSI driver with a socket of its own, checked in pods and in the driver's calls. The
//! test binds PVCs; volumes are neither attached nor provisioned.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_client::{List, ObjectKey, Patch, Selector};
use windlass_testing::csi_driver::{
    Call, Capability, CsiDriver, DriverOptions, Fault, FaultKind, Method, mounts_below,
};
use windlass_types::corev1::{Event, PersistentVolume, PersistentVolumeClaim};
use windlass_types::storagev1::CSIDriver;

use crate::control_plane::Kind;
use crate::objects::{HOLD, container_with, object, pod, uid};
use crate::test_env::{SOON, TestEnv, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_csi_volume_lifecycle_with_expansion() {
    csi_volume_lifecycle_with_expansion(Kind::Fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_csi_volume_lifecycle_with_expansion() {
    csi_volume_lifecycle_with_expansion(Kind::Real).await;
}

/// A driver on the test node, and its CSIDriver object.
pub(crate) async fn install(env: &TestEnv, options: DriverOptions, spec: Value) -> CsiDriver {
    let name = options.name.clone();
    let object: CSIDriver = object(json!({ "metadata": { "name": name }, "spec": spec }));
    env.create(&object).await;
    let driver = CsiDriver::start(options).unwrap();
    driver.registered(1, SOON).await.unwrap();
    driver
}

/// A bound pair of PersistentVolume and PVC, both with the name and volume handle `name`.
pub(crate) async fn bound(env: &TestEnv, name: &str, driver: &str, more: Value) {
    let mut spec = json!({
        "capacity": { "storage": "16Mi" },
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": { "namespace": "default", "name": name },
        "csi": { "driver": driver, "volumeHandle": name, "fsType": "ext4" },
    });
    let mode = more["volumeMode"].clone();
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let mut claim = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "16Mi" } },
        "volumeName": name,
        "storageClassName": "",
    });
    if !mode.is_null() {
        claim["volumeMode"] = mode;
    }
    let claim: PersistentVolumeClaim = object(json!({
        "metadata": { "name": name, "namespace": "default",
            "annotations": { "pv.kubernetes.io/bind-completed": "yes" } },
        "spec": claim,
    }));
    let created = env.create(&claim).await;
    spec["claimRef"]["uid"] = created["metadata"]["uid"].clone();
    let volume: PersistentVolume = object(json!({ "metadata": { "name": name }, "spec": spec }));
    env.create(&volume).await;
    let status = json!({ "status": { "phase": "Bound", "capacity": { "storage": "16Mi" },
        "accessModes": ["ReadWriteOnce"] } });
    patch_status::<PersistentVolumeClaim>(env, ObjectKey::namespaced("default", name), status)
        .await;
    let status = json!({ "status": { "phase": "Bound" } });
    patch_status::<PersistentVolume>(env, ObjectKey::cluster(name), status).await;
}

pub(crate) async fn patch_status<K: windlass_client::ApiObject>(
    env: &TestEnv,
    at: ObjectKey<'_>,
    status: Value,
) {
    let patch = Patch::Merge(status);
    env.api
        .patch::<K>(at, Some("status"), &patch)
        .await
        .unwrap();
}

/// A pod whose container mounts the PVC at `/v`.
pub(crate) fn with_claim(name: &str, claim: &str, spec: Value) -> windlass_types::corev1::Pod {
    let mounts = json!({ "volumeMounts": [{ "name": "v", "mountPath": "/v" }] });
    let mut whole = json!({
        "containers": [container_with(HOLD, mounts)],
        "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": claim } }],
    });
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    pod(name, HOLD, whole)
}

/// Paths of calls, relative to `--root-dir`.
fn paths(env: &TestEnv, calls: &[Call]) -> Vec<PathBuf> {
    let root = env.agent.root_dir();
    let path = |call: &Call| call.path.strip_prefix(&root).unwrap().to_owned();
    calls.iter().map(path).collect()
}

pub(crate) async fn called(driver: &CsiDriver, method: Method, count: usize) -> Vec<Call> {
    let what = format!("{count} calls of {method:?}");
    eventually(&what, SOON, async || {
        let calls = driver.calls_of(method);
        let seen = format!("{calls:?}");
        (calls.len() >= count).then_some(calls).ok_or(seen)
    })
    .await
}

async fn csi_volume_lifecycle_with_expansion(kind: Kind) {
    let name = match kind {
        Kind::Fake => "k-csi",
        _ => "k-csi-real",
    };
    let Some(mut env) = TestEnv::start(kind, name).await else {
        return;
    };
    let root = env.agent.root_dir();
    let mut driver = install(
        &env,
        DriverOptions::new(root.clone(), "disk.csi.test"),
        json!({ "attachRequired": false, "podInfoOnMount": true, "fsGroupPolicy": "File" }),
    )
    .await;
    a_volume_of_two_pods_survives_agent_and_driver(&mut env, &mut driver).await;
    faults_of_a_driver_end_with_it(&mut env, &mut driver).await;
    a_block_volume_is_a_device(&env, &driver).await;
    assert_eq!(driver.violations(), Vec::<String>::new());

    let mut options = DriverOptions::new(root.clone(), "inline.csi.test");
    options.capabilities = BTreeSet::from([Capability::VolumeMountGroup]);
    let spec = json!({
        "attachRequired": false,
        "podInfoOnMount": true,
        "volumeLifecycleModes": ["Ephemeral"],
        "tokenRequests": [{ "audience": "vault" }],
        "requiresRepublish": true,
    });
    let mut inline = install(&env, options, spec).await;
    an_inline_volume_is_its_pods_own(&env, &mut inline).await;
    assert_eq!(inline.violations(), Vec::<String>::new());

    let left: Vec<PathBuf> = mounts_below(&root.join("plugins"));
    assert_eq!(left, Vec::<PathBuf>::new());
    env.stop().await;
}

async fn a_volume_of_two_pods_survives_agent_and_driver(env: &mut TestEnv, driver: &mut CsiDriver) {
    bound(env, "shared", "disk.csi.test", json!({})).await;
    let group = json!({ "securityContext": { "fsGroup": 4242 } });
    let first = env
        .create(&with_claim("csi-first", "shared", group.clone()))
        .await;
    let second = env.create(&with_claim("csi-second", "shared", group)).await;
    tokio::join!(env.pod_ready("csi-first"), env.pod_ready("csi-second"));
    env.runtime.exec(uid(&first), "echo hello > /v/word").await;
    assert_eq!(
        env.runtime.exec(uid(&second), "cat /v/word").await,
        "hello\n"
    );
    let owner = env
        .runtime
        .exec(uid(&first), "stat -c '%g %a' /v; stat -c %g /v/word")
        .await;
    assert!(owner.starts_with("4242 2"), "{owner}");
    assert!(owner.ends_with("\n4242\n"), "{owner}");

    let staged = driver.calls_of(Method::NodeStageVolume);
    assert_eq!(staged.len(), 1, "{staged:?}");
    assert_eq!(
        (staged[0].fs_type.as_str(), staged[0].access_mode.as_str()),
        ("ext4", "SINGLE_NODE_WRITER")
    );
    let published = driver.calls_of(Method::NodePublishVolume);
    let mut targets = paths(env, &published);
    targets.sort();
    let mut wanted = [&first, &second].map(|pod| {
        PathBuf::from(format!(
            "pods/{}/volumes/kubernetes.io~csi/shared/mount",
            uid(pod)
        ))
    });
    wanted.sort();
    assert_eq!(targets, wanted);
    let context = &published[0].context;
    assert_eq!(context["csi.storage.k8s.io/pod.namespace"], "default");
    assert_eq!(context["csi.storage.k8s.io/ephemeral"], "false");

    // kill -9 and a stopped driver: containers keep running and can be restarted
    driver.kill();
    env.agent.kill().unwrap();
    env.respawn().await;
    let calls = driver.calls().len();
    env.runtime.crash(uid(&first)).await;
    env.pod("csi-first", "runs again", |pod| {
        pod["status"]["containerStatuses"][0]["restartCount"] == 1 && crate::objects::is_ready(pod)
    })
    .await;
    assert_eq!(
        env.runtime.exec(uid(&first), "cat /v/word").await,
        "hello\n"
    );
    assert_eq!(driver.calls().len(), calls);

    // volumes are unpublished only while the driver runs
    env.delete_pod("csi-first", None).await;
    let gone = "list of registered CSI drivers";
    eventually("the agent reports what it waits for", SOON, async || {
        let log = std::fs::read_to_string(env.agent.log_file()).unwrap();
        log.contains(gone).then_some(()).ok_or_else(String::new)
    })
    .await;
    driver.restart().unwrap();
    env.pod_gone(&first).await;
    assert_eq!(driver.calls_of(Method::NodeUnstageVolume), []);

    let grown = Patch::Merge(json!({ "spec": { "capacity": { "storage": "32Mi" } } }));
    let patched = env
        .api
        .patch::<PersistentVolume>(ObjectKey::cluster("shared"), None, &grown);
    patched.await.unwrap();
    let expanded = called(driver, Method::NodeExpandVolume, 1).await;
    assert_eq!(expanded[0].wanted_bytes, 32 << 20);
    let at = ObjectKey::namespaced("default", "shared");
    env.wait_for::<PersistentVolumeClaim>(at, "has grown", |claim| {
        claim["status"]["capacity"]["storage"] == "32Mi"
    })
    .await;
    env.events(&second, &["FileSystemResizeSuccessful"]).await;
    eventually("the PVC has the event", SOON, async || {
        let events = Selector {
            namespace: Some("default".to_owned()),
            fields: Some("involvedObject.kind=PersistentVolumeClaim".to_owned()),
            labels: None,
        };
        let listed = env.api.list::<Event>(&events, &List::default()).await;
        let (events, _) = listed.map_err(|error| error.to_string())?;
        let told = |event: &Event| {
            event.reason.as_deref() == Some("FileSystemResizeSuccessful")
                && event.involved_object.name.as_deref() == Some("shared")
        };
        let seen = || format!("{events:?}");
        events.iter().any(told).then_some(()).ok_or_else(seen)
    })
    .await;
    a_growth_that_the_resizer_follows(env, driver).await;

    env.delete_pod("csi-second", None).await;
    env.pod_gone(&second).await;
    called(driver, Method::NodeUnstageVolume, 1).await;
    assert_eq!(driver.staged("shared"), Vec::<PathBuf>::new());
    assert_eq!(driver.published("shared"), Vec::<PathBuf>::new());
    let content = std::fs::read_to_string(driver.content("shared").join("word")).unwrap();
    assert_eq!(content, "hello\n");
}

/// As a current resizer: an expansion rejected by the driver is infeasible until the
/// resizer retries.
async fn a_growth_that_the_resizer_follows(env: &TestEnv, driver: &CsiDriver) {
    let at = || ObjectKey::namespaced("default", "shared");
    let ask = async || {
        let grown = Patch::Merge(json!({ "spec": { "capacity": { "storage": "64Mi" } } }));
        let patched = env
            .api
            .patch::<PersistentVolume>(ObjectKey::cluster("shared"), None, &grown);
        patched.await.unwrap();
        let pending = json!({ "status": {
            "allocatedResources": { "storage": "64Mi" },
            "allocatedResourceStatuses": { "storage": "NodeResizePending" },
        } });
        patch_status::<PersistentVolumeClaim>(env, at(), pending).await;
    };
    let refused = FaultKind::Reject(tonic::Code::OutOfRange, "too large".to_owned());
    driver.fault(Method::NodeExpandVolume, Fault::before(refused));
    ask().await;
    env.wait_for::<PersistentVolumeClaim>(at(), "is infeasible", |claim| {
        let status = &claim["status"];
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let words = "failed to expand pvc with Expander.NodeExpand failed to expand the volume rpc \
                     error: code = OutOfRange desc = too large";
        status["allocatedResourceStatuses"]["storage"] == "NodeResizeInfeasible"
            && conditions.any(|one| one["type"] == "NodeResizeError" && one["message"] == words)
    })
    .await;
    ask().await;
    env.wait_for::<PersistentVolumeClaim>(at(), "has grown again", |claim| {
        let status = &claim["status"];
        status["capacity"]["storage"] == "64Mi"
            && status["allocatedResourceStatuses"]["storage"].is_null()
            && status["conditions"].as_array().is_none_or(Vec::is_empty)
    })
    .await;
}

async fn faults_of_a_driver_end_with_it(env: &mut TestEnv, driver: &mut CsiDriver) {
    for name in ["dies", "hangs", "steady"] {
        bound(env, name, "disk.csi.test", json!({})).await;
    }
    // killed after mounting, before recording it
    driver.fault(Method::NodePublishVolume, Fault::after(FaultKind::Exit));
    let dies = env.create(&with_claim("csi-dies", "dies", json!({}))).await;
    called(driver, Method::NodePublishVolume, 3).await;
    env.events(&dies, &["FailedMount"]).await;
    driver.restart().unwrap();
    env.pod_ready("csi-dies").await;

    // the agent is killed during a hung call; other pods do not wait
    let before = driver.calls_of(Method::NodeStageVolume).len();
    driver.fault(Method::NodeStageVolume, Fault::after(FaultKind::Hang));
    let hangs = env
        .create(&with_claim("csi-hangs", "hangs", json!({})))
        .await;
    called(driver, Method::NodeStageVolume, before + 1).await;
    let steady = env
        .create(&with_claim("csi-steady", "steady", json!({})))
        .await;
    env.pod_ready("csi-steady").await;
    env.agent.kill().unwrap();
    env.respawn().await;
    env.pod_ready("csi-hangs").await;

    for (name, pod) in [
        ("csi-dies", &dies),
        ("csi-hangs", &hangs),
        ("csi-steady", &steady),
    ] {
        env.delete_pod(name, Some(1)).await;
        env.pod_gone(pod).await;
    }
    for name in ["dies", "hangs", "steady"] {
        eventually("the device is unstaged", SOON, async || {
            let staged = driver.staged(name);
            staged.is_empty().then_some(()).ok_or(format!("{staged:?}"))
        })
        .await;
    }
}

async fn a_block_volume_is_a_device(env: &TestEnv, driver: &CsiDriver) {
    bound(
        env,
        "raw",
        "disk.csi.test",
        json!({ "volumeMode": "Block" }),
    )
    .await;
    let devices = json!({ "volumeDevices": [{ "name": "v", "devicePath": "/dev/raw" }] });
    let spec = json!({ "containers": [container_with(HOLD, devices)] });
    let raw = env.create(&with_claim("csi-raw", "raw", spec)).await;
    env.pod_ready("csi-raw").await;
    let script = "test -b /dev/raw && echo block | dd of=/dev/raw conv=fsync 2>/dev/null && head -c 5 /dev/raw";
    assert_eq!(env.runtime.exec(uid(&raw), script).await, "block");
    let published = driver.calls_of(Method::NodePublishVolume);
    let last = published.last().unwrap();
    assert!(last.block, "{last:?}");
    env.delete_pod("csi-raw", Some(1)).await;
    env.pod_gone(&raw).await;
    eventually("the device is unstaged", SOON, async || {
        let staged = driver.staged("raw");
        staged.is_empty().then_some(()).ok_or(format!("{staged:?}"))
    })
    .await;
    let root = env.agent.root_dir();
    let of_volume = root.join("plugins/kubernetes.io/csi/volumeDevices/raw");
    eventually("its notes are gone", SOON, async || {
        let there = of_volume.exists();
        (!there)
            .then_some(())
            .ok_or_else(|| of_volume.display().to_string())
    })
    .await;
}

async fn an_inline_volume_is_its_pods_own(env: &TestEnv, driver: &mut CsiDriver) {
    let mounts = json!({ "volumeMounts": [{ "name": "scratch", "mountPath": "/v" }] });
    let spec = json!({
        "containers": [container_with(HOLD, mounts)],
        "securityContext": { "fsGroup": 4343 },
        "volumes": [{ "name": "scratch", "csi": { "driver": "inline.csi.test",
            "volumeAttributes": { "tier": "fast" } } }],
    });
    let created = env.create(&pod("csi-inline", HOLD, spec)).await;
    env.pod_ready("csi-inline").await;
    let first = driver.calls_of(Method::NodePublishVolume).remove(0);
    assert_eq!(first.context["tier"], "fast");
    assert_eq!(first.context["csi.storage.k8s.io/pod.name"], "csi-inline");
    assert_eq!(first.context["csi.storage.k8s.io/pod.uid"], uid(&created));
    assert_eq!(first.context["csi.storage.k8s.io/ephemeral"], "true");
    assert_eq!(first.mount_group, "4343");
    let tokens = &first.context["csi.storage.k8s.io/serviceAccount.tokens"];
    let tokens: Value = serde_json::from_str(tokens).unwrap();
    assert!(
        tokens["vault"]["token"]
            .as_str()
            .is_some_and(|token| !token.is_empty())
    );
    assert!(tokens["vault"]["expirationTimestamp"].is_string());
    env.runtime.exec(uid(&created), "echo mine > /v/word").await;

    // republished on each sync; a failure changes nothing
    let refused = FaultKind::Reject(tonic::Code::InvalidArgument, "not now".to_owned());
    driver.always(Method::NodePublishVolume, Some(Fault::before(refused)));
    let before = driver.calls_of(Method::NodePublishVolume).len();
    called(driver, Method::NodePublishVolume, before + 1).await;
    assert_eq!(
        env.runtime.exec(uid(&created), "cat /v/word").await,
        "mine\n"
    );
    driver.always(Method::NodePublishVolume, None);

    // uninstalled while in use: the pod terminates once the driver is back
    driver.uninstall();
    env.delete_pod("csi-inline", Some(1)).await;
    env.runtime_stopped(&created).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let at = ObjectKey::namespaced("default", "csi-inline");
    assert!(env.get::<windlass_types::corev1::Pod>(at).await.is_some());
    driver.restart().unwrap();
    env.pod_gone(&created).await;
    assert_eq!(driver.published(&first.volume), Vec::<PathBuf>::new());
}
