//! Eviction: thresholds of the configuration, readings of this host.

use std::sync::Arc;

use windlass_config::Config;
use windlass_cri::RuntimeStats;
use windlass_eviction_manager::{HostFigures, HostFiguresConfig, HostTriggers, TriggerPaths};
use windlass_stats::KernelRoots;
use windlass_types::Clock;

use crate::wiring::EvictionParts;

/// Builds the parts of the eviction manager; `images` reports the file systems of the runtime.
pub(super) fn eviction_parts(
    config: &Config,
    images: Arc<dyn RuntimeStats>,
    clock: Arc<dyn Clock>,
) -> EvictionParts {
    let kubelet = &config.kubelet;
    let roots = KernelRoots::default();
    EvictionParts {
        settings: config.eviction(),
        figures: Arc::new(HostFigures::new(HostFiguresConfig {
            roots: roots.clone(),
            cgroup_root: kubelet.cgroup_root.clone(),
            root_dir: config.flags.root_dir.clone(),
            split_images: config.gates.enabled("KubeletSeparateDiskGC"),
            images,
            clock,
        })),
        triggers: Arc::new(HostTriggers::new(TriggerPaths {
            roots,
            cgroup_root: kubelet.cgroup_root.clone(),
        })),
        reclaimer: None,
        disk: None,
    }
}
