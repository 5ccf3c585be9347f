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

/// Returns warnings, with their field, for thresholds without effect.
pub(crate) fn warnings(kubelet: &KubeletConfiguration) -> Vec<(&'static str, String)> {
    let maps = [
        ("evictionHard", &kubelet.eviction_hard),
        ("evictionSoft", &kubelet.eviction_soft),
    ];
    let mut warnings: Vec<(&'static str, String)> = Vec::new();
    for (field, map) in maps {
        let signals = map.keys().filter(|name| name.starts_with("containerfs."));
        let ignored = signals.map(|signal| {
            let message = "ignored; nodefs applies, or imagefs if it holds the containers";
            (field, format!("{signal}: {message}"))
        });
        warnings.extend(ignored);
    }
    let thresholds = Thresholds::parse(threshold_fields(kubelet)).unwrap_or_default();
    warnings.extend(thresholds.unreachable().map(|(soft, hard)| {
        let (signal, soft, hard) = (soft.signal, soft.value, hard.value);
        let message = format!("{signal}: no effect; {soft} is not above {hard} of evictionHard");
        ("evictionSoft", message)
    }));
    warnings
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
    fn thresholds_without_effect_are_warnings() {
        let config = config(&[
            "--eviction-hard=containerfs.available<10%,nodefs.available<5%,pid.available<100",
            "--eviction-soft=pid.available<50,nodefs.available<6%",
            "--eviction-soft-grace-period=pid.available=1m,nodefs.available=1m",
        ]);
        let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "--eviction-hard: evictionHard: containerfs.available: ignored; nodefs applies, or \
                 imagefs if it holds the containers",
                "--eviction-soft: evictionSoft: pid.available: no effect; 50 is not above 100 of \
                 evictionHard",
            ]
        );
    }
}
