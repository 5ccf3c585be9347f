//! Families about volumes.

use prometheus::{Counter, CounterVec, GaugeVec, HistogramVec};

use crate::{Registrar, default_buckets};

/// Handles to the families about volumes. Cloning shares them.
#[derive(Clone, Debug)]
pub struct VolumeMetrics {
    /// `storage_operation_duration_seconds{volume_plugin,operation_name,status,migrated}`.
    operation_duration: HistogramVec,
    /// `volume_operation_total_seconds{plugin_name,operation_name}`: from the wish to its end, with all
    /// that was waited for.
    whole_duration: HistogramVec,
    /// `volume_manager_total_volumes{plugin_name,state}`.
    total: GaugeVec,
    /// `reconstruct_volume_operations_total`: volumes of an earlier life that were looked at.
    pub reconstructed: Counter,
    /// `reconstruct_volume_operations_errors_total`: those that could not be told.
    pub reconstruct_errors: Counter,
    /// `kubelet_evictions{eviction_signal}`.
    pub evictions: CounterVec,
    /// `kubelet_volume_metric_collection_duration_seconds{metric_source}`.
    pub measuring_duration: HistogramVec,
    /// `kubelet_podcertificate_states{signer_name,state}`.
    pod_certificates: GaugeVec,
    /// `kubelet_volume_stats_…{namespace,persistentvolumeclaim}`, in the order of [`ClaimStats`].
    claims: [GaugeVec; 6],
}

/// What is known of a claim's volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimStats {
    /// Namespace of the claim.
    pub namespace: String,
    /// Its name.
    pub claim: String,
    /// Bytes: capacity, available, used; inodes: all, free, used.
    pub values: [u64; 6],
}

/// Which of its two worlds a volume is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeWorld {
    /// Asked for.
    Desired,
    /// Set up.
    Actual,
}

impl VolumeMetrics {
    pub(crate) fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        let of_claim = |name: &str, help: &str| {
            let name = format!("kubelet_volume_stats_{name}");
            r.gauges(&name, help, &["namespace", "persistentvolumeclaim"])
        };
        Ok(Self {
            operation_duration: r.histograms(
                "storage_operation_duration_seconds",
                "Duration in seconds of one operation on a volume.",
                operation_buckets(),
                &["volume_plugin", "operation_name", "status", "migrated"],
            )?,
            whole_duration: r.histograms(
                "volume_operation_total_seconds",
                "Storage operation end to end duration in seconds",
                operation_buckets(),
                &["plugin_name", "operation_name"],
            )?,
            total: r.gauges(
                "volume_manager_total_volumes",
                "Volumes that pods ask for and have.",
                &["plugin_name", "state"],
            )?,
            reconstructed: r.counter(
                "reconstruct_volume_operations_total",
                "Volumes that an earlier life of the agent left and that were looked at.",
            )?,
            reconstruct_errors: r.counter(
                "reconstruct_volume_operations_errors_total",
                "Volumes of an earlier life that could not be made out.",
            )?,
            evictions: r.counters(
                "kubelet_evictions",
                "Cumulative number of pods evicted, by signal.",
                &["eviction_signal"],
            )?,
            measuring_duration: r.histograms(
                "kubelet_volume_metric_collection_duration_seconds",
                "Duration in seconds of measuring one volume, by how it was done.",
                default_buckets(),
                &["metric_source"],
            )?,
            pod_certificates: r.gauges(
                "kubelet_podcertificate_states",
                "Certificates that volumes show to pods, by signer and state.",
                &["signer_name", "state"],
            )?,
            claims: [
                of_claim("capacity_bytes", "Bytes that the volume has.")?,
                of_claim("available_bytes", "Bytes that are available in the volume.")?,
                of_claim("used_bytes", "Bytes that are used in the volume.")?,
                of_claim("inodes", "Inodes that the volume has.")?,
                of_claim("inodes_free", "Inodes that are free in the volume.")?,
                of_claim("inodes_used", "Inodes that are used in the volume.")?,
            ],
        })
    }

    /// Counts one operation in upstream's words; `migrated` is always false.
    pub fn observe_operation(&self, plugin: &str, operation: &str, seconds: f64, failed: bool) {
        let status = if failed { "fail-unknown" } else { "success" };
        self.operation_duration
            .with_label_values(&[plugin, operation, status, "false"])
            .observe(seconds);
    }

    /// A pod has a volume, so many seconds after it was asked for.
    pub fn observe_whole_mount(&self, plugin: &str, seconds: f64) {
        self.whole_duration
            .with_label_values(&[plugin, "overall_volume_mount"])
            .observe(seconds);
    }

    /// Replaces what is told of claims.
    pub fn set_claims(&self, claims: &[ClaimStats]) {
        for family in &self.claims {
            family.reset();
        }
        for claim in claims {
            for (family, value) in self.claims.iter().zip(claim.values) {
                family
                    .with_label_values(&[&claim.namespace, &claim.claim])
                    .set(value as f64);
            }
        }
    }

    /// Replaces the numbers of certificates; each is its signer and its state.
    pub fn set_pod_certificates<'a>(&self, all: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.pod_certificates.reset();
        for (signer, state) in all {
            let labels = [signer, state];
            self.pod_certificates.with_label_values(&labels).inc();
        }
    }

    /// Replaces the numbers of volumes by plugin.
    pub fn set_total<'a>(&self, volumes: impl IntoIterator<Item = (VolumeWorld, &'a str)>) {
        self.total.reset();
        for (world, plugin) in volumes {
            let state = match world {
                VolumeWorld::Desired => "desired_state_of_world",
                VolumeWorld::Actual => "actual_state_of_world",
            };
            self.total.with_label_values(&[plugin, state]).inc();
        }
    }
}

