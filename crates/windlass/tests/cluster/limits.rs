//! Pods that exceed volume limits.

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
