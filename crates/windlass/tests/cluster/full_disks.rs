//! Payload updates on a full or read-only disk.

use serde_json::{Value, json};
use windlass_client::{ObjectKey, Patch};
use windlass_testing::small_disk::SmallDisk;
use windlass_types::corev1::ConfigMap;

use crate::claims::reports;
use crate::control_plane::Kind;
use crate::objects::{HOLD, container_with, main_status, object, pod, uid};
use crate::test_env::{Credentials, SOON, TestEnv, eventually};

const NAME: &str = "changes";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_full_disk_keeps_old_payload_until_space() {
    full_disk_keeps_old_payload_until_space(Kind::Fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_full_disk_keeps_old_payload_until_space() {
    full_disk_keeps_old_payload_until_space(Kind::Real).await;
}

async fn full_disk_keeps_old_payload_until_space(kind: Kind) {
    let Some(mut env) = TestEnv::prepare(kind, "k-full", Credentials::Certificate).await else {
        return;
    };
    let root = env.agent.root_dir();
    let disk = SmallDisk::mount(&root.with_file_name("disk"), &root.join("pods")).unwrap();
    env.agent.spawn().unwrap();
    env.node_ready().await;
    let map: ConfigMap = object(json!({
        "metadata": { "name": NAME, "namespace": "default" },
        "data": { "word": "one", "more": "" },
    }));
    env.create(&map).await;
    let mounts = json!({ "volumeMounts": [{ "name": "v", "mountPath": "/v" }] });
    let spec = json!({
        "containers": [container_with(HOLD, mounts)],
        "volumes": [{ "name": "v", "configMap": { "name": NAME } }],
    });
    let created = env.create(&pod(NAME, HOLD, spec)).await;
    env.pod_ready(NAME).await;
    shows(&env, &created, "one").await;

    disk.fill().unwrap();
    let full = "No space left on device (os error 28)";
    a_change_waits(&mut env, &created, ["one", "two"], full).await;
    disk.free().unwrap();
    shows(&env, &created, "two").await;

    disk.set_read_only(true).unwrap();
    let refused = "Read-only file system (os error 30)";
    a_change_waits(&mut env, &created, ["two", "three"], refused).await;
    disk.set_read_only(false).unwrap();
    shows(&env, &created, "three").await;

    env.delete_pod(NAME, Some(1)).await;
    env.pod_gone(&created).await;
    env.stop().await;
}

/// Content of the volume in a container: the word and the file names without timestamped ones.
async fn content(env: &TestEnv, created: &Value) -> String {
    let script = "cat /v/word; echo; ls -A /v | sed 's/^\\.\\.2.*/..date/'; ls /v/..data";
    env.runtime.exec(uid(created), script).await
}

fn whole(word: &str) -> String {
    format!("{word}\n..date\n..data\nmore\nword\nmore\nword\n")
}

/// Waits until a container sees this word, without partial content.
async fn shows(env: &TestEnv, created: &Value, word: &str) {
    eventually(word, SOON, async || {
        let seen = content(env, created).await;
        (seen == whole(word)).then_some(()).ok_or(seen)
    })
    .await;
}

/// The ConfigMap changes, and the pod reports why it does not see that. It keeps running, also
/// under a new agent.
async fn a_change_waits(env: &mut TestEnv, created: &Value, words: [&str; 2], refusal: &str) {
    let [old, new] = words;
    let data = json!({ "word": new, "more": "x".repeat(100_000) });
    let patch = Patch::Merge(json!({ "data": data }));
    let at = ObjectKey::namespaced("default", NAME);
    env.api.patch::<ConfigMap>(at, None, &patch).await.unwrap();
    reports(env, created, refusal).await;
    assert_eq!(content(env, created).await, whole(old));
    env.agent.kill().unwrap();
    env.respawn().await;
    let ready = env.watch.wait_for("the pod is ready", SOON, |table| {
        table.pods.get(uid(created)).is_some_and(|pod| pod.ready)
    });
    ready.await.unwrap();
    assert_eq!(content(env, created).await, whole(old));
    let now = env.pod_ready(NAME).await;
    assert_eq!(main_status(&now)["restartCount"], 0);
}
