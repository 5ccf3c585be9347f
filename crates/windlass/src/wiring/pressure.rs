//! What keeps the node up when memory, disk or processes run out.

use std::sync::Arc;

use tokio::sync::watch;
use windlass_actors::NodePressure;
use windlass_eviction::EvictionStatus;
use windlass_runtime::PodRuntime;
use windlass_store::{ImageUseFile, ImageUses};
use windlass_volume_manager::VolumeUsages;

use super::eviction::spawn_eviction;
use super::images::{NodeReclaim, spawn_image_gc};
use super::links::{Links, Shared};
use super::local_storage::spawn_local_storage;
use super::oom::spawn_oom_watcher;
use super::parts::PressureParts;

/// Dependencies beyond what most actors hold.
pub(super) struct PressureWiring {
    pub(super) image_uses: Option<(ImageUseFile, ImageUses)>,
    pub(super) volumes: VolumeUsages,
    pub(super) runtime: PodRuntime,
    pub(super) observed: watch::Sender<NodePressure>,
}

/// What the actors measure and free.
pub(super) struct Pressure {
    pub(super) reclaim: NodeReclaim,
    pub(super) eviction: watch::Receiver<Arc<EvictionStatus>>,
}

/// Starts the limits of local storage, image garbage collection, eviction and the OOM watcher.
pub(super) fn spawn_pressure(
    parts: PressureParts,
    wiring: PressureWiring,
    shared: &Shared,
    links: &Links,
) -> Pressure {
    let runtime = &wiring.runtime;
    let local_storage = spawn_local_storage(parts.local_storage, wiring.volumes, shared, links);
    let reclaim = spawn_image_gc(parts.image_gc, wiring.image_uses, runtime, shared, links);
    let eviction = spawn_eviction(
        parts.eviction,
        local_storage,
        shared,
        links,
        &reclaim,
        wiring.observed,
    );
    if let Some(source) = parts.oom_source {
        spawn_oom_watcher(source, shared, links);
    }
    Pressure { reclaim, eviction }
}
