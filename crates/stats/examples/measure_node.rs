//! Collects the stats of this host twice, a second apart, and prints them as `/stats/summary`:
//! rates need two samples. Without a runtime there are no pods and no image stats.
//!
//! `cargo run -p windlass-stats --example measure_node -- [name of the node]`
//!
//! Runs without a container runtime.

use std::error::Error;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_cri::{CriCode, CriError, CriResult, ImageFsInfo, RuntimeFs, RuntimeStats};
use windlass_mailboxes::SystemClock;
use windlass_pod_inputs::paths::NodePaths;
use windlass_stats::{
    HostStats, HostStatsConfig, KernelRoots, RunningPod, RunningPods, StatsSelection, StatsSource,
    Summary, SystemCgroups, VolumeStatsEntry, VolumeStatsProvider,
};
use windlass_types::{Clock, ContainerId, PodUid};

/// Pods, volumes and a runtime, of which there are none.
#[derive(Debug)]
struct Nothing;

impl RunningPods for Nothing {
    fn running_pods(&self) -> Vec<RunningPod> {
        Vec::new()
    }
}

#[async_trait]
impl VolumeStatsProvider for Nothing {
    async fn of_pod(&self, _: &PodUid, _: Duration) -> Vec<VolumeStatsEntry> {
        Vec::new()
    }
}

#[async_trait]
impl RuntimeStats for Nothing {
    async fn image_fs_info(&self) -> CriResult<ImageFsInfo> {
        Err(absent("image_fs_info"))
    }

    async fn writable_layers(&self) -> CriResult<Vec<(ContainerId, RuntimeFs)>> {
        Err(absent("list_container_stats"))
    }
}

fn absent(operation: &'static str) -> CriError {
    CriError::new(operation, CriCode::Unavailable, "there is no runtime")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1);
    let name = name.unwrap_or_else(|| "this-machine".to_owned());
    let nothing = Arc::new(Nothing);
    let stats = HostStats::new(HostStatsConfig {
        roots: KernelRoots::default(),
        cgroup_root: "/".to_owned(),
        system: SystemCgroups::default(),
        paths: NodePaths::default(),
        volume_period: None,
        started_at: SystemClock.now(),
        pods: nothing.clone(),
        volumes: nothing.clone(),
        runtime: nothing.clone(),
        images: nothing,
        clock: Arc::new(SystemClock),
    });
    stats.node(StatsSelection::CPU_AND_MEMORY).await?;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let node = stats.node(StatsSelection::ALL).await?;
    let pods = stats.pods(StatsSelection::ALL).await?;
    let summary = serde_json::to_string_pretty(&Summary::new(&name, node, pods))?;
    writeln!(io::stdout(), "{summary}")?;
    Ok(())
}
