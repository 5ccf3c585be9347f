//! Families of version, feature gates and cgroup version.

families! {
    /// Families of version, feature gates and cgroup version. Clones share them.
    BuildInfoMetrics

    build_info: gauges("kubernetes_build_info",
        "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
        &[ "build_date", "compiler", "git_commit", "git_tree_state", "git_version", "go_version", "major", "minor", "platform", ]);
    features: gauges("kubernetes_feature_enabled",
        "This metric records the data about the stage and enablement of a k8s feature.",
        &["name", "stage"]);
    cgroup_version: gauges("kubelet_cgroup_version", "Cgroup version of the host.", &[]);
}

impl BuildInfoMetrics {
    /// Sets the kubelet version, such as `v1.36.2+windlass.0.1.0`.
    pub fn set_version(&self, version: &str) {
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

    /// Sets a gate with its stage (`ALPHA`, `BETA`, `DEPRECATED`, empty for GA).
    pub fn set_feature(&self, name: &str, stage: &str, enabled: bool) {
        let series = self.features.with_label_values(&[name, stage]);
        series.set(f64::from(u8::from(enabled)));
    }

    /// Sets the cgroup version, 1 or 2.
    pub fn set_cgroup_version(&self, version: u8) {
        let series = self.cgroup_version.with_label_values(&[] as &[&str]);
        series.set(f64::from(version));
    }
}

/// Returns the Go name of the architecture.
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
    fn build_info_families_are_rendered_once_set() {
        let metrics = Metrics::new().expect("metrics");
        let text = || metrics.render().expect("text");
        assert!(!text().contains("kubelet_cgroup_version"), "not set yet");
        metrics.build_info.set_version("v1.36.2+windlass.0.1.0");
        metrics.build_info.set_feature("NodeSwap", "", true);
        metrics.build_info.set_feature("PodsAPI", "ALPHA", false);
        metrics.build_info.set_cgroup_version(2);
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
