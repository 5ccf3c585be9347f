//! A hung mount and a busy mount.

use std::fs::{self, File};

use crate::manifest::fill;
use crate::test_env::{SOON, TestEnv, eventually, skipped};

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: IMAGE
      command: [sh, -c, "touch /share/file; HOLD"]
      volumeMounts: [{name: share, mountPath: /share}]
  volumes: [{name: share, SOURCE}]
"#;

/// A fake NFS mount: hangs as long as the server, then binds a directory of the test.
const MOUNT: &str = r#"#!/bin/sh
[ "$1 $2" = "-t nfs" ] || exec /bin/mount "$@"
for last; do :; done
while [ -e "${0%/*}/hangs" ]; do sleep 0.1; done
exec /bin/mount --bind "${0%/*}/export" "$last"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_hung_or_busy_mount_blocks_only_its_pod() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::with_program("m-hangs", "mount", MOUNT).await;
    let programs = env.containerd.base().join("programs");
    let hangs = programs.join("hangs");
    fs::create_dir(programs.join("export")).unwrap();
    File::create(&hangs).unwrap();
    let apply = |env: &TestEnv, name: &str, source: &str| {
        let text = PODS.replace("NAME", name).replace("SOURCE", source);
        env.apply(&format!("{name}.yaml"), &fill(&text));
    };
    apply(&env, "stuck", "nfs: {server: dead, path: /export}");
    apply(&env, "other", "emptyDir: {medium: Memory}");
    env.ready("other").await;
    let process = env.process("other", "main").await;
    the_mount_is_named(&env).await;

    // a restarted agent continues and reports the same
    env.kill_and_respawn().await;
    the_mount_is_named(&env).await;
    env.ready("other").await;
    assert_eq!(env.process("other", "main").await, process);

    fs::remove_file(&hangs).unwrap();
    env.ready("stuck").await;
    let status = env.ctl_output(&["status"]).await;
    assert!(!status.contains("Hung:"), "{status}");
    eventually(
        "the container has written to its volume",
        SOON,
        async || {
            let path = programs.join("export/file");
            path.exists()
                .then_some(())
                .ok_or(format!("no {}", path.display()))
        },
    )
    .await;
    let explained = env.ctl_output(&["explain", "pod", "stuck-node"]).await;
    assert!(explained.contains("no blocker"), "{explained}");

    // ---- a process on the node has a file of the volume open
    let entry = env.pod("other").await;
    let uid = entry["metadata"]["uid"].as_str().unwrap().to_owned();
    let dir = env.agent.root_dir().join("pods").join(&uid);
    let volume = dir.join("volumes/kubernetes.io~empty-dir/share");
    let held = File::open(volume.join("file")).unwrap();
    env.remove("other.yaml");
    eventually("the volume that is busy is named", SOON, async || {
        let events = format!("{:?}", env.entry("other").await.events);
        let words = "UnmountVolume.TearDown failed for volume \\\"share\\\"";
        events.contains(words).then_some(()).ok_or(events)
    })
    .await;
    assert!(volume.join("file").exists(), "nothing of it is touched");
    drop(held);
    env.gone("other").await;
    assert!(!dir.exists());
    env.remove("stuck.yaml");
    env.gone("stuck").await;
    assert!(programs.join("export/file").exists(), "it is the server's");
    env.stop().await;
}

async fn the_mount_is_named(env: &TestEnv) {
    eventually("the node names the pod and its mount", SOON, async || {
        let status = env.ctl(&["status"]).await.stdout;
        let status = String::from_utf8(status).unwrap();
        let words = "pod default/stuck-node: mount of volume share (kubernetes.io/nfs) for ";
        status.contains(words).then_some(()).ok_or(status)
    })
    .await;
    let json = env.ctl_output(&["status", "-o", "json"]).await;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["hungOperations"][0]["kind"], "volume", "{json}");
    assert_eq!(json["hungOperations"][0]["pod"], "stuck-node", "{json}");
    eventually("the mount that hangs is named", SOON, async || {
        // a restarted agent may not have read the manifest yet
        let explained = env.ctl(&["explain", "pod", "stuck-node"]).await.stdout;
        let explained = String::from_utf8(explained).unwrap();
        let words = "MountVolume.SetUp of volume \"share\" in progress since";
        let told = explained.contains("FailedMount") && explained.contains(words);
        told.then_some(()).ok_or(explained)
    })
    .await;
}
