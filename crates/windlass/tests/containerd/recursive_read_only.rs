//! Recursive read-only mounts (containerd 2.0).

use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::manifest::fill;
use crate::test_env::{TestEnv, older_than};

/// `deep` and `shallow` mount the same directory of the node, each read-only in its own way.
const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: IMAGE
      command: [sh, -c, "HOLD"]
      volumeMounts:
        - {name: host, mountPath: /deep, readOnly: true, recursiveReadOnly: Enabled}
        - {name: host, mountPath: /possible, readOnly: true, recursiveReadOnly: IfPossible}
        - {name: host, mountPath: /part, subPath: below, readOnly: true, recursiveReadOnly: Enabled}
        - {name: host, mountPath: /shallow, readOnly: true}
        - {name: host, mountPath: /writable}
  volumes: [{name: host, hostPath: {path: DIRECTORY, type: Directory}}]
"#;

/// A tmpfs that a test mounted on the node.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = unmount(self.0, UnmountFlags::DETACH);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_recursive_read_only_includes_submounts() {
    if older_than([2, 0], "a recursive read-only mount") {
        return;
    }
    let mut env = TestEnv::start("i-rro").await;
    let directory = env.containerd.base().join("host");
    let below = directory.join("below/file-system");
    std::fs::create_dir_all(&below).unwrap();
    mount("made", &below, "tmpfs", MountFlags::empty(), None).unwrap();
    let mounted = Mounted(&below);
    std::fs::write(below.join("there"), "from the node\n").unwrap();
    let text = fill(POD).replace("DIRECTORY", &directory.display().to_string());
    env.apply("reader.yaml", &text);
    env.ready("reader").await;

    let exec = async |script: &str| env.exec("reader", "main", script).await;
    let cannot_write = async |dir: &str| {
        let said = exec(&format!("touch {dir}/x 2>&1 || true")).await;
        assert!(said.contains("Read-only file system"), "{dir}: {said}");
    };
    for dir in ["/deep", "/possible", "/part", "/shallow"] {
        cannot_write(dir).await;
    }
    // the two differ in the file system below
    for dir in ["/deep/below", "/possible/below"] {
        let dir = format!("{dir}/file-system");
        assert_eq!(exec(&format!("cat {dir}/there")).await, "from the node\n");
        cannot_write(&dir).await;
    }
    // of a subpath only its own file system is mounted, as upstream
    assert_eq!(exec("ls -A /part/file-system").await, "");
    exec("touch /shallow/below/file-system/by-shallow").await;
    exec("touch /writable/below/file-system/by-writable").await;
    assert!(below.join("by-shallow").exists());

    let status = env.pod("reader").await["status"]["containerStatuses"][0].clone();
    let told: Vec<String> = status["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| format!("{} {}", m["mountPath"], m["recursiveReadOnly"]).replace('"', ""))
        .collect();
    assert_eq!(
        told,
        [
            "/deep Enabled",
            "/possible Enabled",
            "/part Enabled",
            "/shallow Disabled",
            "/writable null",
        ]
    );
    env.remove("reader.yaml");
    env.gone("reader").await;
    drop(mounted);
    env.stop().await;
}
