//! Settings of eviction, from fields and flags.

use std::time::Duration;

use windlass_eviction::{EvictionSettings, FileSystems, ThresholdFields, Thresholds};

use crate::kubelet::KubeletConfiguration;
use crate::load::Config;

/// Returns the fields that thresholds come from.
pub(crate) fn threshold_fields(kubelet: &KubeletConfiguration) -> ThresholdFields<'_> {
    let enforced = &kubelet.enforce_node_allocatable;
    ThresholdFields {
        hard: &kubelet.eviction_hard,
        soft: &kubelet.eviction_soft,
        soft_grace_period: &kubelet.eviction_soft_grace_period,
        minimum_reclaim: &kubelet.eviction_minimum_reclaim,
        enforces_pods: enforced.iter().any(|key| key == "pods"),
    }
}

impl Config {
    /// Returns the settings of eviction. The file systems of the container runtime are not known
    /// yet.
    pub fn eviction(&self) -> EvictionSettings {
        let kubelet = &self.kubelet;
        let max_grace = u64::try_from(kubelet.eviction_max_pod_grace_period).unwrap_or(0);
        EvictionSettings {
            // a loaded configuration is valid
            thresholds: Thresholds::parse(threshold_fields(kubelet)).unwrap_or_default(),
            file_systems: FileSystems::default(),
            pressure_transition_period: kubelet.eviction_pressure_transition_period.to_std(),
            max_pod_grace_period: Duration::from_secs(max_grace),
            memory_rule: self.flags.memory_eviction_rule,
        }
    }
}

/// Returns a warning for thresholds of containerfs, which follow another file system.
pub(crate) fn container_fs_warnings(
    kubelet: &KubeletConfiguration,
) -> impl Iterator<Item = (&'static str, String)> {
    let maps = [
        ("evictionHard", &kubelet.eviction_hard),
        ("evictionSoft", &kubelet.eviction_soft),
    ];
    maps.into_iter().filter_map(|(field, map)| {
        let signals = map
            .keys()
            .filter(|signal| signal.starts_with("containerfs."));
        let signals: Vec<&str> = signals.map(String::as_str).collect();
        let message = "ignored; nodefs, or imagefs if it holds the containers, applies instead";
        (!signals.is_empty()).then(|| (field, format!("{}: {message}", signals.join(", "))))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::flags::KubeletFlags;
    use crate::load::load;

    fn config(args: &[&str]) -> Config {
        let args = std::iter::once("windlass").chain(args.iter().copied());
        let flags = KubeletFlags::from_args(args.map(Into::into)).expect("flags");
        load(&flags).expect("valid")
    }

    #[test]
    fn default_thresholds_are_those_of_upstream() {
        let settings = config(&[]).eviction();
        assert_eq!(
            settings.thresholds.to_string(),
            "memory.available<100Mi, allocatableMemory.available<100Mi, nodefs.available<10%, \
             nodefs.inodesFree<5%, imagefs.available<15%, imagefs.inodesFree<5%"
        );
        assert_eq!(
            settings.pressure_transition_period,
            Duration::from_secs(300)
        );
        assert_eq!(settings.max_pod_grace_period, Duration::ZERO);
    }

    #[test]
    fn fields_and_flags_set_eviction() {
        let settings = config(&[
            "--eviction-hard=pid.available<10%",
            "--eviction-soft=memory.available<1Gi",
            "--eviction-soft-grace-period=memory.available=2m",
            "--eviction-max-pod-grace-period=30",
            "--eviction-pressure-transition-period=10s",
            "--memory-eviction-rule=upstream",
        ])
        .eviction();
        assert_eq!(
            settings.thresholds.to_string(),
            "pid.available<10%, memory.available<1Gi for 2m0s"
        );
        assert_eq!(settings.max_pod_grace_period, Duration::from_secs(30));
        assert_eq!(settings.pressure_transition_period, Duration::from_secs(10));
        assert_eq!(settings.memory_rule.to_string(), "upstream");
    }

    #[test]
    fn containerfs_thresholds_are_ignored_with_warning() {
        let config = config(&["--eviction-hard=containerfs.available<10%,nodefs.available<5%"]);
        let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "--eviction-hard: evictionHard: containerfs.available: ignored; nodefs, or imagefs if \
              it holds the containers, applies instead"
            ]
        );
    }
}