/// Upstream's, of both families.
fn operation_buckets() -> Vec<f64> {
    vec![
        0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metrics;

    fn lines(metrics: &Metrics, family: &str) -> Vec<String> {
        let text = metrics.render().expect("text");
        let lines = text.lines().filter(|line| line.starts_with(family));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn operations_are_counted_with_upstreams_labels() {
        let metrics = Metrics::new().expect("families");
        let volumes = &metrics.volumes;
        volumes.observe_operation("kubernetes.io/empty-dir", "volume_mount", 0.2, false);
        volumes.observe_operation("kubernetes.io/csi:d", "volume_unmount", 0.2, true);
        let expected = [
            "storage_operation_duration_seconds_count{migrated=\"false\",\
             operation_name=\"volume_mount\",status=\"success\",\
             volume_plugin=\"kubernetes.io/empty-dir\"} 1",
            "storage_operation_duration_seconds_count{migrated=\"false\",\
             operation_name=\"volume_unmount\",status=\"fail-unknown\",\
             volume_plugin=\"kubernetes.io/csi:d\"} 1",
        ];
        let mut found = lines(&metrics, "storage_operation_duration_seconds_count");
        found.sort();
        assert_eq!(found, expected);
        volumes.observe_whole_mount("kubernetes.io/nfs", 0.2);
        let expected = "volume_operation_total_seconds_count{operation_name=\"overall_volume_mount\",\
             plugin_name=\"kubernetes.io/nfs\"} 1";
        let found = lines(&metrics, "volume_operation_total_seconds_count");
        assert_eq!(found, [expected]);
    }

    #[test]
    fn a_claim_that_is_gone_is_told_no_more() {
        let metrics = Metrics::new().expect("families");
        let claim = |claim: &str| ClaimStats {
            namespace: "default".into(),
            claim: claim.into(),
            values: [100, 60, 40, 10, 7, 3],
        };
        metrics.volumes.set_claims(&[claim("a"), claim("b")]);
        metrics.volumes.set_claims(&[claim("b")]);
        let value = |name: &str, value: &str| {
            format!(
                "kubelet_volume_stats_{name}{{namespace=\"default\",persistentvolumeclaim=\"b\"}} \
                 {value}"
            )
        };
        let expected = [
            value("available_bytes", "60"),
            value("capacity_bytes", "100"),
            value("inodes", "10"),
            value("inodes_free", "7"),
            value("inodes_used", "3"),
            value("used_bytes", "40"),
        ];
        assert_eq!(lines(&metrics, "kubelet_volume_stats"), expected);
    }

    #[test]
    fn volumes_are_counted_by_plugin_and_world() {
        let metrics = Metrics::new().expect("families");
        let (desired, actual) = (VolumeWorld::Desired, VolumeWorld::Actual);
        let all = [
            (desired, "a"),
            (desired, "a"),
            (actual, "a"),
            (desired, "b"),
        ];
        metrics.volumes.set_total(all);
        metrics.volumes.set_total(all);
        let expected = [
            "volume_manager_total_volumes{plugin_name=\"a\",state=\"actual_state_of_world\"} 1",
            "volume_manager_total_volumes{plugin_name=\"a\",state=\"desired_state_of_world\"} 2",
            "volume_manager_total_volumes{plugin_name=\"b\",state=\"desired_state_of_world\"} 1",
        ];
        assert_eq!(lines(&metrics, "volume_manager_total_volumes"), expected);
    }
}
