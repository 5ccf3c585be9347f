//! The volume manager, the usage of volumes and the objects that volumes are made of.

use std::sync::Arc;

use tokio::sync::watch;
use windlass_actors::{NodeExpander, VolumeManagerMessage, VolumesInUse};
use windlass_csi::CsiObjects;
use windlass_mailboxes::{Mailbox, start_actor};
use windlass_objects::{ObjectCache, ObjectCacheDeps, keep_objects};
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_volume_manager::{
    InstrumentedVolumes, VolumeManager, VolumeManagerDeps, VolumeUsages, VolumeUsagesDeps,
};

use super::csi::driver_registrations;
use super::links::{Links, Shared};
use super::parts::{ObjectParts, VolumeParts};
use crate::cluster::ClusterParts;

/// Creates the cache of the objects that pods refer to, and keeps them if that is configured.
pub(super) fn object_cache(
    parts: ObjectParts,
    node: &Arc<NodeFacts>,
    cluster: Option<&ClusterParts>,
    shared: &Shared,
    links: &Links,
) -> Arc<ObjectCache> {
    let cache = Arc::new(ObjectCache::new(ObjectCacheDeps {
        clients: cluster.map(|it| it.clients.clone()),
        clock: Arc::clone(&shared.clock),
        events: Arc::clone(&shared.events),
        changed: links.objects_changed.clone(),
        node: Arc::clone(node),
        node_seen: links.node.clone(),
        metrics: shared.metrics.volumes.clone(),
        change_detection: parts.change_detection,
        csi: cluster.map(|it| Arc::clone(&it.csi) as Arc<dyn CsiObjects>),
        credential_dirs: parts.credential_dirs,
        kept: parts.kept,
    }));
    if let Some(cluster) = cluster {
        let client = cluster.clients.heartbeat.clone();
        keep_objects(Arc::clone(&cache), client, shared.shutdown.token());
    }
    cache
}

/// The volume manager's mailbox and the volumes in use that it publishes.
pub(super) type VolumeEnds = (
    Mailbox<VolumeManagerMessage>,
    watch::Sender<Option<VolumesInUse>>,
);

/// Starts the volume manager; returns the usage of volumes.
pub(super) fn spawn_volumes(
    parts: &VolumeParts,
    objects: &Arc<ObjectCache>,
    shared: &Shared,
    links: &Links,
    (mailbox, in_use): VolumeEnds,
) -> VolumeUsages {
    parts.plugins.set_event_recorder(Arc::clone(&shared.events));
    let usages = VolumeUsages::new(VolumeUsagesDeps {
        plugins: Arc::clone(&parts.plugins),
        clock: Arc::clone(&shared.clock),
        metrics: shared.metrics.clone(),
        hung: shared.hung_operations.clone(),
    });
    let plugins = InstrumentedVolumes::new(
        Arc::clone(&parts.plugins),
        usages.clone(),
        shared.metrics.volumes.clone(),
        shared.timelines.clone(),
        shared.hung_operations.clone(),
    );
    let deps = VolumeManagerDeps {
        plugins: Arc::new(plugins),
        clock: Arc::clone(&shared.clock),
        events: Arc::clone(&shared.events),
        expander: Arc::clone(objects) as Arc<dyn NodeExpander>,
        usages: usages.clone(),
        mounted: links.volumes.mounted.clone(),
        changed: links.volumes_changed.clone(),
        in_use,
        node: links.node.clone(),
        sources_ready: links.sources_ready.clone(),
        drivers: driver_registrations(&parts.csi_drivers),
        metrics: shared.metrics.clone(),
    };
    start_actor(VolumeManager::new(deps, mailbox));
    usages
}
