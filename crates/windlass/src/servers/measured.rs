//! Stats of the node, combined with the agent's pods and volume usage.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass::wiring::Agent;
use windlass_actors::StatusCache;
use windlass_config::Config;
use windlass_cri::{CriClient, TrackedStats};
use windlass_pod_inputs::paths::NodePaths;
use windlass_stats::pods::{RunningPod, RunningPods, VolumeStatsEntry, VolumeStatsProvider};
use windlass_stats::usage::FsUsage;
use windlass_stats::{HostStats, HostStatsConfig, KernelRoots, SystemCgroups};
use windlass_status::{PodStatusStore, current_entry};
use windlass_types::{Clock, ObservedPod, PodExt, PodUid};
use windlass_volume_manager::VolumeUsages;

/// Creates the stats source of the node API.
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
    let watched = |client| Arc::new(TrackedStats::new(client, agent.hung_calls.clone()));
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
            status_store: agent.status_store.clone(),
        }),
        volumes: Arc::new(AgentVolumes(agent.volume_usages.clone())),
        runtime: watched(runtime),
        images: watched(images),
        clock,
    })
}

/// Observed pods of the PLEG cache with their specs.
#[derive(Debug)]
struct AgentPods {
    cache: StatusCache,
    status_store: PodStatusStore,
}

impl RunningPods for AgentPods {
    fn running_pods(&self) -> Vec<RunningPod> {
        let observed = self.cache.all();
        let selected = select_by_name(&observed, |namespace, name| {
            current_entry(&self.status_store.find(namespace, name)).map(|entry| entry.pod.uid())
        });
        let pods = observed.into_iter().map(|observed| {
            let entry = self.status_store.get(&observed.uid);
            RunningPod {
                present: selected.contains(&observed.uid),
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

/// Selects among running pods with the same full name the one that `current` returns, else the
/// first.
fn select_by_name(
    observed: &[Arc<ObservedPod>],
    current: impl Fn(&str, &str) -> Option<PodUid>,
) -> HashSet<PodUid> {
    let mut of_name: HashMap<(&str, &str), Vec<&PodUid>> = HashMap::new();
    for pod in observed {
        if pod.newest_sandbox().is_some_and(|sandbox| sandbox.ready) {
            let name = (pod.namespace.as_str(), pod.name.as_str());
            of_name.entry(name).or_default().push(&pod.uid);
        }
    }
    let selected = of_name.into_iter().filter_map(|((namespace, name), uids)| {
        let known = match uids.len() {
            1 => None,
            _ => current(namespace, name).filter(|uid| uids.contains(&uid)),
        };
        known.or_else(|| uids.first().map(|uid| (*uid).clone()))
    });
    selected.collect()
}

/// Volume usage as measured by the volume manager.
#[derive(Debug)]
struct AgentVolumes(VolumeUsages);

#[async_trait]
impl VolumeStatsProvider for AgentVolumes {
    async fn of_pod(&self, uid: &PodUid, max_age: Duration) -> Vec<VolumeStatsEntry> {
        let volumes = self.0.stats(uid, max_age).await.into_iter();
        let figures = volumes.map(|volume| VolumeStatsEntry {
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
            // volume conditions are not requested
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
    fn one_running_pod_per_full_name_is_selected() {
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
        fn check(pods: &[Arc<ObservedPod>], current: Option<&str>, expected: &[&str]) {
            let selected = select_by_name(pods, |_, _| current.map(PodUid::from));
            let mut selected: Vec<&str> = selected.iter().map(PodUid::as_str).collect();
            selected.sort_unstable();
            assert_eq!(selected, expected);
        }
        let (old, new) = (pod("u1", "web", true), pod("u2", "web", true));
        let (ended, other) = (pod("u0", "web", false), pod("u3", "db", true));
        let both = [ended, old.clone(), new, other];
        check(&both, Some("u2"), &["u2", "u3"]);
        check(&both, Some("u1"), &["u1", "u3"]);
        // the current pod has no sandbox yet, or both pods are unknown
        check(&both, Some("u9"), &["u1", "u3"]);
        check(&both, None, &["u1", "u3"]);
        // an orphaned pod
        check(&[old], Some("u9"), &["u1"]);
    }
}
