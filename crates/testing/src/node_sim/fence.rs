//! Cuts a killed agent off from the runtime.
//!
//! After the kill, calls in progress do not return and new calls hang. The runtime cuts them off, as
//! containerd does when the connection of a call ends: a sandbox in creation is gone, a container in
//! creation is created, and a container in start exits 2 s later without having run.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use windlass_cri::{
    CriResult, ImageFsInfo, ImageService, RuntimeEventStream, RuntimeFs, RuntimeService,
    RuntimeStats,
};
use windlass_types::cri::{
    ContainerConfig, ContainerDetail, ContainerSummary, ExecOutput, ImageAuth, ImageInfo,
    LinuxResources, ListFilter, RuntimeStatus, RuntimeVersion, SandboxConfig, SandboxDetail,
    SandboxSummary,
};
use windlass_types::{ContainerId, SandboxId};
use windlass_volumes::MemoryVolumes;

use crate::fake_runtime::FakeRuntime;

/// Runtime and volumes of one agent run.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    runtime: FakeRuntime,
    volumes: MemoryVolumes,
    raised: Arc<AtomicBool>,
}

impl Fence {
    pub(super) fn new(runtime: FakeRuntime, volumes: MemoryVolumes) -> Self {
        Self {
            runtime,
            volumes,
            raised: Arc::default(),
        }
    }

    /// Kills the agent.
    pub(super) fn raise(&self) {
        self.raised.store(true, Ordering::Relaxed);
        self.volumes.kill();
    }

    pub(crate) async fn pass<T>(&self, call: impl Future<Output = T>) -> T {
        self.block_if_raised().await;
        let response = call.await;
        self.block_if_raised().await;
        response
    }

    async fn block_if_raised(&self) {
        if self.raised.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl RuntimeService for Fence {
    async fn version(&self) -> CriResult<RuntimeVersion> {
        self.pass(self.runtime.version()).await
    }

    async fn status(&self) -> CriResult<RuntimeStatus> {
        self.pass(self.runtime.status()).await
    }

    async fn update_runtime_config(&self, pod_cidr: &str) -> CriResult<()> {
        self.pass(self.runtime.update_runtime_config(pod_cidr))
            .await
    }

    async fn run_pod_sandbox(&self, config: &SandboxConfig, handler: &str) -> CriResult<SandboxId> {
        self.pass(self.runtime.run_pod_sandbox(config, handler))
            .await
    }

    async fn stop_pod_sandbox(&self, id: &SandboxId) -> CriResult<()> {
        self.pass(self.runtime.stop_pod_sandbox(id)).await
    }

    async fn remove_pod_sandbox(&self, id: &SandboxId) -> CriResult<()> {
        self.pass(self.runtime.remove_pod_sandbox(id)).await
    }

    async fn pod_sandbox_status(&self, id: &SandboxId) -> CriResult<SandboxDetail> {
        self.pass(self.runtime.pod_sandbox_status(id)).await
    }

    async fn update_pod_sandbox_resources(
        &self,
        id: &SandboxId,
        overhead: Option<&LinuxResources>,
        resources: &LinuxResources,
    ) -> CriResult<()> {
        let runtime = &self.runtime;
        let call = runtime.update_pod_sandbox_resources(id, overhead, resources);
        self.pass(call).await
    }

    async fn list_pod_sandboxes(&self, filter: &ListFilter) -> CriResult<Vec<SandboxSummary>> {
        self.pass(self.runtime.list_pod_sandboxes(filter)).await
    }

    async fn create_container(
        &self,
        sandbox: &SandboxId,
        config: &ContainerConfig,
        sandbox_config: &SandboxConfig,
    ) -> CriResult<ContainerId> {
        let paths = config
            .mounts
            .iter()
            .map(|mount| Path::new(&mount.host_path));
        self.volumes.check_paths(&sandbox_config.uid, paths);
        self.pass(
            self.runtime
                .create_container(sandbox, config, sandbox_config),
        )
        .await
    }

    async fn start_container(&self, id: &ContainerId) -> CriResult<()> {
        self.pass(self.runtime.start_container(id)).await
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> CriResult<()> {
        self.pass(self.runtime.stop_container(id, grace)).await
    }

    async fn remove_container(&self, id: &ContainerId) -> CriResult<()> {
        self.pass(self.runtime.remove_container(id)).await
    }

    async fn list_containers(&self, filter: &ListFilter) -> CriResult<Vec<ContainerSummary>> {
        self.pass(self.runtime.list_containers(filter)).await
    }

    async fn container_status(&self, id: &ContainerId) -> CriResult<ContainerDetail> {
        self.pass(self.runtime.container_status(id)).await
    }

    async fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: &LinuxResources,
    ) -> CriResult<()> {
        self.pass(self.runtime.update_container_resources(id, resources))
            .await
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> CriResult<ExecOutput> {
        self.pass(self.runtime.exec_sync(id, command, timeout))
            .await
    }

    async fn reopen_container_log(&self, id: &ContainerId) -> CriResult<()> {
        self.pass(self.runtime.reopen_container_log(id)).await
    }

    async fn events(&self) -> CriResult<RuntimeEventStream> {
        let stream = self.pass(self.runtime.events()).await?;
        let raised = Arc::clone(&self.raised);
        let alive = move || !raised.load(Ordering::Relaxed);
        Ok(stream
            .take_while(move |_| std::future::ready(alive()))
            .boxed())
    }
}

#[async_trait]
impl ImageService for Fence {
    async fn list_images(&self) -> CriResult<Vec<ImageInfo>> {
        self.pass(self.runtime.list_images()).await
    }

    async fn image_status(&self, image: &str) -> CriResult<Option<ImageInfo>> {
        self.pass(self.runtime.image_status(image)).await
    }

    async fn pull_image(
        &self,
        image: &str,
        auth: Option<&ImageAuth>,
        sandbox_config: &SandboxConfig,
    ) -> CriResult<String> {
        self.pass(self.runtime.pull_image(image, auth, sandbox_config))
            .await
    }

    async fn remove_image(&self, image: &str) -> CriResult<()> {
        self.pass(self.runtime.remove_image(image)).await
    }
}

#[async_trait]
impl RuntimeStats for Fence {
    async fn image_fs_info(&self) -> CriResult<ImageFsInfo> {
        self.pass(self.runtime.image_fs_info()).await
    }

    async fn writable_layers(&self) -> CriResult<Vec<(ContainerId, RuntimeFs)>> {
        self.pass(self.runtime.writable_layers()).await
    }
}
