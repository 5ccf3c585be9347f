//! Pods that exceed limits of volumes and of local storage.

use serde_json::json;

use crate::objects::{container_with, is_ready, phase, pod, uid};
use crate::test_env::TestEnv;

/// A pod that exceeds its emptyDir limit is evicted with the upstream message. A pod below the
/// limit with a large sparse file is not.
pub(crate) async fn evict_pod_exceeding_empty_dir(env: &TestEnv) {
    let writer = |name: &str, script: &str| {
        let hold = crate::objects::STUBBORN;
        let spec = json!({
            "containers": [container_with(&format!("{script}; {hold}"), json!({
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            }))],
            "volumes": [{ "name": "data", "emptyDir": { "sizeLimit": "1Mi" } }],
            // it is not given
            "terminationGracePeriodSeconds": 120,
        });
        pod(name, hold, spec)
    };
    let full = "dd if=/dev/zero of=/data/file bs=1M count=3";
    let created = env.create(&writer("fills-it", full)).await;
    let hole = "dd if=/dev/zero of=/data/file bs=1k count=900; truncate -s 64M /data/file";
    env.create(&writer("stays-within", hole)).await;
    let evicted = env.pod("fills-it", "has ended", |pod| phase(pod) == "Failed");
    let evicted = evicted.await;
    let status = &evicted["status"];
    assert_eq!(status["reason"], "Evicted", "{status}");
    let words = "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". ";
    assert_eq!(status["message"], words, "{status}");
    let running = env.runtime.running(uid(&evicted)).await;
    assert!(running.is_empty(), "evicted with {running:?}");
    env.events(&created, &["Started", "Evicted", "Killing"])
        .await;
    let within = env.pod_ready("stays-within").await;
    assert!(is_ready(&within) && phase(&within) == "Running");
    env.delete_pod("stays-within", Some(1)).await;
    env.pod_gone(&within).await;
}

/// A pod that writes more into its container than its `ephemeral-storage` limit is evicted with the
/// upstream message.
pub(crate) async fn evict_pod_exceeding_local_storage(env: &TestEnv) {
    let writer = |name: &str, script: &str| {
        let hold = crate::objects::STUBBORN;
        let spec = json!({
            "containers": [container_with(&format!("{script}; {hold}"), json!({
                "resources": { "limits": { "ephemeral-storage": "2Mi" } },
            }))],
            "terminationGracePeriodSeconds": 120,
        });
        pod(name, hold, spec)
    };
    let full = "dd if=/dev/zero of=/file bs=1M count=5";
    let created = env.create(&writer("fills-its-layer", full)).await;
    let modest = "dd if=/dev/zero of=/file bs=1k count=900";
    env.create(&writer("modest-layer", modest)).await;
    let evicted = env.pod("fills-its-layer", "has ended", |pod| phase(pod) == "Failed");
    let evicted = evicted.await;
    let status = &evicted["status"];
    assert_eq!(status["reason"], "Evicted", "{status}");
    let words = "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ";
    assert_eq!(status["message"], words, "{status}");
    let running = env.runtime.running(uid(&evicted)).await;
    assert!(running.is_empty(), "evicted with {running:?}");
    env.events(&created, &["Started", "Evicted", "Killing"])
        .await;
    let within = env.pod_ready("modest-layer").await;
    assert!(is_ready(&within) && phase(&within) == "Running");
    env.delete_pod("modest-layer", Some(1)).await;
    env.pod_gone(&within).await;
}
