//! Families of volumes.

use prometheus::{Counter, CounterVec, GaugeVec, HistogramVec};

use crate::{Registrar, default_buckets};

/// Handles to the volume families. Clones share them.
#[derive(Clone, Debug)]
pub struct VolumeMetrics {
    /// `storage_operation_duration_seconds{volume_plugin,operation_name,status,migrated}`.
    operation_duration: HistogramVec,
    /// `volume_operation_total_seconds{plugin_name,operation_name}`: including waiting times.
    total_duration: HistogramVec,
    /// `volume_manager_total_volumes{plugin_name,state}`.
    total: GaugeVec,
    /// `reconstruct_volume_operations_total`.
    pub reconstructed: Counter,
    /// `reconstruct_volume_operations_errors_total`.
    pub reconstruct_errors: Counter,
    /// `kubelet_evictions{eviction_signal}`.
    pub evictions: CounterVec,
    /// `kubelet_volume_metric_collection_duration_seconds{metric_source}`.
    pub collection_duration: HistogramVec,
    /// `kubelet_podcertificate_states{signer_name,state}`.
    pod_certificates: GaugeVec,
    /// `kubelet_volume_stats_…{namespace,persistentvolumeclaim}`, in the order of [`PvcStats`].
    pvcs: [GaugeVec; 6],
}

/// Usage of the volume of a PVC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PvcStats {
    /// Namespace of the PVC.
    pub namespace: String,
    /// Name of the PVC.
    pub pvc: String,
    /// Bytes: capacity, available, used; inodes: total, free, used.
    pub values: [u64; 6],
}

/// Desired or actual state of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeWorld {
    /// Desired by a pod.
    Desired,
    /// Set up.
    Actual,
}

impl VolumeMetrics {
    pub(crate) fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        let pvc_family = |name: &str, help: &str| {
            let name = format!("kubelet_volume_stats_{name}");
            r.gauges(&name, help, &["namespace", "persistentvolumeclaim"])
        };
        Ok(Self {
            operation_duration: r.histograms(
                "storage_operation_duration_seconds",
                "Duration in seconds of a volume operation.",
                operation_buckets(),
                &["volume_plugin", "operation_name", "status", "migrated"],
            )?,
            total_duration: r.histograms(
                "volume_operation_total_seconds",
                "Duration in seconds of a volume operation, including waiting times.",
                operation_buckets(),
                &["plugin_name", "operation_name"],
            )?,
            total: r.gauges(
                "volume_manager_total_volumes",
                "Number of volumes, by plugin and state (desired or actual).",
                &["plugin_name", "state"],
            )?,
            reconstructed: r.counter(
                "reconstruct_volume_operations_total",
                "Number of volumes reconstructed at agent start.",
            )?,
            reconstruct_errors: r.counter(
                "reconstruct_volume_operations_errors_total",
                "Number of volume reconstruction errors at agent start.",
            )?,
            evictions: r.counters(
                "kubelet_evictions",
                "Number of evicted pods, by signal.",
                &["eviction_signal"],
            )?,
            collection_duration: r.histograms(
                "kubelet_volume_metric_collection_duration_seconds",
                "Duration in seconds of collecting the metrics of a volume, by source.",
                default_buckets(),
                &["metric_source"],
            )?,
            pod_certificates: r.gauges(
                "kubelet_podcertificate_states",
                "Number of pod certificates in volumes, by signer and state.",
                &["signer_name", "state"],
            )?,
            pvcs: [
                pvc_family("capacity_bytes", "Capacity in bytes of the volume.")?,
                pvc_family("available_bytes", "Available bytes of the volume.")?,
                pvc_family("used_bytes", "Used bytes of the volume.")?,
                pvc_family("inodes", "Number of inodes of the volume.")?,
                pvc_family("inodes_free", "Number of free inodes of the volume.")?,
                pvc_family("inodes_used", "Number of used inodes of the volume.")?,
            ],
        })
    }

    /// Records an operation with upstream labels; `migrated` is always false.
    pub fn observe_operation(&self, plugin: &str, operation: &str, seconds: f64, failed: bool) {
        let status = if failed { "fail-unknown" } else { "success" };
        self.operation_duration
            .with_label_values(&[plugin, operation, status, "false"])
            .observe(seconds);
    }

    /// Records the time from the request of a volume to its mount.
    pub fn observe_overall_mount(&self, plugin: &str, seconds: f64) {
        self.total_duration
            .with_label_values(&[plugin, "overall_volume_mount"])
            .observe(seconds);
    }

    /// Replaces the usage of all PVCs.
    pub fn set_pvcs(&self, pvcs: &[PvcStats]) {
        for family in &self.pvcs {
            family.reset();
        }
        for pvc in pvcs {
            for (family, value) in self.pvcs.iter().zip(pvc.values) {
                family
                    .with_label_values(&[&pvc.namespace, &pvc.pvc])
                    .set(value as f64);
            }
        }
    }

    /// Replaces the certificate counts, given signer and state of each.
    pub fn set_pod_certificates<'a>(&self, all: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.pod_certificates.reset();
        for (signer, state) in all {
            let labels = [signer, state];
            self.pod_certificates.with_label_values(&labels).inc();
        }
    }

    /// Replaces the volume counts by plugin.
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

/// Upstream buckets of both families.
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
    fn operations_have_upstream_labels() {
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
        volumes.observe_overall_mount("kubernetes.io/nfs", 0.2);
        let expected = "volume_operation_total_seconds_count{operation_name=\"overall_volume_mount\",\
             plugin_name=\"kubernetes.io/nfs\"} 1";
        let found = lines(&metrics, "volume_operation_total_seconds_count");
        assert_eq!(found, [expected]);
    }

    #[test]
    fn removed_pvc_has_no_series() {
        let metrics = Metrics::new().expect("families");
        let stats = |pvc: &str| PvcStats {
            namespace: "default".into(),
            pvc: pvc.into(),
            values: [100, 60, 40, 10, 7, 3],
        };
        metrics.volumes.set_pvcs(&[stats("a"), stats("b")]);
        metrics.volumes.set_pvcs(&[stats("b")]);
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
    fn volumes_are_counted_by_plugin_and_state() {
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
