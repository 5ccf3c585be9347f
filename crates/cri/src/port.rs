//! The two ports to a container runtime. Every implementation puts a deadline on every call
//! except [`RuntimeService::events`] and [`ImageService::pull_image`], which end when dropped.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use windlass_types::cri::{
    CgroupDriver, ContainerConfig, ContainerDetail, ContainerSummary, ExecOutput, ImageAuth,
    ImageInfo, LinuxResources, ListFilter, RuntimeEvent, RuntimeStatus, RuntimeVersion,
    SandboxConfig, SandboxDetail, SandboxSummary,
};
use windlass_types::{ContainerId, SandboxId};

use crate::error::CriResult;

/// Stream of runtime events; it ends or yields an error when the connection is lost.
pub type RuntimeEventStream = BoxStream<'static, CriResult<RuntimeEvent>>;

/// `runtime.v1.RuntimeService`, as far as Windlass uses it.
#[async_trait]
pub trait RuntimeService: Send + Sync + Debug + 'static {
    /// Name and version of the runtime.
    async fn version(&self) -> CriResult<RuntimeVersion>;
    /// Whether runtime and network are ready.
    async fn status(&self) -> CriResult<RuntimeStatus>;
    /// Sends the pods' address ranges, separated by commas.
    async fn update_runtime_config(&self, pod_cidr: &str) -> CriResult<()>;
    /// Configured cgroup driver; `None` if the runtime does not report it.
    async fn cgroup_driver(&self) -> CriResult<Option<CgroupDriver>> {
        Ok(None)
    }

    /// Creates and starts a sandbox; `handler` is the RuntimeClass handler, empty for the default.
    async fn run_pod_sandbox(&self, config: &SandboxConfig, handler: &str) -> CriResult<SandboxId>;
    /// Stops a sandbox and its containers. Succeeds if it does not exist.
    async fn stop_pod_sandbox(&self, id: &SandboxId) -> CriResult<()>;
    /// Removes a sandbox and its containers. Succeeds if it does not exist.
    async fn remove_pod_sandbox(&self, id: &SandboxId) -> CriResult<()>;
    /// One sandbox in detail.
    async fn pod_sandbox_status(&self, id: &SandboxId) -> CriResult<SandboxDetail>;
    /// Announces the resources of a pod without its overhead; the caller changes the pod's cgroup.
    /// `Unimplemented` in older runtimes.
    async fn update_pod_sandbox_resources(
        &self,
        id: &SandboxId,
        overhead: Option<&LinuxResources>,
        resources: &LinuxResources,
    ) -> CriResult<()>;
    /// Sandboxes that match.
    async fn list_pod_sandboxes(&self, filter: &ListFilter) -> CriResult<Vec<SandboxSummary>>;

    /// Creates a container in a sandbox.
    async fn create_container(
        &self,
        sandbox: &SandboxId,
        config: &ContainerConfig,
        sandbox_config: &SandboxConfig,
    ) -> CriResult<ContainerId>;
    /// Starts a created container.
    async fn start_container(&self, id: &ContainerId) -> CriResult<()>;
    /// Stops a container: its stop signal, then SIGKILL after `grace`. Succeeds if it does not
    /// exist.
    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> CriResult<()>;
    /// Removes a container. Succeeds if it does not exist.
    async fn remove_container(&self, id: &ContainerId) -> CriResult<()>;
    /// Containers that match.
    async fn list_containers(&self, filter: &ListFilter) -> CriResult<Vec<ContainerSummary>>;
    /// One container in detail. The CRI leaves `sandbox_id` empty here.
    async fn container_status(&self, id: &ContainerId) -> CriResult<ContainerDetail>;
    /// Changes the resources of a container; an unset value keeps the current one.
    async fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: &LinuxResources,
    ) -> CriResult<()>;
    /// Runs a command in a container and waits for its end. After `timeout` (whole seconds, at
    /// least one) the command is killed and the call fails with `DeadlineExceeded`.
    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> CriResult<ExecOutput>;

    /// Reopens the container's log, after its file was renamed.
    async fn reopen_container_log(&self, id: &ContainerId) -> CriResult<()>;

    /// Runtime events: CRI's `GetContainerEvents`, else containerd's event service; `Unimplemented`
    /// if the runtime has neither.
    async fn events(&self) -> CriResult<RuntimeEventStream>;
}

/// `runtime.v1.ImageService`, as far as Windlass uses it.
#[async_trait]
pub trait ImageService: Send + Sync + Debug + 'static {
    /// All images on the node.
    async fn list_images(&self) -> CriResult<Vec<ImageInfo>>;
    /// One image, `None` if it is not on the node.
    async fn image_status(&self, image: &str) -> CriResult<Option<ImageInfo>>;
    /// Pulls an image and returns the reference to run (an ID or digest).
    async fn pull_image(
        &self,
        image: &str,
        auth: Option<&ImageAuth>,
        sandbox_config: &SandboxConfig,
    ) -> CriResult<String>;
    /// Removes an image. Succeeds if it does not exist.
    async fn remove_image(&self, image: &str) -> CriResult<()>;
}
