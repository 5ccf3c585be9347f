//! Subpaths: created directories, followed links, rejected paths and cleanup.

use std::path::Path;

use rustix::process::Signal;

use crate::manifest::fill;
use crate::test_env::{SOON, TestEnv, eventually, signal, skipped};

const PARTS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: parts, labels: {app: parts}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  securityContext: {fsGroup: 2000}
  initContainers:
    - name: lay
      image: IMAGE
      command: [sh, -c, "cd /all; mkdir v1; echo one > v1/conf; ln -s v1 now; ln -s /etc out; echo text > file"]
      volumeMounts: [{name: data, mountPath: /all}]
  containers:
    - name: main
      image: IMAGE
      command: [sh, -c, "HOLD"]
      env:
        - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
      volumeMounts:
        - {name: data, mountPath: /all}
        - {name: data, mountPath: /made, subPath: made/deep}
        - {name: data, mountPath: /file, subPath: file}
        - {name: data, mountPath: /conf, subPath: now/conf, readOnly: true}
        - {name: data, mountPath: /logs, subPathExpr: logs/$(POD)}
        - {name: host, mountPath: /host, subPath: sub}
        - {name: facts, mountPath: /labels, subPath: labels}
    - name: escape
      image: IMAGE
      command: [sh, -c, "HOLD"]
      volumeMounts: [{name: data, mountPath: /out, subPath: out}]
  volumes:
    - {name: data, emptyDir: {}}
    - {name: host, hostPath: {path: BASE/host}}
    - name: facts
      downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}
"#;

const NO_VALUE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: no-value}
spec:
  hostNetwork: true
  containers:
    - name: main
      image: IMAGE
      command: [sh, -c, "HOLD"]
      volumeMounts: [{name: data, mountPath: /data, subPathExpr: "$(MISSING)/x"}]
  volumes: [{name: data, emptyDir: {}}]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_subpath_cannot_escape_volume() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::start("i-subpath").await;
    let base = env.containerd.base().to_owned();
    std::fs::create_dir_all(base.join("host/sub")).unwrap();
    std::fs::write(base.join("host/sub/there"), "of the host\n").unwrap();
    for (file, text) in [("parts.yaml", PARTS), ("no-value.yaml", NO_VALUE)] {
        env.apply(
            file,
            &fill(text).replace("BASE", &base.display().to_string()),
        );
    }
    env.process("parts", "main").await;
    let uid = env.pod("parts").await["metadata"]["uid"].clone();
    let pod_dir = env
        .agent
        .root_dir()
        .join("pods")
        .join(uid.as_str().unwrap());

    what_is_asked_for_is_seen(&env).await;
    what_leads_out_is_refused(&mut env).await;
    a_restart_sees_what_is_there_by_then(&mut env, &pod_dir).await;

    env.wait("no-value reports which value is missing", |table| {
        let blocker = table.pod("no-value").and_then(|pod| pod.blocker.as_ref());
        blocker.is_some_and(|blocker| blocker.message.contains("missing value for MISSING"))
    })
    .await;

    env.remove("parts.yaml");
    env.remove("no-value.yaml");
    eventually("the pod's directory is gone", SOON, async || {
        let left = pod_dir.exists();
        (!left)
            .then_some(())
            .ok_or_else(|| "it is there".to_owned())
    })
    .await;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(uid.as_str().unwrap()), "a mount is left");
    assert!(
        base.join("host/sub/there").exists(),
        "the host keeps its own"
    );
    env.stop().await;
}

async fn what_is_asked_for_is_seen(env: &TestEnv) {
    let exec = async |script: &str| env.exec("parts", "main", script).await;
    // mode and group as the volume, inherited by new files
    assert_eq!(exec("stat -c '%a %g' /all").await, "2777 2000\n");
    assert_eq!(exec("stat -c '%a %g' /made").await, "2777 2000\n");
    exec("echo x > /made/x").await;
    assert_eq!(exec("cat /all/made/deep/x").await, "x\n");
    assert_eq!(exec("cat /file /conf").await, "text\none\n");
    let write = "echo no > /conf 2> /dev/null || echo refused";
    assert_eq!(exec(write).await, "refused\n");
    exec("touch /all/logs/parts-node/x && test -e /logs/x").await;
    assert_eq!(exec("cat /host/there").await, "of the host\n");
    assert_eq!(exec("cat /labels").await, "app=\"parts\"");
}

async fn what_leads_out_is_refused(env: &mut TestEnv) {
    let refused = r#"failed to prepare subPath for volumeMount "data" of container "escape""#;
    env.wait("the link out is refused", |table| {
        table.pod("parts").is_some_and(|pod| {
            let waits = pod.containers.iter().any(|container| {
                container.name == "escape" && container.reason == "CreateContainerConfigError"
            });
            let blocker = pod.blocker.as_ref();
            waits && blocker.is_some_and(|blocker| blocker.message.contains(refused))
        })
    })
    .await;
    // the reason is for the node administrator
    env.logged(&[
        "subPath not prepared",
        "escape",
        "Invalid cross-device link",
    ])
    .await;
    env.exec(
        "parts",
        "main",
        "rm /all/out; mkdir /all/out; touch /all/out/ours",
    )
    .await;
    env.ready("parts").await;
    assert_eq!(env.exec("parts", "escape", "ls /out").await, "ours\n");
}

async fn a_restart_sees_what_is_there_by_then(env: &mut TestEnv, pod_dir: &Path) {
    let bound = pod_dir.join("volume-subpaths/data/main");
    let script = "rm /all/file /all/now; echo other > /all/file; \
                  mkdir /all/v2; echo two > /all/v2/conf; ln -s v2 /all/now";
    env.exec("parts", "main", script).await;
    // bind mounts stay as long as the container
    assert_eq!(
        env.exec("parts", "main", "cat /file /conf").await,
        "text\none\n"
    );
    env.kill_and_respawn().await;
    let pid = env.process("parts", "main").await;
    signal(pid, Signal::KILL);
    env.wait("the killed container is restarted", |table| {
        let pod = table.pod("parts");
        pod.is_some_and(|pod| pod.ready && pod.restarts() == 1)
    })
    .await;
    assert_eq!(
        env.exec("parts", "main", "cat /file /conf").await,
        "other\ntwo\n"
    );
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let of_main = mounts.lines().filter(|line| {
        let place = line.split(' ').nth(4).unwrap_or_default();
        Path::new(place).starts_with(&bound)
    });
    assert_eq!(of_main.count(), 4, "one bind for each part of the volume");
}
