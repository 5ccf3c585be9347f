//! Upstream stability levels of families. HELP begins with the level, as in component-base.

use std::borrow::Cow;

/// Upstream stability level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// May change or be removed in any release.
    Alpha,
    /// Name and type are stable, labels may be added.
    Beta,
    /// Does not change.
    Stable,
    /// Not meant for users.
    Internal,
}

/// Families that are not alpha.
const LEVELS: [(&str, Stability); 9] = [
    (
        "kubelet_first_network_pod_start_sli_duration_seconds",
        Stability::Internal,
    ),
    ("kubelet_image_volume_mounted_errors_total", Stability::Beta),
    (
        "kubelet_image_volume_mounted_succeed_total",
        Stability::Beta,
    ),
    ("kubelet_image_volume_requested_total", Stability::Beta),
    ("kubernetes_build_info", Stability::Beta),
    ("kubernetes_feature_enabled", Stability::Beta),
    ("kubernetes_healthcheck", Stability::Stable),
    ("kubernetes_healthchecks_total", Stability::Stable),
    ("prober_probe_total", Stability::Beta),
];

impl Stability {
    /// Returns the level of a family; `process_*` and `windlass_*` have none.
    pub fn for_family(family: &str) -> Option<Self> {
        if family.starts_with("process_") || family.starts_with("windlass_") {
            return None;
        }
        let known = LEVELS.iter().find(|(name, _)| *name == family);
        Some(known.map_or(Self::Alpha, |(_, stability)| *stability))
    }

    /// Returns `ALPHA`, ….
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "STABLE",
            Self::Internal => "INTERNAL",
        }
    }
}

/// Prefixes a HELP text with the stability level.
pub(crate) fn help_with_stability<'a>(family: &str, help: &'a str) -> Cow<'a, str> {
    match Stability::for_family(family) {
        Some(stability) => format!("[{}] {help}", stability.as_str()).into(),
        None => help.into(),
    }
}

#[cfg(test)]
mod tests {
    use crate::Metrics;

    #[test]
    fn help_begins_with_stability_level() {
        let metrics = Metrics::new().expect("metrics");
        metrics.build_info.set_feature("NodeSwap", "", true);
        metrics.slis.observe("ping", true);
        let text = metrics.render().expect("text") + &metrics.slis.render().expect("text");
        for line in [
            "kubelet_running_pods [ALPHA] Number ",
            "kubelet_pod_start_duration_seconds [ALPHA] Duration ",
            "kubelet_image_volume_requested_total [BETA] Number ",
            "kubernetes_feature_enabled [BETA] This ",
            "kubernetes_healthcheck [STABLE] This ",
            "kubelet_first_network_pod_start_sli_duration_seconds [INTERNAL] Duration ",
            "process_start_time_seconds Unix ",
            "windlass_start_slots_in_use Number ",
        ] {
            assert!(text.contains(&format!("# HELP {line}")), "{line} in {text}");
        }
    }
}
