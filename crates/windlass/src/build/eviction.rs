//! Eviction: thresholds of the configuration, readings of this host.

use std::sync::Arc;
use std::time::Duration;

use windlass_config::{Config, KubeletConfiguration};
use windlass_cri::RuntimeStats;
use windlass_eviction::{EvictionSettings, ThresholdError, ThresholdFields, Thresholds};
use windlass_eviction_manager::{HostFigures, HostFiguresConfig, HostTriggers, TriggerPaths};
use windlass_stats::KernelRoots;
use windlass_types::Clock;

use crate::wiring::EvictionParts;

/// Builds the parts of the eviction manager; `images` reports the file systems of the runtime.
///
/// # Errors
/// The thresholds violate a rule; the validation of the configuration reports them before.
pub(super) fn eviction_parts(
    config: &Config,
    images: Arc<dyn RuntimeStats>,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<EvictionParts> {
    let kubelet = &config.kubelet;
    let roots = KernelRoots::default();
    let thresholds = thresholds(kubelet).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("{}", errors.join("; "))
    })?;
    let max_grace = u64::try_from(kubelet.eviction_max_pod_grace_period).unwrap_or(0);
    Ok(EvictionParts {
        settings: EvictionSettings {
            thresholds,
            pressure_transition_period: kubelet.eviction_pressure_transition_period.to_std(),
            max_pod_grace_period: Duration::from_secs(max_grace),
            ..EvictionSettings::default()
        },
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
    })
}

fn thresholds(kubelet: &KubeletConfiguration) -> Result<Thresholds, Vec<ThresholdError>> {
    let enforced = &kubelet.enforce_node_allocatable;
    Thresholds::parse(ThresholdFields {
        hard: &kubelet.eviction_hard,
        soft: &kubelet.eviction_soft,
        soft_grace_period: &kubelet.eviction_soft_grace_period,
        minimum_reclaim: &kubelet.eviction_minimum_reclaim,
        enforces_pods: enforced.iter().any(|name| name == "pods"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_thresholds_are_those_of_upstream() {
        let thresholds = thresholds(&KubeletConfiguration::default()).expect("valid");
        assert_eq!(
            thresholds.to_string(),
            "memory.available<100Mi, allocatableMemory.available<100Mi, nodefs.available<10%, \
             nodefs.inodesFree<5%, imagefs.available<15%, imagefs.inodesFree<5%"
        );
    }
}
