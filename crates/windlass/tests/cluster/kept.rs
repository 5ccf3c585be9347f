//! Objects deleted while mounted: containers restart with the mounted payload.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_client::{Delete, ObjectKey};
use windlass_types::Timestamp;
use windlass_types::corev1::{ConfigMap, Pod, Secret};

use crate::claims::reports;
use crate::control_plane::Kind;
use crate::objects::{container_with, main_status, object, pod};
use crate::test_env::{TestEnv, eventually, now};

/// The fourth restart is 40 s after the third.
const RESTARTED: Duration = Duration::from_secs(90);
/// Writes the mounted keys to its termination message and exits.
const REPORT_KEYS: &str = "cat /v/key /s/key > /dev/termination-log; sleep 1; exit 1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_containers_restart_without_their_objects() {
    containers_restart_without_their_objects(Kind::Fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_containers_restart_without_their_objects() {
    containers_restart_without_their_objects(Kind::Real).await;
}

async fn containers_restart_without_their_objects(kind: Kind) {
    let Some(mut env) = TestEnv::start(kind, "k-kept").await else {
        return;
    };
    env.create(&config_map("old;")).await;
    env.create(&secret()).await;
    let kept = env.create(&pod("kept", REPORT_KEYS, volumes())).await;
    let begin = Timestamp::UNIX_EPOCH;
    sees(&env, "kept", begin, "old;secret").await;

    let nothing = Delete::default();
    let deleted = env.api.delete::<ConfigMap>(at(), &nothing).await;
    deleted.unwrap();
    env.api.delete::<Secret>(at(), &nothing).await.unwrap();
    reports(
        &env,
        &kept,
        "MountVolume.SetUp failed for volume \"v\" : configmap \"shown\" not found",
    )
    .await;
    sees(&env, "kept", now(), "old;secret").await;

    // mounted payload is used after a restart, but not by new pods
    env.agent.kill().unwrap();
    env.respawn().await;
    let fresh = env.create(&pod("fresh", REPORT_KEYS, volumes())).await;
    sees(&env, "kept", now(), "old;secret").await;
    reports(&env, &fresh, "secret \"shown\" not found").await;
    let waits = env
        .get::<Pod>(ObjectKey::namespaced("default", "fresh"))
        .await;
    let waits = waits.expect("there");
    assert_eq!(
        main_status(&waits)["state"]["waiting"]["reason"],
        "ContainerCreating"
    );

    env.create(&config_map("new;")).await;
    env.create(&secret()).await;
    sees(&env, "fresh", begin, "new;secret").await;
    sees(&env, "kept", now(), "new;secret").await;
    env.delete_pod("kept", None).await;
    env.delete_pod("fresh", None).await;
    env.stop().await;
}

fn at() -> ObjectKey<'static> {
    ObjectKey::namespaced("default", "shown")
}

fn config_map(text: &str) -> ConfigMap {
    object(json!({
        "metadata": { "namespace": "default", "name": "shown" }, "data": { "key": text },
    }))
}

fn secret() -> Secret {
    object(json!({
        "metadata": { "namespace": "default", "name": "shown" },
        "data": { "key": "c2VjcmV0" },
    }))
}

/// One volume on disk and one in memory.
fn volumes() -> Value {
    let mounts = json!({ "volumeMounts": [
        { "name": "v", "mountPath": "/v" }, { "name": "s", "mountPath": "/s" },
    ] });
    json!({
        "containers": [container_with(REPORT_KEYS, mounts)],
        "volumes": [
            { "name": "v", "configMap": { "name": "shown" } },
            { "name": "s", "secret": { "secretName": "shown" } },
        ],
    })
}

/// Waits for a container started after `since` that reports this content.
async fn sees(env: &TestEnv, name: &str, since: Timestamp, wanted: &str) {
    let at = ObjectKey::namespaced("default", name);
    eventually(&format!("{name} sees {wanted}"), RESTARTED, async || {
        let pod = env.get::<Pod>(at).await.unwrap_or_default();
        let ended = &main_status(&pod)["lastState"]["terminated"];
        let began = ended["startedAt"].as_str();
        let began: Option<Timestamp> = began.and_then(|text| text.parse().ok());
        let told = began.is_some_and(|began| began > since) && ended["message"] == wanted;
        told.then_some(()).ok_or_else(|| ended.to_string())
    })
    .await;
}
