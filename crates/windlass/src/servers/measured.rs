//! What measures the node, joined to what the agent knows of pods and volumes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass::wiring::Agent;
use windlass_actors::StatusCache;
use windlass_config::Config;
use windlass_pod_inputs::paths::NodePaths;
use windlass_cri::{CriClient, WatchedStats};
use windlass_stats::pods::{RunningPod, RunningPods, VolumeFigure, VolumeFigures};
use windlass_stats::usage::FsUsage;
use windlass_stats::{HostStats, HostStatsConfig, KernelRoots, SystemCgroups};
use windlass_status::{PodStatusStore, current_entry};
use windlass_types::{Clock, ObservedPod, PodExt, PodUid};
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
    board: PodStatusStore,
}

impl RunningPods for AgentPods {
    fn running_pods(&self) -> Vec<RunningPod> {
        let observed = self.cache.all();
        let meant = meant(&observed, |namespace, name| {
            current_entry(&self.board.find(namespace, name)).map(|entry| entry.pod.uid())
        });
        let pods = observed.into_iter().map(|observed| {
            let entry = self.board.get(&observed.uid);
            RunningPod {
                present: meant.contains(&observed.uid),
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

/// Of the pods with one name that have a sandbox the one that `present` says, or the first if it is
/// none of them.
fn meant(
    observed: &[Arc<ObservedPod>],
    present: impl Fn(&str, &str) -> Option<PodUid>,
) -> HashSet<PodUid> {
    let mut of_name: HashMap<(&str, &str), Vec<&PodUid>> = HashMap::new();
    for pod in observed {
        if pod.newest_sandbox().is_some_and(|sandbox| sandbox.ready) {
            let name = (pod.namespace.as_str(), pod.name.as_str());
            of_name.entry(name).or_default().push(&pod.uid);
        }
    }
    let meant = of_name.into_iter().filter_map(|((namespace, name), uids)| {
        let known = match uids.len() {
            1 => None,
            _ => present(namespace, name).filter(|uid| uids.contains(&uid)),
        };
        known.or_else(|| uids.first().map(|uid| (*uid).clone()))
    });
    meant.collect()
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

#[cfg(test)]
mod tests {
    use windlass_types::{ObservedSandbox, SandboxId, Timestamp};

    use super::*;

    #[test]
    fn of_pods_with_one_name_that_run_one_is_meant() {
        let pod = |uid: &str, name: &str, ready: bool| {
            Arc::new(ObservedPod {
                uid: uid.into(),
                name: name.to_owned(),
                namespace: "default".to_owned(),
                sandboxes: vec![ObservedSandbox {
                    id: SandboxId::from(uid),
                    attempt: 0,
                    ready,
                    created_at: Timestamp::UNIX_EPOCH,
                    host_network: false,
                    ips: Vec::new(),
                }],
                ..ObservedPod::default()
            })
        };
        #[track_caller]
        fn check(pods: &[Arc<ObservedPod>], present: Option<&str>, expected: &[&str]) {
            let meant = meant(pods, |_, _| present.map(PodUid::from));
            let mut meant: Vec<&str> = meant.iter().map(PodUid::as_str).collect();
            meant.sort_unstable();
            assert_eq!(meant, expected);
        }
        let (old, new) = (pod("u1", "web", true), pod("u2", "web", true));
        let (ended, other) = (pod("u0", "web", false), pod("u3", "db", true));
        let both = [ended, old.clone(), new, other];
        check(&both, Some("u2"), &["u2", "u3"]);
        check(&both, Some("u1"), &["u1", "u3"]);
        // the one that is to run has nothing yet, or nobody knows the two
        check(&both, Some("u9"), &["u1", "u3"]);
        check(&both, None, &["u1", "u3"]);
        // an orphan
        check(&[old], Some("u9"), &["u1"]);
    }
}
