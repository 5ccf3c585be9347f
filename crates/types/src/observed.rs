//! Observed state of a pod in the runtime (upstream `kubecontainer.PodStatus`).

use std::net::IpAddr;

use crate::Timestamp;
use crate::cri::LinuxResources;
use crate::ids::{ContainerId, PodUid, SandboxId};
use crate::sizes::ContainerSizes;

/// The state of one pod in the runtime at `observed_at`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedPod {
    /// The pod's UID, from the sandbox label.
    pub uid: PodUid,
    /// The pod's name, from the sandbox label.
    pub name: String,
    /// The pod's namespace, from the sandbox label.
    pub namespace: String,
    /// IPs of the newest ready sandbox, primary first; empty for host network.
    pub ips: Vec<IpAddr>,
    /// All sandboxes, newest attempt first.
    pub sandboxes: Vec<ObservedSandbox>,
    /// All container instances, newest first (creation time, then attempt).
    pub containers: Vec<ObservedContainer>,
    /// Start of the inspection; `None` if the pod was never inspected.
    pub observed_at: Option<Timestamp>,
}

impl ObservedPod {
    /// Returns the newest instance of a container.
    pub fn latest(&self, container: &str) -> Option<&ObservedContainer> {
        self.containers.iter().find(|c| c.name == container)
    }

    /// Returns all instances of a container, newest first.
    pub fn instances<'a>(
        &'a self,
        container: &'a str,
    ) -> impl Iterator<Item = &'a ObservedContainer> + 'a {
        self.containers.iter().filter(move |c| c.name == container)
    }

    /// Returns the newest sandbox, ready or not.
    pub fn newest_sandbox(&self) -> Option<&ObservedSandbox> {
        self.sandboxes.first()
    }

    /// Returns the containers in state running or unknown.
    pub fn running(&self) -> impl Iterator<Item = &ObservedContainer> {
        self.containers
            .iter()
            .filter(|c| matches!(c.state, ContainerState::Running | ContainerState::Unknown))
    }

    /// True if a sandbox is ready or a container runs.
    pub fn is_alive(&self) -> bool {
        self.sandboxes.iter().any(|s| s.ready) || self.running().next().is_some()
    }

    /// True if the runtime has neither sandbox nor container of this pod.
    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }
}

/// One pod sandbox.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedSandbox {
    /// The runtime's ID.
    pub id: SandboxId,
    /// 0 for the first sandbox of the pod, then counting up.
    pub attempt: u32,
    /// `SANDBOX_READY`.
    pub ready: bool,
    /// When the runtime created it.
    pub created_at: Timestamp,
    /// It uses the node's network namespace.
    pub host_network: bool,
    /// Its IPs, primary first.
    pub ips: Vec<IpAddr>,
}

/// State of one container instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ContainerState {
    /// Created, never started.
    Created,
    /// Running.
    Running,
    /// Exited.
    Exited,
    /// Unknown to the runtime; stop it before creating another.
    #[default]
    Unknown,
}

impl ContainerState {
    /// True in state running or unknown.
    #[must_use]
    pub fn may_run(self) -> bool {
        matches!(self, Self::Running | Self::Unknown)
    }
}

/// One container instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedContainer {
    /// The runtime's ID.
    pub id: ContainerId,
    /// The container's name in the pod spec.
    pub name: String,
    /// Sandbox it was created in.
    pub sandbox_id: SandboxId,
    /// Its state.
    pub state: ContainerState,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it started, if it did.
    pub started_at: Option<Timestamp>,
    /// When it exited, if it did; with the state `Created`, when its start was cut off.
    pub finished_at: Option<Timestamp>,
    /// Exit code; 0 unless exited.
    pub exit_code: i32,
    /// The runtime's reason for the exit (`OOMKilled`, `Error`, `Completed`, …); may be empty.
    pub reason: String,
    /// The runtime's or the container's message about its exit; may be empty.
    pub message: String,
    /// Image as the user wrote it.
    pub image: String,
    /// Image ID as reported by the runtime (`sha256:…` or a digest reference).
    pub image_id: String,
    /// Value of `io.kubernetes.container.hash`, parsed; `None` if absent or not hex.
    pub hash: Option<u32>,
    /// Value of `io.kubernetes.container.restartCount`.
    pub restart_count: u32,
    /// Absolute path of its log on the node.
    pub log_path: String,
    /// User of its first process; `None` if not reported.
    pub user: Option<ObservedUser>,
    /// The stop signal, for example `SIGTERM`; empty if not reported.
    pub stop_signal: String,
    /// The resources in force; `None` if not reported.
    pub resources: Option<LinuxResources>,
    /// CPU and memory with which it was created; `None` if not recorded.
    pub created_sizes: Option<ContainerSizes>,
    /// Paths in the container that are read-only with everything mounted below them.
    pub recursive_read_only: Vec<String>,
    /// Images mounted as volumes, as passed to the runtime.
    pub image_mounts: Vec<String>,
    /// Its processes that the OOM killer killed; from the kernel, not the runtime.
    pub oom_kills: Option<OomKills>,
}

/// OOM kills in the cgroup of a container, or below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OomKills {
    /// Its cgroup.
    pub cgroup: String,
    /// Number of kills.
    pub count: u64,
    /// When the last one was noticed.
    pub last: Timestamp,
}

/// Identity of a container's first process (`LinuxContainerUser` of the CRI).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedUser {
    /// User ID.
    pub uid: i64,
    /// Group ID.
    pub gid: i64,
    /// Groups beside the first.
    pub supplemental_groups: Vec<i64>,
}
