//! What measures the node, joined to what the agent knows of pods and volumes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass::wiring::Agent;
use windlass_actors::StatusCache;
use windlass_config::Config;
use windlass_core::paths::NodePaths;
use windlass_cri::{CriClient, WatchedStats};
use windlass_stats::pods::{RunningPod, RunningPods, VolumeFigure, VolumeFigures};
use windlass_stats::usage::FsUsage;
use windlass_stats::{HostStats, HostStatsConfig, KernelRoots, SystemCgroups};
use windlass_status::PodBoard;
use windlass_types::{Clock, PodUid};
use windlass_volume_manager::VolumeUsages;

/// Measures this machine for the node's own API.
pub(super) fn host_stats(
    agent: &Agent,
    config: &Config,
    paths: NodePaths,
    runtime: Arc<CriClient>,
    images: Arc<CriClient>,
    clock: Arc<dyn Clock>,
) -> HostStats {
    let kubelet = &config.kubelet;
    let period = kubelet.volume_stats_agg_period.to_std();
    let watched = |client| Arc::new(WatchedStats::new(client, agent.hung_calls.clone()));
    HostStats::new(HostStatsConfig {
        roots: KernelRoots::default(),
        cgroup_root: kubelet.cgroup_root.clone(),
        system: SystemCgroups {
            kubelet: kubelet.kubelet_cgroups.clone(),
            runtime: config.flags.runtime_cgroups.clone().unwrap_or_default(),
            misc: kubelet.system_cgroups.clone(),
        },
        paths,
        volume_period: (!period.is_zero()).then_some(period),
        started_at: clock.now(),
        pods: Arc::new(AgentPods {
            cache: agent.pleg.cache.clone(),
            board: agent.board.clone(),
        }),
        volumes: Arc::new(AgentVolumes(agent.volume_usages.clone())),
        runtime: watched(runtime),
        images: watched(images),
        clock,
    })
}

/// What the PLEG saw last, with the pods it belongs to.
#[derive(Debug)]
struct AgentPods {
    cache: StatusCache,
    board: PodBoard,
}

impl RunningPods for AgentPods {
    fn running_pods(&self) -> Vec<RunningPod> {
        let observed = self.cache.all().into_iter();
        let pods = observed.map(|observed| {
            let entry = self.board.get(&observed.uid);
            RunningPod {
                started_at: entry
                    .as_ref()
                    .and_then(|entry| Some(entry.status.start_time.as_ref()?.0)),
                pod: entry.map(|entry| entry.pod),
                observed,
            }
        });
        pods.collect()
    }
}

/// What volumes hold, as the VolumeManager measured it.
#[derive(Debug)]
struct AgentVolumes(VolumeUsages);

#[async_trait]
impl VolumeFigures for AgentVolumes {
    async fn of_pod(&self, uid: &PodUid, max_age: Duration) -> Vec<VolumeFigure> {
        let volumes = self.0.stats(uid, max_age).await.into_iter();
        let figures = volumes.map(|volume| VolumeFigure {
            name: volume.volume,
            claim: volume.claim,
            fs: FsUsage {
                at: volume.at,
                device: None,
                capacity: Some(volume.stats.capacity),
                available: Some(volume.stats.available),
                used: Some(volume.stats.used),
                inodes: Some(volume.stats.inodes),
                inodes_free: Some(volume.stats.inodes_free),
                inodes_used: Some(volume.stats.inodes_used),
            },
            // a driver is asked how much a volume holds, not how it is
            abnormal: None,
        });
        figures.collect()
    }
}
