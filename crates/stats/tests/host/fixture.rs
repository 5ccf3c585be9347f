//! What a `HostStats` needs around it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use windlass_cri::{CriResult, ImageFsInfo, RuntimeFs, RuntimeStats};
use windlass_pod_inputs::paths::NodePaths;
use windlass_stats::usage::FsUsage;
use windlass_stats::{
    HostStatsConfig, KernelRoots, RunningPod, RunningPods, SystemCgroups, VolumeStatsEntry,
    VolumeStatsProvider,
};
use windlass_types::{
    Clock, ContainerId, ContainerState, ObservedContainer, ObservedPod, ObservedSandbox, PodUid,
    SandboxId, Timestamp, later,
};

/// A clock that follows the tokio clock.
#[derive(Debug)]
struct TestClock(Instant);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let start = Timestamp::from_second(1_700_000_000).expect("a time");
        later(start, self.0.elapsed())
    }
}

/// Pods that a test has.
#[derive(Debug)]
pub(crate) struct FixedPods(Mutex<Vec<RunningPod>>);

impl FixedPods {
    pub(crate) fn new(pods: Vec<RunningPod>) -> Self {
        Self(Mutex::new(pods))
    }

    pub(crate) fn set(&self, pods: Vec<RunningPod>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pods;
    }
}

impl RunningPods for FixedPods {
    fn running_pods(&self) -> Vec<RunningPod> {
        let pods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pods.clone()
    }
}

/// Each pod has an emptyDir `data` of 1000 bytes.
#[derive(Debug)]
pub(crate) struct OneVolume;

#[async_trait]
impl VolumeStatsProvider for OneVolume {
    async fn of_pod(&self, _uid: &PodUid, _max_age: Duration) -> Vec<VolumeStatsEntry> {
        vec![VolumeStatsEntry {
            name: "data".to_owned(),
            claim: None,
            fs: FsUsage {
                at: Timestamp::UNIX_EPOCH,
                device: None,
                capacity: Some(1 << 30),
                available: Some(1 << 20),
                used: Some(1000),
                inodes: None,
                inodes_free: None,
                inodes_used: Some(3),
            },
            abnormal: None,
        }]
    }
}

/// A runtime that never answers.
#[derive(Debug)]
pub(crate) struct SilentRuntime;

#[async_trait]
impl RuntimeStats for SilentRuntime {
    async fn image_fs_info(&self) -> CriResult<ImageFsInfo> {
        std::future::pending().await
    }

    async fn writable_layers(&self) -> CriResult<Vec<(ContainerId, RuntimeFs)>> {
        std::future::pending().await
    }
}

/// This machine, files of pods below `dir`, and a runtime that never answers.
pub(crate) fn config(dir: &Path, pods: Arc<dyn RunningPods>) -> HostStatsConfig {
    let clock = TestClock(Instant::now());
    HostStatsConfig {
        roots: KernelRoots::default(),
        cgroup_root: "/".to_owned(),
        system: SystemCgroups::default(),
        paths: NodePaths {
            root_dir: dir.to_owned(),
            pod_logs_dir: dir.join("logs"),
        },
        volume_period: Some(Duration::from_secs(60)),
        started_at: clock.now(),
        pods,
        volumes: Arc::new(OneVolume),
        runtime: Arc::new(SilentRuntime),
        images: Arc::new(SilentRuntime),
        clock: Arc::new(clock),
    }
}

/// A pod with a sandbox and containers that run; IDs end with `tail`.
pub(crate) fn running_pod(uid: &PodUid, tail: &str, containers: usize) -> RunningPod {
    let sandbox = SandboxId::from(format!("5a4db0c5-{tail}"));
    let container = |number: usize| {
        let id = ContainerId::from(format!("c047a14e-{number}-{tail}"));
        running_container(id, &format!("c{number}"), &sandbox)
    };
    let observed = ObservedPod {
        uid: uid.clone(),
        name: format!("pod-{tail}"),
        namespace: "default".to_owned(),
        containers: (0..containers).map(container).collect(),
        sandboxes: vec![ObservedSandbox {
            id: sandbox.clone(),
            attempt: 0,
            ready: true,
            created_at: Timestamp::UNIX_EPOCH,
            host_network: false,
            ips: Vec::new(),
        }],
        ..ObservedPod::default()
    };
    RunningPod {
        observed: Arc::new(observed),
        pod: None,
        present: true,
        started_at: None,
    }
}

pub(crate) fn running_container(
    id: ContainerId,
    name: &str,
    sandbox: &SandboxId,
) -> ObservedContainer {
    ObservedContainer {
        id,
        name: name.to_owned(),
        sandbox_id: sandbox.clone(),
        state: ContainerState::Running,
        created_at: Timestamp::UNIX_EPOCH,
        started_at: Some(Timestamp::UNIX_EPOCH),
        finished_at: None,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        image: "busybox".to_owned(),
        image_id: String::new(),
        hash: None,
        restart_count: 0,
        log_path: String::new(),
        user: None,
        stop_signal: String::new(),
        resources: None,
        created_sizes: None,
        recursive_read_only: Vec::new(),
        image_mounts: Vec::new(),
        oom_kills: None,
    }
}
