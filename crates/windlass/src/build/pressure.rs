//! What acts when memory, disk or processes run out: settings, readings of this host.

use std::sync::Arc;

use windlass_config::Config;
use windlass_local_storage::HostDisk;
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_types::Clock;

use super::{RuntimeClients, eviction, images, oom};
use crate::wiring::{LocalStorageParts, PressureParts};

/// Builds the parts of eviction, image garbage collection, local storage and the OOM watcher.
pub(super) fn pressure_parts(
    config: &Config,
    clients: &RuntimeClients,
    node: &NodeFacts,
    clock: &Arc<dyn Clock>,
) -> PressureParts {
    let kubelet = &config.kubelet;
    let image_stats = Arc::clone(&clients.images) as _;
    PressureParts {
        local_storage: LocalStorageParts {
            enforce_limits: kubelet.local_storage_capacity_isolation,
            runtime: Arc::clone(&clients.runtime) as _,
            images: Arc::clone(&clients.images) as _,
            disk: Arc::new(HostDisk::new(node.paths.clone())),
        },
        image_gc: images::image_gc_parts(config, clients),
        eviction: eviction::eviction_parts(config, image_stats, Arc::clone(clock)),
        oom_source: Some(oom::oom_source(&kubelet.cgroup_root)),
    }
}
