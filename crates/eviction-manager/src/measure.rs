//! Measures the pods that may be evicted, and reclaims on the node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use windlass_actors::StatusCache;
use windlass_eviction::{EVICTED, NodeReclaim, PodFigures, PodUsage, Resource};
use windlass_status::{PodStatusEntry, PodStatusStore};
use windlass_types::view::PodWorkerState;
use windlass_types::{ObservedPod, Phase, PodExt, PodUid, SharedPod};

use crate::ports::{NodeFigures, NodeReclaimer, PodDiskMeter};

/// Time for the measurement of all pods; those that are late count as not measured. Disk usage
/// takes 3 s at most, its parts concurrently, and cgroups 0.5 s.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for one kind of reclaim: two image removals that take 30 s each, or hundreds of usual ones.
/// What is not removed in this time is removed later.
const RECLAIM_TIMEOUT: Duration = Duration::from_secs(60);

/// A pod that may be evicted.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) pod: SharedPod,
    /// Already evicted, here, for local storage, or by a previous agent run.
    pub(crate) is_evicted: bool,
}

/// Returns the active pods: not terminal, or evicted and not ended.
pub(crate) fn candidates(store: &PodStatusStore, evicted: &BTreeSet<PodUid>) -> Vec<Candidate> {
    let entries = store.snapshot().into_iter();
    let candidates = entries.filter_map(|entry| candidate(entry, evicted));
    candidates.collect()
}

fn candidate(entry: PodStatusEntry, evicted: &BTreeSet<PodUid>) -> Option<Candidate> {
    if entry.worker_state == PodWorkerState::TerminatedPod {
        return None;
    }
    let is_evicted =
        entry.status.reason.as_deref() == Some(EVICTED) || evicted.contains(&entry.pod.uid());
    if !is_evicted && Phase::is_terminal_in(&entry.status) {
        return None;
    }
    Some(Candidate {
        pod: entry.pod,
        is_evicted,
    })
}

/// Sources of the measurements.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    pub(crate) figures: Arc<dyn NodeFigures>,
    pub(crate) disk: Arc<dyn PodDiskMeter>,
    pub(crate) observed: StatusCache,
}

impl Meter {
    /// Measures what pods use of a resource.
    pub(crate) async fn measure(
        &self,
        candidates: Vec<Candidate>,
        resource: Resource,
    ) -> Vec<PodFigures> {
        let mut figures: Vec<PodFigures> = candidates
            .iter()
            .map(|candidate| PodFigures {
                is_evicted: candidate.is_evicted,
                ..PodFigures::from_pod(&candidate.pod)
            })
            .collect();
        let pods = candidates.into_iter().filter(|it| !it.is_evicted);
        let pods: Vec<SharedPod> = pods.map(|it| it.pod).collect();
        let measured = timeout(MEASURE_TIMEOUT, self.usages(pods, resource)).await;
        match measured {
            Ok(mut usages) => {
                for pod in &mut figures {
                    pod.usage = usages.remove(&pod.uid);
                }
            }
            Err(_) => tracing::warn!(%resource, "measuring pods timed out"),
        }
        figures
    }

    async fn usages(&self, pods: Vec<SharedPod>, resource: Resource) -> BTreeMap<PodUid, PodUsage> {
        match resource {
            Resource::Memory | Resource::Pids => {
                let observed = pods.iter().filter_map(|pod| self.observed.get(&pod.uid()));
                let observed: Vec<Arc<ObservedPod>> = observed.collect();
                self.figures.pods(observed).await
            }
            Resource::EphemeralStorage | Resource::Inodes => {
                let disks = self.disk.measure(pods).await.into_iter();
                let usages = disks.map(|(uid, disk)| {
                    let usage = PodUsage {
                        containers: disk.containers,
                        local_volumes: disk.local_volumes,
                        ..PodUsage::default()
                    };
                    (uid, usage)
                });
                usages.collect()
            }
        }
    }
}

/// Reclaims on the node, in order; failures and timeouts are logged.
pub(crate) async fn reclaim(reclaimer: &dyn NodeReclaimer, steps: &[NodeReclaim]) {
    for step in steps {
        let work = async {
            match step {
                NodeReclaim::DeadContainers => reclaimer.delete_dead_containers().await,
                NodeReclaim::UnusedImages => reclaimer.delete_unused_images().await,
            }
        };
        match timeout(RECLAIM_TIMEOUT, work).await {
            Ok(Ok(())) => tracing::info!(%step, "reclaimed on the node"),
            Ok(Err(error)) => tracing::warn!(%step, error, "reclaiming on the node failed"),
            Err(_) => tracing::warn!(%step, "reclaiming on the node timed out"),
        }
    }
}
