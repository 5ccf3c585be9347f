//! SubPaths, image volumes, and mounts that depend on runtime features.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use windlass_cri::error::CriCode;
use windlass_pod_lifecycle::backoff::BackoffTable;
use windlass_types::{MountedContent, MountedVolume, MountedVolumes, Pod};

use super::{TestEnv, line, nothing, request};
use crate::{SyncPodOutcome, SyncPodRequest};

/// A pod whose containers have these mounts.
fn pod(containers: &[(&str, Value)]) -> Pod {
    let containers: Vec<_> = containers
        .iter()
        .map(|(name, mount)| json!({"name": name, "image": "web:1", "volumeMounts": [mount]}))
        .collect();
    serde_json::from_value(json!({
        "metadata": {
            "name": "web", "namespace": "default", "uid": "u1", "annotations": {"team": "blue"},
        },
        "spec": {"containers": containers},
    }))
    .expect("pod")
}

fn volumes() -> MountedVolumes {
    let volume = |content| MountedVolume {
        content,
        read_only: false,
        relabel: false,
    };
    let image = |name: &str, policy: &str| {
        volume(MountedContent::Image {
            reference: name.to_owned(),
            pull_policy: policy.to_owned(),
        })
    };
    MountedVolumes::from([
        (
            "data".to_owned(),
            volume(MountedContent::Path("/vol/data".into())),
        ),
        ("model".to_owned(), image("model:1", "IfNotPresent")),
        ("never".to_owned(), image("other:1", "Never")),
    ])
}

async fn sync(env: &TestEnv, pod: &Pod, backoff: BackoffTable) -> SyncPodOutcome {
    let request = SyncPodRequest {
        volumes: Arc::new(volumes()),
        backoff,
        ..request(pod, nothing())
    };
    let runtime = &env.runtime;
    runtime.sync_pod(request, CancellationToken::new()).await
}

async fn first_sync(env: &TestEnv, pod: &Pod) -> String {
    let outcome = sync(env, pod, BackoffTable::default()).await;
    line(env, &outcome)
}

