//! The file system of the images of the fake runtime.

use async_trait::async_trait;
use windlass_image_gc::ImageFileSystem;
use windlass_stats::DiskSpace;
use windlass_types::SandboxId;

use crate::fake_runtime::FakeRuntime;
use crate::node_sim::Fence;

/// The disk as one agent run sees it.
#[derive(Clone, Debug)]
pub(crate) struct FakeImageDisk {
    runtime: FakeRuntime,
    fence: Fence,
}

impl FakeImageDisk {
    pub(crate) fn of_agent_run(runtime: &FakeRuntime, fence: &Fence) -> Self {
        Self {
            runtime: runtime.clone(),
            fence: fence.clone(),
        }
    }
}

#[async_trait]
impl ImageFileSystem for FakeImageDisk {
    async fn space(&self) -> Result<DiskSpace, String> {
        let space = self.fence.pass(self.runtime.image_disk()).await;
        let (capacity, available) = space.map_err(|error| error.go_text())?;
        Ok(DiskSpace {
            capacity,
            available,
            ..DiskSpace::default()
        })
    }

    async fn sandbox_image(&self, _: &SandboxId) -> Option<String> {
        self.runtime.sandbox_image()
    }
}
