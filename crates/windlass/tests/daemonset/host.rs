//! The host of a DaemonSet test: shared mounts, both images, and images for the inner runtime.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use windlass_testing::containerd::PrivateContainerd;
use windlass_testing::images::BUSYBOX;
use windlass_testing::node_images::{self, Edition, System};

/// Image of the container `containerd`.
pub(crate) const INNER_CONTAINERD: &str = "/run/windlass/containerd/containerd.sock";
/// Set in the second process of the test, which has a mount namespace of its own.
const INSIDE: &str = "WINDLASS_TEST_SHARED_MOUNTS";
/// Sandbox image of the manifests.
const PAUSE: &str = "registry.k8s.io/pause:3.10.1";

/// True in a mount namespace of our own whose mounts are shared, as systemd makes those of a node:
/// a pod's mounts could not propagate otherwise. Elsewhere this runs the test `name` again in one.
pub(crate) fn has_shared_mounts(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let this = std::env::current_exe().unwrap();
    let script = "mount --make-rshared / && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
    command.arg(this).args(["--exact", name, "--nocapture"]);
    let status = command.env(INSIDE, "1").status().unwrap();
    assert!(status.success(), "in shared mounts: {status}");
    false
}

/// Imports both images in the version of the manifests.
pub(crate) async fn add_images(containerd: &PrivateContainerd) {
    let edition = Edition {
        version: env!("CARGO_PKG_VERSION"),
        epoch: 0,
    };
    // stripped, it has a fifth of the size
    let stripped = containerd.base().join("windlass");
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&stripped);
    strip.arg(env!("CARGO_BIN_EXE_windlass"));
    assert!(strip.status().unwrap().success(), "strip (binutils)");
    // the pod does not use windlassctl: any program replaces it
    let host = System::host().unwrap();
    let busybox = Path::new("/bin/busybox");
    let built = node_images::agent(&stripped, busybox, host.platform(), edition).unwrap();
    containerd.add_built(&built.image).await.unwrap();
    let built = node_images::runtime(&host, edition).unwrap();
    containerd.add_built(&built.image).await.unwrap();
}

/// Imports the images of inner pods, which cannot be pulled.
pub(crate) fn add_inner_images(containerd: &PrivateContainerd) {
    for archive in ["pause.tar", "busybox.tar"] {
        let archive = containerd.base().join("images").join(archive);
        inner_ctr(&["images", "import", archive.to_str().unwrap()]);
    }
    let ours = windlass_testing::images::PAUSE;
    inner_ctr(&["images", "tag", "--force", ours, PAUSE]);
}

/// Runs `ctr` on the inner runtime and returns its output.
pub(crate) fn inner_ctr(args: &[&str]) -> String {
    let mut ctr = Command::new("ctr");
    ctr.args(["--address", INNER_CONTAINERD, "--namespace", "k8s.io"]);
    let output = ctr.args(args).output().unwrap();
    assert!(output.status.success(), "ctr {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A pod of the inner agent with a mounted volume.
pub(crate) fn web() -> Value {
    json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "app",
            "image": BUSYBOX,
            "command": ["httpd", "-f", "-p", "8080", "-h", "/data"],
            "readinessProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 1 },
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
        }],
        "volumes": [{ "name": "data", "emptyDir": { "medium": "Memory" } }],
    })
}
