//! The eviction manager.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use windlass_actors::NodePressure;
use windlass_eviction::local_storage::PodDiskUsage;
use windlass_eviction::{ContainerUsage, EVICTED, EvictionRecord, EvictionStatus};
use windlass_eviction_manager::{EvictionManager, EvictionManagerDeps, PodDisk, PodDiskMeter};
use windlass_local_storage::LocalStorage;
use windlass_mailboxes::start_actor;
use windlass_store::{AdmittedPod, EvictionFile};
use windlass_types::{PodExt, PodUid, SharedPod};

use super::images::NodeReclaim;
use super::links::{Links, Shared};
use super::parts::EvictionParts;

/// Dependencies beyond what most actors hold.
pub(super) struct EvictionWiring {
    pub(super) local_storage: LocalStorage,
    pub(super) reclaim: NodeReclaim,
    pub(super) pressure: watch::Sender<NodePressure>,
    pub(super) file: Option<(EvictionFile, Vec<EvictionRecord>)>,
    pub(super) restored: Vec<(PodUid, Duration)>,
}

/// Returns the pods of the checkpoint whose eviction is in progress, with their grace periods.
pub(super) fn evicted(restored: &[AdmittedPod]) -> Vec<(PodUid, Duration)> {
    let pods = restored.iter().map(|admitted| &admitted.pod);
    let evicted = pods.filter(|pod| {
        let status = pod.status.as_ref();
        status.and_then(|status| status.reason.as_deref()) == Some(EVICTED)
    });
    let with_grace = evicted.map(|pod| {
        let grace = u64::try_from(pod.termination_grace_seconds());
        (pod.uid(), Duration::from_secs(grace.unwrap_or_default()))
    });
    with_grace.collect()
}

/// Starts the manager; returns what users are shown.
pub(super) fn spawn_eviction(
    parts: EvictionParts,
    wiring: EvictionWiring,
    shared: &Shared,
    links: &Links,
) -> watch::Receiver<Arc<EvictionStatus>> {
    let (sender, status) = watch::channel(Arc::default());
    let reclaimer = parts.reclaimer.unwrap_or_else(|| Arc::new(wiring.reclaim));
    start_actor(EvictionManager::new(EvictionManagerDeps {
        settings: parts.settings,
        figures: parts.figures,
        disk: parts
            .disk
            .unwrap_or_else(|| Arc::new(AgentDisk(wiring.local_storage))),
        reclaimer,
        triggers: parts.triggers,
        status_store: shared.status_store.clone(),
        observed: links.pleg.cache.clone(),
        terminations: links.terminations.clone(),
        pressure: wiring.pressure,
        file: wiring.file,
        restored: wiring.restored,
        status: sender,
        events: Arc::clone(&shared.events),
        clock: Arc::clone(&shared.clock),
        metrics: shared.metrics.clone(),
    }));
    status
}

/// Disk usage of the pods of this agent.
#[derive(Debug)]
struct AgentDisk(LocalStorage);

#[async_trait]
impl PodDiskMeter for AgentDisk {
    async fn measure(&self, pods: Vec<SharedPod>) -> BTreeMap<PodUid, PodDisk> {
        let usages = self.0.measure(&pods).await.into_iter();
        usages.map(|(uid, usage)| (uid, pod_disk(usage))).collect()
    }
}

fn pod_disk(usage: PodDiskUsage) -> PodDisk {
    let local_volumes = usage.local_volumes();
    let containers = usage.containers.into_iter();
    let containers = containers.map(|container| ContainerUsage {
        name: container.name,
        memory: None,
        writable_layer: container.writable_layer,
        logs: container.logs,
    });
    PodDisk {
        containers: containers.collect(),
        local_volumes,
    }
}
