//! How firmly upstream stands by a family. As everything of its component-base does, a family's help
//! begins with that: dashboards and linters of metrics read it there.

use std::borrow::Cow;

/// Upstream's word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// It may change or go with any release.
    Alpha,
    /// Its name and type stay, labels may be added.
    Beta,
    /// Nothing of it changes.
    Stable,
    /// Not meant for users.
    Internal,
}

/// Those that are not alpha.
const KNOWN: [(&str, Stability); 9] = [
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
    /// Of a family by its name. Upstream says nothing of those that its Go library makes
    /// (`process_…`), nor of what it has not (`windlass_…`).
    pub fn of(family: &str) -> Option<Self> {
        if family.starts_with("process_") || family.starts_with("windlass_") {
            return None;
        }
        let known = KNOWN.iter().find(|(name, _)| *name == family);
        Some(known.map_or(Self::Alpha, |(_, stability)| *stability))
    }

    /// `ALPHA`, …
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "STABLE",
            Self::Internal => "INTERNAL",
        }
    }
}

/// A family's help as it is shown.
pub(crate) fn shown_help<'a>(family: &str, help: &'a str) -> Cow<'a, str> {
    match Stability::of(family) {
        Some(stability) => format!("[{}] {help}", stability.as_str()).into(),
        None => help.into(),
    }
}

#[cfg(test)]
mod tests {
    use crate::Metrics;

    #[test]
    fn a_help_begins_with_what_upstream_calls_the_family() {
        let metrics = Metrics::new().expect("metrics");
        metrics.about.feature("NodeSwap", "", true);
        metrics.slis.observe("ping", true);
        let text = metrics.render().expect("text") + &metrics.slis.render().expect("text");
        for line in [
            "kubelet_running_pods [ALPHA] Pods ",
            "kubelet_pod_start_duration_seconds [ALPHA] Seconds ",
            "kubelet_image_volume_requested_total [BETA] Number ",
            "kubernetes_feature_enabled [BETA] This ",
            "kubernetes_healthcheck [STABLE] This ",
            "kubelet_first_network_pod_start_sli_duration_seconds [INTERNAL] Duration ",
            "process_start_time_seconds Unix ",
            "windlass_start_slots_in_use Pods ",
        ] {
            assert!(text.contains(&format!("# HELP {line}")), "{line} in {text}");
        }
    }
}
