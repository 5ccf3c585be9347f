//! Prints the signals of this host.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_cri::{CriResult, ImageFsInfo, RuntimeFs, RuntimeStats};
use windlass_eviction_manager::{HostFigures, HostFiguresConfig, NodeFigures};
use windlass_mailboxes::SystemClock;
use windlass_stats::KernelRoots;
use windlass_types::ContainerId;

/// A runtime with its images below `/var/lib`.
#[derive(Debug)]
struct Images;

#[async_trait]
impl RuntimeStats for Images {
    async fn image_fs_info(&self) -> CriResult<ImageFsInfo> {
        let images = RuntimeFs {
            mountpoint: "/var/lib/containerd".to_owned(),
            ..RuntimeFs::default()
        };
        Ok(ImageFsInfo {
            images: Some(images),
            containers: None,
        })
    }

    async fn writable_layers(&self) -> CriResult<Vec<(ContainerId, RuntimeFs)>> {
        Ok(Vec::new())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let figures = HostFigures::new(HostFiguresConfig {
        roots: KernelRoots::default(),
        cgroup_root: String::new(),
        root_dir: "/var/lib/kubelet".into(),
        split_images: true,
        images: Arc::new(Images),
        clock: Arc::new(SystemClock),
    });
    // the runtime answers meanwhile
    figures.read().await;
    tokio::task::yield_now().await;
    let reading = figures.read().await;
    for (signal, observed) in &reading.observations.signals {
        let [available, capacity] =
            [observed.available, observed.capacity].map(|it| signal.quantity(it));
        println!("{signal}: {available} of {capacity}");
    }
    if let Some(stall) = reading.observations.node_memory.stall {
        println!("memory stall: {stall}");
    }
}
