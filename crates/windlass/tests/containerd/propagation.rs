//! Mount propagation, and its rejection on an old runtime.

use rustix::mount::{MountFlags, mount};

use crate::manifest::fill;
use crate::test_env::{SOON, TestEnv, eventually, skipped};

const SHARED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: shared}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - name: maker
      image: IMAGE
      command: [sh, -c, "HOLD"]
      securityContext: {privileged: true}
      volumeMounts:
        - {name: data, mountPath: /data, mountPropagation: Bidirectional}
        - {name: data, mountPath: /part, subPath: part, mountPropagation: Bidirectional}
    - name: seer
      image: IMAGE
      command: [sh, -c, "HOLD"]
      volumeMounts:
        - {name: data, mountPath: /data, mountPropagation: HostToContainer}
        - {name: data, mountPath: /deep, readOnly: true, recursiveReadOnly: IfPossible}
    - name: blind
      image: IMAGE
      command: [sh, -c, "HOLD"]
      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
"#;

const TOO_MUCH: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  hostNetwork: true
  containers:
    - name: main
      image: IMAGE
      command: [sh, -c, "HOLD"]
      volumeMounts: [MOUNT]
  volumes: [VOLUME]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_mount_propagation_follows_pod_spec() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::start("i-propagate").await;
    env.apply("shared.yaml", &fill(SHARED));
    env.ready("shared").await;
    let uid = env.pod("shared").await["metadata"]["uid"].clone();
    let uid = uid.as_str().unwrap();
    let pod_dir = env.agent.root_dir().join("pods").join(uid);
    let volume = pod_dir.join("volumes/kubernetes.io~empty-dir/data");

    // ---- made in one container
    let exec = async |container: &str, script: &str| env.exec("shared", container, script).await;
    let make = "mkdir /data/by-maker /part/of-part && mount -t tmpfs made /data/by-maker && \
                mount -t tmpfs made /part/of-part && touch /data/by-maker/x /part/of-part/y";
    exec("maker", make).await;
    assert_eq!(exec("seer", "ls /data/by-maker").await, "x\n");
    assert_eq!(exec("blind", "ls /data/by-maker").await, "");
    assert!(volume.join("by-maker/x").exists(), "the node sees it");
    assert_eq!(exec("seer", "ls /data/part/of-part").await, "y\n");
    assert!(volume.join("part/of-part/y").exists(), "the node sees it");
    // ---- made on the node
    let by_node = volume.join("by-node");
    std::fs::create_dir(&by_node).unwrap();
    mount("made", &by_node, "tmpfs", MountFlags::empty(), None).unwrap();
    std::fs::write(by_node.join("z"), "").unwrap();
    assert_eq!(exec("maker", "ls /data/by-node").await, "z\n");
    assert_eq!(exec("seer", "ls /data/by-node").await, "z\n");
    assert_eq!(exec("blind", "ls /data/by-node").await, "");

    // ---- the status has the kind of mount
    let seer = env.pod("shared").await["status"]["containerStatuses"][2].clone();
    assert_eq!(seer["name"], "seer");
    let became = &seer["volumeMounts"][1]["recursiveReadOnly"];
    if env.containerd.is_older_than([2, 0]) {
        assert_eq!(became, "Disabled");
        too_old(&mut env).await;
    } else {
        assert_eq!(became, "Enabled");
    }

    // ---- nothing is left behind
    env.remove("shared.yaml");
    eventually("the pod's directory is gone", SOON, async || {
        let left = pod_dir.exists();
        (!left)
            .then_some(())
            .ok_or_else(|| "it is there".to_owned())
    })
    .await;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(uid), "a mount is left");
    env.stop().await;
}

/// A containerd without recursive read-only mounts and image volumes gets no such
/// request.
async fn too_old(env: &mut TestEnv) {
    for (name, mount, volume) in [
        (
            "enabled",
            "{name: v, mountPath: /v, readOnly: true, recursiveReadOnly: Enabled}",
            "{name: v, emptyDir: {}}",
        ),
        (
            "image",
            "{name: v, mountPath: /v}",
            "{name: v, image: {reference: IMAGE, pullPolicy: IfNotPresent}}",
        ),
    ] {
        let text = TOO_MUCH.replace("NAME", name).replace("MOUNT", mount);
        let text = fill(&text.replace("VOLUME", volume));
        env.apply(&format!("{name}.yaml"), &text);
    }
    refused(
        env,
        "enabled",
        "failed to resolve recursive read-only mode: volume \"v\" requested recursive read-only \
         mode, but it is not supported by the runtime",
    )
    .await;
    refused(env, "image", "image volumes need containerd 2.1 or later").await;
}

/// A container with an unsupported mount is not created and reports the reason.
async fn refused(env: &mut TestEnv, name: &str, why: &str) {
    env.wait(&format!("{name} is refused"), |table| {
        table.pod(name).is_some_and(|pod| {
            let waits = pod
                .containers
                .iter()
                .any(|c| c.reason == "CreateContainerConfigError");
            let blocker = pod.blocker.as_ref();
            waits && blocker.is_some_and(|blocker| blocker.message.contains(why))
        })
    })
    .await;
    assert!(
        env.containers(name).await.is_empty(),
        "{name} has a container"
    );
}
