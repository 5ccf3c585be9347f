//! CRI operations by their upstream names, and the call log.

use std::fmt;

use windlass_cri::CriCode;
use windlass_types::Timestamp;

/// An operation of either port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// `version`.
    Version,
    /// `status`.
    Status,
    /// `update_runtime_config`.
    UpdateRuntimeConfig,
    /// `run_podsandbox`.
    RunPodSandbox,
    /// `stop_podsandbox`.
    StopPodSandbox,
    /// `remove_podsandbox`.
    RemovePodSandbox,
    /// `podsandbox_status`.
    PodSandboxStatus,
    /// `update_podsandbox_resources`.
    UpdatePodSandbox,
    /// `list_podsandbox`.
    ListPodSandboxes,
    /// `create_container`.
    CreateContainer,
    /// `start_container`.
    StartContainer,
    /// `stop_container`.
    StopContainer,
    /// `remove_container`.
    RemoveContainer,
    /// `list_containers`.
    ListContainers,
    /// `container_status`.
    ContainerStatus,
    /// `update_container`.
    UpdateContainer,
    /// `list_container_stats`.
    ListContainerStats,
    /// `image_fs_info`.
    ImageFsInfo,
    /// `exec_sync`.
    ExecSync,
    /// `reopen_container_log`.
    ReopenContainerLog,
    /// `get_container_events`.
    Events,
    /// `list_images`.
    ListImages,
    /// `image_status`.
    ImageStatus,
    /// `pull_image`.
    PullImage,
    /// `remove_image`.
    RemoveImage,
}

impl Operation {
    /// Returns the upstream name of the operation.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Status => "status",
            Self::UpdateRuntimeConfig => "update_runtime_config",
            Self::RunPodSandbox => "run_podsandbox",
            Self::StopPodSandbox => "stop_podsandbox",
            Self::RemovePodSandbox => "remove_podsandbox",
            Self::PodSandboxStatus => "podsandbox_status",
            Self::UpdatePodSandbox => "update_podsandbox_resources",
            Self::ListPodSandboxes => "list_podsandbox",
            Self::CreateContainer => "create_container",
            Self::StartContainer => "start_container",
            Self::StopContainer => "stop_container",
            Self::RemoveContainer => "remove_container",
            Self::ListContainers => "list_containers",
            Self::ContainerStatus => "container_status",
            Self::UpdateContainer => "update_container",
            Self::ListContainerStats => "list_container_stats",
            Self::ImageFsInfo => "image_fs_info",
            Self::ExecSync => "exec_sync",
            Self::ReopenContainerLog => "reopen_container_log",
            Self::Events => "get_container_events",
            Self::ListImages => "list_images",
            Self::ImageStatus => "image_status",
            Self::PullImage => "pull_image",
            Self::RemoveImage => "remove_image",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A logged call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Time of arrival.
    pub at: Timestamp,
    /// Operation.
    pub operation: Operation,
    /// `namespace/pod` for sandboxes, `namespace/pod/container#attempt` for containers, the ID of a
    /// missing object, the image reference, the pod CIDR of the configuration, else empty.
    pub subject: String,
    /// Outcome.
    pub outcome: Outcome,
}

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// In progress or cancelled by the caller.
    Open,
    /// Succeeded.
    Done,
    /// Failed.
    Failed(CriCode),
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation, self.subject)?;
        match self.outcome {
            Outcome::Done => Ok(()),
            Outcome::Open => f.write_str(" (open)"),
            Outcome::Failed(code) => write!(f, " ({code:?})"),
        }
    }
}
