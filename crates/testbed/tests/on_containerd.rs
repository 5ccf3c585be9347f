//! The private containerd runs a pod, survives a daemon kill, and leaves no resources behind.

#![allow(clippy::unwrap_used)] // every function here is part of a test

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tonic::transport::Endpoint;
use windlass_proto::cri_v1::runtime_service_client::RuntimeServiceClient;
use windlass_proto::cri_v1::{
    ContainerConfig, ContainerMetadata, CreateContainerRequest, ImageSpec, LinuxPodSandboxConfig,
    PodSandboxConfig, PodSandboxMetadata, PodSandboxStatusRequest, RunPodSandboxRequest,
    StartContainerRequest,
};
use windlass_testbed::containerd::PrivateContainerd;
use windlass_testbed::images;

fn quiet(_: &str) {}

/// Host resources that a containerd may leave.
fn traces() -> BTreeSet<PathBuf> {
    let mut traces = BTreeSet::new();
    let dirs = [
        "/run",
        "/run/containerd",
        "/run/netns",
        "/var/lib",
        "/var/lib/cni",
        "/opt",
    ];
    let more = [
        "/sys/class/net",
        "/sys/fs/cgroup",
        "/var/log",
        "/var/log/pods",
        "/etc",
    ];
    for dir in dirs.iter().chain(&more) {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        traces.extend(entries.map(|entry| entry.path()));
    }
    let cgroups: Vec<_> = traces
        .iter()
        .filter(|path| path.starts_with("/sys/fs/cgroup"))
        .cloned()
        .collect();
    for cgroup in cgroups {
        let entries = std::fs::read_dir(cgroup).into_iter().flatten().flatten();
        traces.extend(entries.map(|entry| entry.path()));
    }
    traces
}

fn mounts_below(base: &Path) -> usize {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table
        .lines()
        .filter(|line| line.contains(base.to_str().unwrap()))
        .count()
}

/// Runs a pod of one sleeping container and returns its IP.
async fn run_pod(containerd: &PrivateContainerd) -> String {
    let endpoint = Endpoint::try_from(containerd.endpoint()).unwrap();
    let mut cri = RuntimeServiceClient::new(endpoint.connect().await.unwrap());
    let sandbox_config = PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: "web".to_owned(),
            uid: "u-1".to_owned(),
            namespace: "default".to_owned(),
            attempt: 0,
        }),
        log_directory: containerd.base().join("logs/web").display().to_string(),
        linux: Some(LinuxPodSandboxConfig {
            // without a parent, containerd chooses one that is not a slice: runc rejects it with systemd
            cgroup_parent: containerd.cgroup_layout().kubepods(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let request = RunPodSandboxRequest {
        config: Some(sandbox_config.clone()),
        ..Default::default()
    };
    let sandbox = cri
        .run_pod_sandbox(request)
        .await
        .unwrap()
        .into_inner()
        .pod_sandbox_id;
    let image = ImageSpec {
        image: images::BUSYBOX.to_owned(),
        ..Default::default()
    };
    let config = ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: "main".to_owned(),
            attempt: 0,
        }),
        image: Some(image),
        command: ["sleep", "1000"].map(str::to_owned).to_vec(),
        log_path: "main/0.log".to_owned(),
        linux: Some(Default::default()),
        ..Default::default()
    };
    let request = CreateContainerRequest {
        pod_sandbox_id: sandbox.clone(),
        config: Some(config),
        sandbox_config: Some(sandbox_config),
    };
    let container_id = cri
        .create_container(request)
        .await
        .unwrap()
        .into_inner()
        .container_id;
    cri.start_container(StartContainerRequest { container_id })
        .await
        .unwrap();
    let request = PodSandboxStatusRequest {
        pod_sandbox_id: sandbox,
        verbose: false,
    };
    let status = cri
        .pod_sandbox_status(request)
        .await
        .unwrap()
        .into_inner()
        .status;
    status.unwrap().network.unwrap().ip
}

/// Returns ID, PID and state of all containers.
async fn tasks(containerd: &PrivateContainerd) -> BTreeSet<String> {
    let tasks = containerd.ctr(&["tasks", "ls"]).await.unwrap();
    tasks
        .lines()
        .filter(|line| line.contains("RUNNING"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn on_containerd_stop_with_running_pod_leaves_no_resources() {
    let before = traces();
    let containerd = PrivateContainerd::start("t-stop", quiet).await.unwrap();
    let base = containerd.base().to_owned();
    let ip = run_pod(&containerd).await;
    assert!(ip.starts_with("10.88."), "{ip}");
    assert!(mounts_below(&base) > 0);
    containerd.stop().await.unwrap();
    assert!(!base.exists());
    assert_eq!(mounts_below(&base), 0);
    let left: Vec<_> = traces().difference(&before).cloned().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn on_containerd_next_run_cleans_up_after_killed_run() {
    let before = traces();
    let containerd = PrivateContainerd::start("t-crash", quiet).await.unwrap();
    let base = containerd.base().to_owned();
    let first_daemon = containerd.daemon_pid().unwrap();
    run_pod(&containerd).await;
    // as kill -9: no destructors, lock released
    containerd.abandon();

    let containerd = PrivateContainerd::start("t-crash", quiet).await.unwrap();
    assert!(!Path::new(&format!("/proc/{first_daemon}/exe")).exists());
    run_pod(&containerd).await;
    let second = PrivateContainerd::start("t-crash", quiet)
        .await
        .unwrap_err();
    assert!(second.to_string().contains("in use by process"), "{second}");
    drop(containerd);
    assert!(!base.exists());
    let left: Vec<_> = traces().difference(&before).cloned().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn on_containerd_pods_survive_daemon_kill() {
    let mut containerd = PrivateContainerd::start("t-daemon", quiet).await.unwrap();
    run_pod(&containerd).await;
    let before = tasks(&containerd).await;
    assert_eq!(before.len(), 2, "{before:?}");
    containerd.kill_daemon().unwrap();
    assert!(!containerd.socket().exists());
    containerd.start_daemon().await.unwrap();
    assert_eq!(tasks(&containerd).await, before);
    containerd.stop().await.unwrap();
}
