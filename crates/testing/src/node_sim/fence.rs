//! Cuts a killed agent off from the runtime.
//!
//! After the kill, calls in progress do not return and new calls hang. The runtime cuts them off, as
//! containerd does when the connection of a call ends: a sandbox in creation is gone, a container in
//! creation is created, and a container in start exits 2 s later without having run. Other calls
//! complete, and stops unless the runtime cuts them off, too. Each call is a crossing; a kill can be armed for the n-th one ([`Fence::arm`]).

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
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

/// When an armed kill takes effect at a crossing of the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KillMoment {
    /// The call has no effect.
    Before,
    /// The call has its effect; its response is lost.
    After,
}

/// Runtime and volumes of one agent run.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    runtime: FakeRuntime,
    volumes: MemoryVolumes,
    state: Arc<FenceState>,
}

#[derive(Debug, Default)]
struct FenceState {
    raised: CancellationToken,
    /// Calls so far that left the agent.
    crossings: AtomicU64,
    /// The crossing at which the agent is killed.
    armed: Mutex<Option<(u64, KillMoment)>>,
    /// Notified when an armed kill takes effect.
    killed: Notify,
}

impl Fence {
    pub(super) fn new(runtime: FakeRuntime, volumes: MemoryVolumes) -> Self {
        Self {
            runtime,
            volumes,
            state: Arc::default(),
        }
    }

    /// Kills the agent.
    pub(super) fn raise(&self) {
        self.state.raised.cancel();
        self.volumes.kill();
    }

    /// Kills the agent at a later crossing; 1 is the next one.
    pub(super) fn arm(&self, crossings: u64, moment: KillMoment) {
        let at = self.state.crossings.load(Ordering::Relaxed) + crossings;
        *self.armed() = Some((at, moment));
    }

    /// Cancels a kill that has not taken effect.
    pub(super) fn disarm(&self) {
        *self.armed() = None;
    }

    /// Waits until an armed kill takes effect.
    pub(super) async fn killed(&self) {
        self.state.killed.notified().await;
    }

    pub(crate) async fn pass<T>(&self, call: impl Future<Output = T>) -> T {
        let crossing = self.enter();
        self.block_if_raised().await;
        let response = call.await;
        self.leave(crossing);
        self.block_if_raised().await;
        response
    }

    /// Like [`Self::pass`], for a call that the runtime cuts off at the kill. The task of the call
    /// lives on.
    async fn pass_until_kill<T>(&self, call: impl Future<Output = T>) -> T {
        self.pass(async {
            match self.state.raised.run_until_cancelled(call).await {
                Some(response) => response,
                None => std::future::pending().await,
            }
        })
        .await
    }

    /// A call that does not wait; `None` if the agent is killed.
    pub(super) fn pass_now<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        let crossing = self.enter();
        if self.is_raised() {
            return None;
        }
        let response = call();
        self.leave(crossing);
        (!self.is_raised()).then_some(response)
    }

    /// Counts a crossing, and kills the agent if a kill is armed for it.
    pub(super) fn enter(&self) -> u64 {
        let crossing = self.state.crossings.fetch_add(1, Ordering::Relaxed) + 1;
        self.kill_if_armed(crossing, KillMoment::Before);
        crossing
    }

    pub(super) fn is_raised(&self) -> bool {
        self.state.raised.is_cancelled()
    }

    fn leave(&self, crossing: u64) {
        self.kill_if_armed(crossing, KillMoment::After);
    }

    fn kill_if_armed(&self, crossing: u64, moment: KillMoment) {
        let is_due = *self.armed() == Some((crossing, moment));
        if is_due && !self.is_raised() {
            self.raise();
            self.state.killed.notify_one();
        }
    }

    fn armed(&self) -> MutexGuard<'_, Option<(u64, KillMoment)>> {
        let armed = self.state.armed.lock();
        armed.unwrap_or_else(PoisonError::into_inner)
    }

    async fn block_if_raised(&self) {
        if self.is_raised() {
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
        self.pass_until_kill(self.runtime.run_pod_sandbox(config, handler))
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
        let runtime = &self.runtime;
        let call = runtime.create_container(sandbox, config, sandbox_config);
        self.pass_until_kill(call).await
    }

    async fn start_container(&self, id: &ContainerId) -> CriResult<()> {
        self.pass_until_kill(self.runtime.start_container(id)).await
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> CriResult<()> {
        let call = self.runtime.stop_container(id, grace);
        match self.runtime.cuts_off_stops() {
            true => self.pass_until_kill(call).await,
            false => self.pass(call).await,
        }
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
        let fence = self.clone();
        let alive = move || !fence.is_raised();
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
