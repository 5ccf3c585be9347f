//! The command line of kubeadm's `10-kubeadm.conf`, run unchanged through a link named `kubelet`:
//! `ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS
//! $KUBELET_EXTRA_ARGS`. The test sets the last one: ports, root directory and cgroup version.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Output of kubeadm 1.36; `@` is the directory of the test.
const CONFIG: &str = include_str!("kubeadm/config.yaml");
const CA: &str = include_str!("kubeadm/ca.crt");
const BOOTSTRAP: &str = include_str!("kubeadm/bootstrap-kubelet.conf");
/// The environment of the drop-in, in the order of its `ExecStart`. `pod-infra-container-image` is
/// what kubeadm before 1.35 wrote; the Go kubelet of 1.36 exits with it.
const ARGS: [&str; 4] = [
    "--bootstrap-kubeconfig=@/bootstrap-kubelet.conf --kubeconfig=@/kubelet.conf",
    "--config=@/config.yaml",
    "--container-runtime-endpoint=unix://@/containerd.sock --node-ip=127.0.0.1 \
     --hostname-override=n1 --cgroup-driver=systemd \
     --pod-infra-container-image=registry.k8s.io/pause:3.10.1",
    "--root-dir=@/root --cert-dir=@/root/pki --fail-cgroupv1=false --fail-swap-on=false",
];
/// Long enough for two busy cores.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn agent_starts_as_kubelet_with_kubeadm_flags_and_files() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let here = |text: &str| text.replace('@', at.to_str().unwrap());
    std::fs::create_dir(at.join("manifests")).unwrap();
    std::fs::write(at.join("config.yaml"), here(CONFIG)).unwrap();
    std::fs::write(at.join("bootstrap-kubelet.conf"), BOOTSTRAP).unwrap();
    std::fs::write(at.join("ca.crt"), CA).unwrap();
    let kubelet = at.join("kubelet");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_windlass"), &kubelet).unwrap();

    let version = Command::new(&kubelet).arg("--version").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    assert!(version.starts_with("Kubernetes v1.36."), "{version}");

    let ports = [free_port(), free_port()];
    let line = here(&ARGS.join(" "));
    let ports = format!("--port={} --healthz-port={}", ports[0], ports[1]);
    let log = log_until_started(&kubelet, line.split(' ').chain(ports.split(' ')));
    // as root the agent makes its root directory a shared mount, which outlives it
    let umount = Command::new("umount").arg(at.join("root")).output();
    umount.unwrap();
    let warnings: Vec<String> = log
        .iter()
        .filter_map(|line| line.split_once("configuration warning="))
        .map(|(_, warning)| warning.replace(at.to_str().unwrap(), "@"))
        .collect();
    assert_eq!(
        warnings,
        ["--pod-infra-container-image: ignored: no longer has an effect; remove it"]
    );
}

#[test]
fn failure_after_actor_start_is_error_not_panic() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("file"), "").unwrap();
    let line = format!(
        "--root-dir={at}/root --cert-dir={at}/file/pki --port={} --healthz-port={} \
         --read-only-port=0 \
         --fail-cgroupv1=false --fail-swap-on=false \
         --container-runtime-endpoint=unix://{at}/containerd.sock",
        free_port(),
        free_port(),
        at = at.display(),
    );
    let agent = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(line.split_whitespace())
        .output();
    let agent = agent.unwrap();
    // see above
    let umount = Command::new("umount").arg(at.join("root")).output();
    umount.unwrap();
    let said = String::from_utf8(agent.stderr).unwrap();
    assert_eq!(agent.status.code(), Some(1), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    let last = said.lines().last().unwrap();
    assert!(
        last.contains("agent failed") && last.contains("--cert-dir="),
        "{said}"
    );
}

/// Starts the agent, returns its log up to "agent started", and kills it.
fn log_until_started<'a>(kubelet: &Path, args: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut agent = Command::new(kubelet)
        .args(args)
        .stderr(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(agent.stderr.take().unwrap());
    let (lines, received) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        // until the agent exits or the receiver is dropped
        let _ended = stderr
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| lines.send(line));
    });
    let mut all = Vec::new();
    let runs = loop {
        match received.recv_timeout(SOON) {
            Ok(line) if line.contains("agent started") => break true,
            Ok(line) => all.push(line),
            Err(_) => break false,
        }
    };
    agent.kill().unwrap();
    agent.wait().unwrap();
    reader.join().unwrap();
    assert!(runs, "it does not run:\n{}", all.join("\n"));
    all
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
