//! A runtime that only reports its version and status, for tests of this crate.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use windlass_cri::{
    CriCode, CriError, CriResult, ImageService, RuntimeEventStream, RuntimeService,
};
use windlass_types::cri::{
    ContainerConfig, ContainerDetail, ContainerSummary, ExecOutput, ImageAuth, ImageInfo,
    ListFilter, RuntimeStatus, RuntimeVersion, SandboxConfig, SandboxDetail, SandboxSummary,
};
use windlass_types::{ContainerId, SandboxId};

#[derive(Clone, Debug)]
pub(crate) struct FakeRuntime(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    images: Vec<ImageInfo>,
    hangs: bool,
    pod_cidrs: Vec<String>,
    rejects_pod_cidrs: bool,
}

impl FakeRuntime {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn hang(&self, on: bool) {
        self.0.lock().expect("not poisoned").hangs = on;
    }

    pub(crate) fn add_image(&self, name: &str, size: u64) {
        let image = ImageInfo {
            id: format!("sha256:{name}"),
            repo_tags: vec![name.to_owned()],
            size,
            ..ImageInfo::default()
        };
        self.0.lock().expect("not poisoned").images.push(image);
    }

    /// Takes the pod CIDRs received since the last call.
    pub(crate) fn take_pod_cidrs(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("not poisoned").pod_cidrs)
    }

    pub(crate) fn reject_pod_cidrs(&self, on: bool) {
        self.0.lock().expect("not poisoned").rejects_pod_cidrs = on;
    }

    async fn reply<T>(&self, value: T) -> CriResult<T> {
        let hangs = self.0.lock().expect("not poisoned").hangs;
        if hangs {
            std::future::pending::<()>().await;
        }
        Ok(value)
    }
}

fn unused<T>() -> CriResult<T> {
    Err(CriError::new("unused", CriCode::Unimplemented, "not here"))
}

#[async_trait]
impl RuntimeService for FakeRuntime {
    async fn version(&self) -> CriResult<RuntimeVersion> {
        self.reply(RuntimeVersion {
            name: "containerd".to_owned(),
            version: "1.6.20".to_owned(),
            api_version: "v1".to_owned(),
        })
        .await
    }

    async fn status(&self) -> CriResult<RuntimeStatus> {
        self.reply(RuntimeStatus::default()).await
    }

    async fn update_runtime_config(&self, pod_cidr: &str) -> CriResult<()> {
        let mut state = self.0.lock().expect("not poisoned");
        state.pod_cidrs.push(pod_cidr.to_owned());
        if state.rejects_pod_cidrs {
            return unused();
        }
        Ok(())
    }

    async fn run_pod_sandbox(&self, _: &SandboxConfig, _: &str) -> CriResult<SandboxId> {
        unused()
    }

    async fn stop_pod_sandbox(&self, _: &SandboxId) -> CriResult<()> {
        unused()
    }

    async fn remove_pod_sandbox(&self, _: &SandboxId) -> CriResult<()> {
        unused()
    }

    async fn pod_sandbox_status(&self, _: &SandboxId) -> CriResult<SandboxDetail> {
        unused()
    }

    async fn list_pod_sandboxes(&self, _: &ListFilter) -> CriResult<Vec<SandboxSummary>> {
        unused()
    }

    async fn create_container(
        &self,
        _: &SandboxId,
        _: &ContainerConfig,
        _: &SandboxConfig,
    ) -> CriResult<ContainerId> {
        unused()
    }

    async fn start_container(&self, _: &ContainerId) -> CriResult<()> {
        unused()
    }

    async fn stop_container(&self, _: &ContainerId, _: Duration) -> CriResult<()> {
        unused()
    }

    async fn remove_container(&self, _: &ContainerId) -> CriResult<()> {
        unused()
    }

    async fn list_containers(&self, _: &ListFilter) -> CriResult<Vec<ContainerSummary>> {
        unused()
    }

    async fn container_status(&self, _: &ContainerId) -> CriResult<ContainerDetail> {
        unused()
    }

    async fn exec_sync(&self, _: &ContainerId, _: &[String], _: Duration) -> CriResult<ExecOutput> {
        unused()
    }

    async fn reopen_container_log(&self, _: &ContainerId) -> CriResult<()> {
        unused()
    }

    async fn events(&self) -> CriResult<RuntimeEventStream> {
        unused()
    }
}

#[async_trait]
impl ImageService for FakeRuntime {
    async fn list_images(&self) -> CriResult<Vec<ImageInfo>> {
        let images = self.0.lock().expect("not poisoned").images.clone();
        self.reply(images).await
    }

    async fn image_status(&self, _: &str) -> CriResult<Option<ImageInfo>> {
        unused()
    }

    async fn pull_image(
        &self,
        _: &str,
        _: Option<&ImageAuth>,
        _: &SandboxConfig,
    ) -> CriResult<String> {
        unused()
    }

    async fn remove_image(&self, _: &str) -> CriResult<()> {
        unused()
    }
}
