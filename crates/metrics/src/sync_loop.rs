//! Families of the sync loop: admission, housekeeping and numbers of pods.

use prometheus::{CounterVec, Gauge, GaugeVec};

use crate::Registrar;

/// Handles to the families. Clones share them.
#[derive(Clone, Debug)]
pub struct SyncLoopMetrics {
    /// `windlass_sync_loop_events_total{cause}`.
    pub events: CounterVec,
    /// `kubelet_admission_rejections_total{reason}`.
    pub admission_rejections: CounterVec,
    /// `kubelet_orphan_pod_cleaned_volumes`.
    pub orphan_pods_cleaned: Gauge,
    /// `kubelet_orphan_pod_cleaned_volumes_errors`.
    pub orphan_pods_not_cleaned: Gauge,
    /// `kubelet_running_pods`.
    pub running_pods: Gauge,
    /// `kubelet_running_containers{container_state}`.
    pub running_containers: GaugeVec,
    /// `kubelet_desired_pods{static}`.
    pub desired_pods: GaugeVec,
    /// `kubelet_working_pods{lifecycle,config,static}`.
    pub working_pods: GaugeVec,
    /// `kubelet_active_pods{static}`: pods that count for admission.
    pub active_pods: GaugeVec,
}

impl SyncLoopMetrics {
    /// Creates and registers the families.
    ///
    /// # Errors
    /// A family of the same name is registered.
    pub fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            events: r.counters("windlass_sync_loop_events_total", "Number of SyncLoop iterations, by cause.", &["cause"])?,
            admission_rejections: r.counters("kubelet_admission_rejections_total", "Number of pods rejected by admission, by reason.", &["reason"])?,
            orphan_pods_cleaned: r.gauge("kubelet_orphan_pod_cleaned_volumes", "Number of orphaned pods whose directories the last housekeeping round removed.")?,
            orphan_pods_not_cleaned: r.gauge("kubelet_orphan_pod_cleaned_volumes_errors", "Number of orphaned pods whose directories the last housekeeping round failed to remove.")?,
            running_pods: r.gauge("kubelet_running_pods", "Number of pods with a running sandbox.")?,
            running_containers: r.gauges("kubelet_running_containers", "Number of containers, by state.", &["container_state"])?,
            desired_pods: r.gauges("kubelet_desired_pods", "Number of desired pods, by whether the pod is static.", &["static"])?,
            working_pods: r.gauges("kubelet_working_pods", "Number of pods with a worker, by lifecycle, config and whether the pod is static.", &["lifecycle", "config", "static"])?,
            active_pods: r.gauges("kubelet_active_pods", "Number of pods that count for admission.", &["static"])?,
        })
    }
}
