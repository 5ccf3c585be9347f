//! Statistics of the runtime: its file systems and the writable layers of containers.
//!
//! A separate port, used only by the stats collection.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_proto::cri_v1::{self as pb};
use windlass_types::{ContainerId, SandboxId};

use crate::client::{CriClient, request};
use crate::error::CriResult;
use crate::hung::{CallObject, HungCalls};

/// A call that takes longer has hung: the runtime does not walk its snapshots in the call.
const READ_HANG_THRESHOLD: Duration = Duration::from_secs(3);

/// Usage of a file system (`FilesystemUsage`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeFs {
    /// Directory on the file system; empty if the runtime does not report it.
    pub mountpoint: String,
    /// Bytes.
    pub used_bytes: Option<u64>,
    /// Inodes.
    pub inodes_used: Option<u64>,
}

/// File systems of images and of writable layers (`ImageFsInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageFsInfo {
    /// Of images.
    pub images: Option<RuntimeFs>,
    /// Of writable layers; `None` if the runtime does not distinguish them.
    pub containers: Option<RuntimeFs>,
}

/// Stats calls of the CRI.
#[async_trait]
pub trait RuntimeStats: Send + Sync + Debug + 'static {
    /// The file systems of the image service.
    async fn image_fs_info(&self) -> CriResult<ImageFsInfo>;
    /// The writable layers of all containers.
    async fn writable_layers(&self) -> CriResult<Vec<(ContainerId, RuntimeFs)>>;
    /// Verbose information about a sandbox: JSON, from containerd and CRI-O with the sandbox image
    /// in `image`. May be empty.
    async fn sandbox_info(&self, _id: &SandboxId) -> CriResult<String> {
        Ok(String::new())
    }
}

#[async_trait]
impl RuntimeStats for CriClient {
    async fn image_fs_info(&self) -> CriResult<ImageFsInfo> {
        let deadline = self.deadline();
        let mut client = self.images();
        let call = client.image_fs_info(request(pb::ImageFsInfoRequest {}, deadline));
        let answer = self.call("image_fs_info", deadline, call).await?;
        let first = |systems: Vec<pb::FilesystemUsage>| systems.into_iter().next();
        Ok(ImageFsInfo {
            images: first(answer.image_filesystems).map(fs_from_pb),
            containers: first(answer.container_filesystems).map(fs_from_pb),
        })
    }

    async fn writable_layers(&self) -> CriResult<Vec<(ContainerId, RuntimeFs)>> {
        let deadline = self.deadline();
        let mut client = self.runtime();
        let message = pb::ListContainerStatsRequest { filter: None };
        let call = client.list_container_stats(request(message, deadline));
        let answer = self.call("list_container_stats", deadline, call).await?;
        let layers = answer.stats.into_iter().filter_map(|stats| {
            let id = stats.attributes?.id;
            Some((ContainerId::from(id), fs_from_pb(stats.writable_layer?)))
        });
        Ok(layers.collect())
    }

    async fn sandbox_info(&self, id: &SandboxId) -> CriResult<String> {
        let deadline = self.deadline();
        let message = pb::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_string(),
            verbose: true,
        };
        let mut client = self.runtime();
        let call = client.pod_sandbox_status(request(message, deadline));
        let mut answer = self.call("podsandbox_status", deadline, call).await?;
        Ok(answer.info.remove("info").unwrap_or_default())
    }
}

fn fs_from_pb(usage: pb::FilesystemUsage) -> RuntimeFs {
    RuntimeFs {
        mountpoint: usage.fs_id.map(|id| id.mountpoint).unwrap_or_default(),
        used_bytes: usage.used_bytes.map(|bytes| bytes.value),
        inodes_used: usage.inodes_used.map(|inodes| inodes.value),
    }
}

/// Runtime stats with call tracking.
#[derive(Clone, Debug)]
pub struct TrackedStats {
    inner: Arc<dyn RuntimeStats>,
    calls: HungCalls,
}

impl TrackedStats {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn RuntimeStats>, calls: HungCalls) -> Self {
        Self { inner, calls }
    }
}

#[async_trait]
impl RuntimeStats for TrackedStats {
    async fn image_fs_info(&self) -> CriResult<ImageFsInfo> {
        let key = ("ImageFsInfo", CallObject::Runtime);
        let call = self.inner.image_fs_info();
        self.calls.track(key, None, READ_HANG_THRESHOLD, call).await
    }

    async fn writable_layers(&self) -> CriResult<Vec<(ContainerId, RuntimeFs)>> {
        let key = ("ListContainerStats", CallObject::Runtime);
        let call = self.inner.writable_layers();
        self.calls.track(key, None, READ_HANG_THRESHOLD, call).await
    }

    async fn sandbox_info(&self, id: &SandboxId) -> CriResult<String> {
        let key = ("PodSandboxStatus", CallObject::Sandbox(id.clone()));
        let call = self.inner.sandbox_info(id);
        self.calls.track(key, None, READ_HANG_THRESHOLD, call).await
    }
}
