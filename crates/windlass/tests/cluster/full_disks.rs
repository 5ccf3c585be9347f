//! Volumes that change while the disk under the pods is full or read-only.

use serde_json::{Value, json};
use windlass_client::{At, Patch};
use windlass_testing::small_disk::SmallDisk;
use windlass_types::corev1::ConfigMap;

use crate::claims::says;
use crate::control_plane::Kind;
use crate::fixture::{Credentials, Fixture, SOON, eventually};
use crate::objects::{HOLD, container_with, main_status, object, pod, uid};

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
    let Some(mut fixture) = Fixture::prepare(kind, "k-full", Credentials::Certificate).await else {
        return;
    };
    let root = fixture.agent.root_dir();
    let disk = SmallDisk::mount(&root.with_file_name("disk"), &root.join("pods")).unwrap();
    fixture.agent.spawn().unwrap();
    fixture.node_ready().await;
    let map: ConfigMap = object(json!({
        "metadata": { "name": NAME, "namespace": "default" },
        "data": { "word": "one", "more": "" },
    }));
    fixture.create(&map).await;
    let mounts = json!({ "volumeMounts": [{ "name": "v", "mountPath": "/v" }] });
    let spec = json!({
        "containers": [container_with(HOLD, mounts)],
        "volumes": [{ "name": "v", "configMap": { "name": NAME } }],
    });
    let created = fixture.create(&pod(NAME, HOLD, spec)).await;
    fixture.pod_ready(NAME).await;
    shows(&fixture, &created, "one").await;

    disk.fill().unwrap();
    let full = "No space left on device (os error 28)";
    a_change_waits(&mut fixture, &created, ["one", "two"], full).await;
    disk.free().unwrap();
    shows(&fixture, &created, "two").await;

    disk.set_read_only(true).unwrap();
    let refused = "Read-only file system (os error 30)";
    a_change_waits(&mut fixture, &created, ["two", "three"], refused).await;
    disk.set_read_only(false).unwrap();
    shows(&fixture, &created, "three").await;

    fixture.delete_pod(NAME, Some(1)).await;
    fixture.pod_gone(&created).await;
    fixture.stop().await;
}

/// What a container sees of the volume: the word, and the names without those of dates.
async fn content(fixture: &Fixture, created: &Value) -> String {
    let script = "cat /v/word; echo; ls -A /v | sed 's/^\\.\\.2.*/..date/'; ls /v/..data";
    fixture.runtime.exec(uid(created), script).await
}

fn whole(word: &str) -> String {
    format!("{word}\n..date\n..data\nmore\nword\nmore\nword\n")
}

/// Waits until a container sees this word, and nothing that is half of anything.
async fn shows(fixture: &Fixture, created: &Value, word: &str) {
    eventually(word, SOON, async || {
        let seen = content(fixture, created).await;
        (seen == whole(word)).then_some(()).ok_or(seen)
    })
    .await;
}

/// The ConfigMap changes, and the pod says why it does not see that. It runs on all the while, also
/// under a new agent.
async fn a_change_waits(fixture: &mut Fixture, created: &Value, words: [&str; 2], refusal: &str) {
    let [old, new] = words;
    let data = json!({ "word": new, "more": "x".repeat(100_000) });
    let patch = Patch::Merge(json!({ "data": data }));
    let at = At::namespaced("default", NAME);
    fixture
        .api
        .patch::<ConfigMap>(at, None, &patch)
        .await
        .unwrap();
    says(fixture, created, refusal).await;
    assert_eq!(content(fixture, created).await, whole(old));
    fixture.agent.kill().unwrap();
    fixture.respawn().await;
    let ready = fixture.watch.wait_for("the pod is ready", SOON, |table| {
        table.pods.get(uid(created)).is_some_and(|pod| pod.ready)
    });
    ready.await.unwrap();
    assert_eq!(content(fixture, created).await, whole(old));
    let now = fixture.pod_ready(NAME).await;
    assert_eq!(main_status(&now)["restartCount"], 0);
}
