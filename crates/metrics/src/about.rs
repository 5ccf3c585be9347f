//! What this agent is: version, feature gates, the cgroups it found.

use prometheus::GaugeVec;

use crate::Registrar;

/// Handles to families that are set once. Cloning shares them.
#[derive(Clone, Debug)]
pub struct AboutMetrics {
    /// `kubernetes_build_info`, of whose labels those of Go are empty.
    build_info: GaugeVec,
    /// `kubernetes_feature_enabled{name,stage}`.
    features: GaugeVec,
    /// `kubelet_cgroup_version`, without labels: absent until it is set.
    cgroup_version: GaugeVec,
}

impl AboutMetrics {
    pub(crate) fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            build_info: r.gauges(
                "kubernetes_build_info",
                "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
                &[
                    "build_date",
                    "compiler",
                    "git_commit",
                    "git_tree_state",
                    "git_version",
                    "go_version",
                    "major",
                    "minor",
                    "platform",
                ],
            )?,
            features: r.gauges(
                "kubernetes_feature_enabled",
                "This metric records the data about the stage and enablement of a k8s feature.",
                &["name", "stage"],
            )?,
            cgroup_version: r.gauges(
                "kubelet_cgroup_version",
                "cgroup version on the hosts.",
                &[],
            )?,
        })
    }

    /// `version` as the node calls itself, such as `v1.36.2+windlass.0.1.0`.
    pub fn version(&self, version: &str) {
        let mut numbers = version.trim_start_matches('v').split('.');
        let (major, minor) = (numbers.next(), numbers.next());
        let platform = format!("{}/{}", std::env::consts::OS, go_arch());
        let labels = [
            "",
            "rustc",
            "",
            "",
            version,
            "",
            major.unwrap_or_default(),
            minor.unwrap_or_default(),
            &platform,
        ];
        self.build_info.with_label_values(&labels).set(1.0);
    }

    /// A gate of that stage (`ALPHA`, `BETA`, `DEPRECATED`, empty once it is GA).
    pub fn feature(&self, name: &str, stage: &str, enabled: bool) {
        let series = self.features.with_label_values(&[name, stage]);
        series.set(f64::from(u8::from(enabled)));
    }

    /// 1 or 2.
    pub fn cgroup_version(&self, version: u8) {
        let series = self.cgroup_version.with_label_values(&[] as &[&str]);
        series.set(f64::from(version));
    }
}

/// Go's name of the architecture.
fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use crate::Metrics;

    #[test]
    fn an_agent_says_what_it_is() {
        let metrics = Metrics::new().expect("metrics");
        let text = || metrics.render().expect("text");
        assert!(!text().contains("kubelet_cgroup_version"), "not known yet");
        metrics.about.version("v1.36.2+windlass.0.1.0");
        metrics.about.feature("NodeSwap", "", true);
        metrics.about.feature("PodsAPI", "ALPHA", false);
        metrics.about.cgroup_version(2);
        for line in [
            "git_version=\"v1.36.2+windlass.0.1.0\",go_version=\"\",major=\"1\",minor=\"36\",platform=\"linux/",
            "kubernetes_feature_enabled{name=\"NodeSwap\",stage=\"\"} 1\n",
            "kubernetes_feature_enabled{name=\"PodsAPI\",stage=\"ALPHA\"} 0\n",
            "\nkubelet_cgroup_version 2\n",
        ] {
            assert!(text().contains(line), "{line} in {}", text());
        }
    }
}