/// First volume mount of each created container.
fn created_mounts(env: &TestEnv) -> Vec<String> {
    let line = |config: windlass_types::cri::ContainerConfig| {
        let mount = config.mounts[0].clone();
        let image = mount.image.map_or(String::new(), |image| {
            let team = &image.annotations["team"];
            let (user, part) = (image.user_specified_image, image.sub_path);
            format!("{} ({user}, {team}) {part}", image.image)
        });
        let recursive = if mount.recursive_read_only {
            " rro"
        } else {
            ""
        };
        format!("{} {}{image}{recursive}", config.name, mount.host_path)
    };
    env.fake.configs().into_iter().map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn sub_path_is_bound_before_container_creation() {
    let env = TestEnv::new();
    let part = |path: &str| json!({"name": "data", "mountPath": "/x", "subPath": path});
    let pod = pod(&[("a", part("good")), ("b", part("out"))]);
    env.files.lead_out("out", true);
    assert_eq!(
        first_sync(&env, &pod).await,
        "CreateContainerConfigError container=b retry=later: failed to prepare subPath for \
         volumeMount \"data\" of container \"b\" | again in 10s"
    );
    let target = "/var/lib/kubelet/pods/u1/volume-subpaths/data/a/0";
    assert_eq!(created_mounts(&env), [format!("a {target}")]);
    let calls = env.files.calls();
    assert!(calls.contains(&format!("sub-path {target}<-/vol/data//good")));
    let events = env.events.take();
    let told =
        "W Failed b: Error: failed to prepare subPath for volumeMount \"data\" of container \"b\"";
    assert!(events.iter().any(|event| event == told), "{events:?}");

    env.files.lead_out("out", false);
    assert_eq!(first_sync(&env, &pod).await, "ok");
}

#[tokio::test(start_paused = true)]
async fn image_volume_is_pulled_before_container_creation() {
    let env = TestEnv::new();
    env.fake.be("containerd", "v2.2.0");
    let mount = json!({"name": "model", "mountPath": "/m", "subPath": "weights"});
    let pod = pod(&[("a", mount)]);
    assert_eq!(first_sync(&env, &pod).await, "ok");
    let calls = env.fake.calls();
    assert_eq!(
        calls
            .iter()
            .position(|c| c == "pull model:1")
            .map(|at| &calls[at + 1][..]),
        Some("create a#0"),
        "{calls:?}"
    );
    assert_eq!(
        created_mounts(&env),
        ["a sha256:model:1 (model:1, blue) weights"]
    );
    let events = env.events.take();
    assert!(
        events.contains(&"N Pulling a: Pulling image \"model:1\"".to_owned()),
        "{events:?}"
    );
    let metrics = &env.metrics;
    let counted = (
        metrics.containers.image_volumes_requested.get(),
        metrics.containers.image_volumes_mounted.get(),
    );
    assert_eq!(counted, (1.0, 1.0));
}

#[tokio::test(start_paused = true)]
async fn failed_image_volume_blocks_containers_that_mount_it() {
    let env = TestEnv::new();
    let mount = |name: &str| json!({"name": name, "mountPath": "/m"});
    let pod = pod(&[
        ("a", mount("model")),
        ("b", mount("never")),
        ("c", mount("data")),
    ]);
    env.fake
        .fail("pull model:1", CriCode::Other, "no such host");
    let outcome = sync(&env, &pod, BackoffTable::default()).await;
    assert_eq!(
        line(&env, &outcome),
        "ErrImagePull container=a retry=later: no such host | \
         ErrImageNeverPull container=b retry=later: Container image \"other:1\" is not present with \
         pull policy of Never | again in 10s"
    );
    assert_eq!(created_mounts(&env), ["c /vol/data"]);
    let again = sync(&env, &pod, outcome.backoff).await;
    let failures: Vec<_> = again.failures.iter().map(|f| f.reason.as_str()).collect();
    assert_eq!(failures, ["ImagePullBackOff", "ErrImageNeverPull"]);
    assert_eq!(
        env.metrics.containers.image_volumes_requested.get(),
        0.0,
        "none got that far"
    );
}

#[tokio::test(start_paused = true)]
async fn image_volume_needs_a_supporting_runtime() {
    let env = TestEnv::new();
    env.fake.be("containerd", "1.6.20~ds1");
    let pod = pod(&[("a", json!({"name": "model", "mountPath": "/m"}))]);
    assert_eq!(
        first_sync(&env, &pod).await,
        "CreateContainerConfigError container=a retry=later: volume \"model\": image volumes need \
         containerd 2.1 or later, and this node has 1.6.20~ds1 | again in 10s"
    );
    let calls = env.fake.calls();
    assert!(
        !calls.iter().any(|call| call.starts_with("pull")),
        "{calls:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn failed_creation_counts_failed_image_volumes() {
    let env = TestEnv::new();
    env.fake.fail("create", CriCode::Other, "no room");
    let pod = pod(&[("a", json!({"name": "model", "mountPath": "/m"}))]);
    first_sync(&env, &pod).await;
    let metrics = &env.metrics;
    let counted = (
        metrics.containers.image_volumes_requested.get(),
        metrics.containers.image_volumes_mounted.get(),
        metrics.containers.image_volumes_failed.get(),
    );
    assert_eq!(counted, (1.0, 0.0, 1.0));
}

#[tokio::test(start_paused = true)]
async fn recursive_read_only_follows_handler_support() {
    let mount = |mode: &str| json!({"name": "data", "mountPath": "/x", "readOnly": true, "recursiveReadOnly": mode});
    let pod = pod(&[("a", mount("IfPossible")), ("b", mount("Enabled"))]);
    let env = TestEnv::new();
    env.fake.recursive_read_only(true);
    assert_eq!(first_sync(&env, &pod).await, "ok");
    assert_eq!(created_mounts(&env), ["a /vol/data rro", "b /vol/data rro"]);

    let env = TestEnv::new();
    env.fake.recursive_read_only(false);
    assert_eq!(
        first_sync(&env, &pod).await,
        "CreateContainerConfigError container=b retry=later: failed to resolve recursive read-only \
         mode: volume \"data\" requested recursive read-only mode, but it is not supported by the \
         runtime | again in 10s"
    );
    assert_eq!(created_mounts(&env), ["a /vol/data"]);
}
