//! Unused images are removed from a full disk; those in use stay.

use std::fs::OpenOptions;
use std::io::Write;

use crate::manifest::shell;
use crate::test_env::{SOON, TestEnv, eventually, skipped};

const UNUSED: &str = "windlass.local/unused:1";
/// Every disk is over these thresholds. The first pass of an agent run removes images that an
/// earlier run has detected.
const FULL: &str =
    "imageGCHighThresholdPercent: 1\nimageGCLowThresholdPercent: 0\nimageMinimumGCAge: 1ns\n";

async fn images(env: &TestEnv) -> String {
    env.containerd.ctr(&["images", "ls", "-q"]).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_unused_image_is_removed_from_full_disk() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::start("m-image-gc").await;
    env.apply("web.yaml", &shell("web", "HOLD"));
    env.ready("web").await;
    let before = env.process("web", "main").await;
    let used = env.containers("web").await.remove(0).image_ref;
    let sandbox = images(&env).await;
    let sandbox = sandbox.lines().find(|name| name.contains("pause"));
    let sandbox = sandbox.unwrap_or_default().to_owned();
    env.containerd
        .add_image(UNUSED, &[("file", "content")])
        .await
        .unwrap();
    let all = images(&env).await;
    assert!(all.contains(UNUSED));
    env.kill_and_respawn().await;
    let uses = env.agent.root_dir().join("windlass/image_uses");
    eventually("the images are detected", SOON, async || {
        let known = std::fs::read_to_string(&uses).unwrap_or_default();
        let mut ids = all.lines().filter(|name| name.starts_with("sha256:"));
        ids.all(|id| known.contains(id)).then_some(()).ok_or(known)
    })
    .await;

    let config = env.containerd.base().join("agent/config.yaml");
    let mut config = OpenOptions::new().append(true).open(config).unwrap();
    config.write_all(FULL.as_bytes()).unwrap();
    env.kill_and_respawn().await;
    eventually("the unused image is removed", SOON, async || {
        let left = images(&env).await;
        (!left.contains(UNUSED)).then_some(()).ok_or(left)
    })
    .await;
    env.logged(&["Insufficient free disk space on the node's image filesystem"])
        .await;
    let left = images(&env).await;
    assert!(left.contains(&used), "{used} is in use: {left}");
    assert!(
        left.contains(&sandbox),
        "{sandbox} is that of sandboxes: {left}"
    );
    env.ready("web").await;
    assert_eq!(env.process("web", "main").await, before);
    let metrics = env.agent.metrics(false).await.unwrap();
    let counted = "kubelet_image_garbage_collected_total{reason=\"space\"}";
    assert!(metrics.contains(counted), "{metrics}");
    let uses = std::fs::read_to_string(uses).unwrap();
    assert!(uses.contains("lastUsed"), "{uses}");
    env.stop().await;
}
