//! What keeps the node up when memory, disk or processes run out.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use windlass_actors::NodePressure;
use windlass_eviction::{EvictionRecord, EvictionStatus};
use windlass_runtime::PodRuntime;
use windlass_store::{EvictionFile, ImageUseFile, ImageUses};
use windlass_types::PodUid;
use windlass_volume_manager::VolumeUsages;

use super::eviction::{EvictionWiring, spawn_eviction};
use super::images::{NodeReclaim, spawn_image_gc};
use super::links::{Links, Shared};
use super::local_storage::spawn_local_storage;
use super::oom::spawn_oom_watcher;
use super::parts::PressureParts;

/// Dependencies beyond what most actors hold.
pub(super) struct PressureWiring {
    pub(super) image_uses: Option<(ImageUseFile, ImageUses)>,
    pub(super) evictions: Option<(EvictionFile, Vec<EvictionRecord>)>,
    /// Pods whose eviction the previous agent run began, with their grace periods.
    pub(super) evicted: Vec<(PodUid, Duration)>,
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
    let eviction = EvictionWiring {
        local_storage,
        reclaim: reclaim.clone(),
        pressure: wiring.observed,
        file: wiring.evictions,
        restored: wiring.evicted,
    };
    let eviction = spawn_eviction(parts.eviction, eviction, shared, links);
    if let Some(source) = parts.oom_source {
        spawn_oom_watcher(source, shared, links);
    }
    Pressure { reclaim, eviction }
}
