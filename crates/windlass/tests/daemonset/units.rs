//! The units of `deploy/systemd`, verified by systemd.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::kustomize::folder;

const KUBELET: &str = "kubelet.service";
const WINDLASS: &str = "windlass.service";
/// A drop-in of [`WINDLASS`].
const NODE: &str = "node.conf";
/// As in kubeadm's package, without comments.
const KUBEADM: &str = r#"[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"#;
/// Long enough for two busy cores.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn systemd_verifies_units_with_and_without_drop_ins() {
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else {
        eprintln!("skipped: no systemd-analyze here");
        return;
    };
    assert!(version.status.success(), "{version:?}");
    let directory = tempfile::tempdir().unwrap();
    let of = |file: &str| std::fs::read_to_string(folder().join("systemd").join(file)).unwrap();
    // the program has to exist
    let write = |file: &str, text: String| {
        let text = text.replace("/usr/local/bin/windlass", env!("CARGO_BIN_EXE_windlass"));
        let text = text.replace("/usr/bin/kubelet", env!("CARGO_BIN_EXE_windlass"));
        let path = directory.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for unit in [WINDLASS, KUBELET] {
        write(unit, of(unit));
    }
    let said = || verify(directory.path());
    assert_eq!(said(), "");
    write("windlass.service.d/node.conf", of(NODE));
    write("kubelet.service.d/10-kubeadm.conf", KUBEADM.to_owned());
    assert_eq!(said(), "");
    // it checks drop-ins, too
    write(
        "kubelet.service.d/20-wrong.conf",
        "[Service]\nKillMod=none\n".to_owned(),
    );
    assert!(said().contains("KillMod"), "{}", said());
}

#[test]
fn systemd_is_notified_of_readiness_and_watchdog() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    std::fs::create_dir(at("manifests")).unwrap();
    let config = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         staticPodPath: {}\ncontainerRuntimeEndpoint: unix://{}\nenableServer: false\nhealthzPort: 0\n\
         failCgroupV1: false\nfailSwapOn: false\n",
        at("manifests"),
        at("no-runtime.sock")
    );
    std::fs::write(at("config.yaml"), config).unwrap();
    let systemd = UnixDatagram::bind(at("notify")).unwrap();
    systemd.set_read_timeout(Some(SOON)).unwrap();
    let mut agent = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .arg(format!("--config={}", at("config.yaml")))
        .args([
            format!("--root-dir={}", at("root")),
            format!("--cert-dir={}", at("root/pki")),
        ])
        .env("NOTIFY_SOCKET", at("notify"))
        .env("WATCHDOG_USEC", "2000000")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let heard: Vec<_> = (0..3).map(|_| next_state(&systemd)).collect();
    agent.kill().unwrap();
    agent.wait().unwrap();
    // as root the agent makes its root directory a shared mount, which outlives it
    let umount = Command::new("umount").arg(at("root")).output();
    umount.unwrap();
    assert_eq!(heard, ["READY=1\n", "WATCHDOG=1\n", "WATCHDOG=1\n"]);
}

/// The next notification of the agent.
fn next_state(systemd: &UnixDatagram) -> String {
    let mut state = [0; 64];
    match systemd.recv(&mut state) {
        Ok(length) => String::from_utf8_lossy(&state[..length]).into_owned(),
        Err(error) => error.to_string(),
    }
}

/// Output of `systemd-analyze verify` for the units in a folder.
fn verify(folder: &Path) -> String {
    let mut command = Command::new("systemd-analyze");
    command.args(["--man=no", "verify"]);
    command.args([WINDLASS, KUBELET].map(|unit| folder.join(unit)));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}
