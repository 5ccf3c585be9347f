//! Local storage: disk usage of pods and its limits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_cri::{RuntimeStats, TrackedStats};
use windlass_eviction::DiskUsage;
use windlass_local_storage::{LocalStorage, LocalStorageDeps, LocalVolumes};
use windlass_types::PodUid;
use windlass_volume_manager::VolumeUsages;

use super::links::{Links, Shared};
use super::parts::LocalStorageParts;

/// Starts the checks of the limits, unless they are disabled; returns the disk usage of pods.
pub(super) fn spawn_local_storage(
    parts: LocalStorageParts,
    volumes: VolumeUsages,
    shared: &Shared,
    links: &Links,
) -> LocalStorage {
    let tracked =
        |stats| Arc::new(TrackedStats::new(stats, shared.hung.clone())) as Arc<dyn RuntimeStats>;
    let local_storage = LocalStorage::new(LocalStorageDeps {
        status_store: shared.status_store.clone(),
        observed: links.pleg.cache.clone(),
        runtime: tracked(parts.runtime),
        images: tracked(parts.images),
        disk: parts.disk,
        volumes: Arc::new(AgentVolumes(volumes)),
        terminations: links.terminations.clone(),
        events: Arc::clone(&shared.events),
        metrics: shared.metrics.clone(),
        cancel: shared.shutdown.token(),
    });
    if parts.enforce_limits {
        local_storage.enforce_limits();
    }
    local_storage
}

/// Usage of volumes as the volume manager measures it.
#[derive(Debug)]
struct AgentVolumes(VolumeUsages);

#[async_trait]
impl LocalVolumes for AgentVolumes {
    async fn usage(
        &self,
        uid: &PodUid,
        volumes: &[String],
        interval: Duration,
        wait: Duration,
    ) -> BTreeMap<String, DiskUsage> {
        let samples = self.0.recent(uid, volumes, interval, wait).await;
        let usages = samples.into_iter().map(|(name, stats)| {
            let usage = DiskUsage {
                bytes: stats.used,
                inodes: stats.inodes_used,
            };
            (name, usage)
        });
        usages.collect()
    }
}
