//! Families of pod workers.

use prometheus::{Counter, CounterVec, Gauge, Histogram, HistogramVec};

use crate::{Registrar, default_buckets, exponential};

/// Handles to the families. Clones share them.
#[derive(Clone, Debug)]
pub struct WorkerMetrics {
    /// `kubelet_pod_worker_duration_seconds{operation_type}`.
    pub sync_duration: HistogramVec,
    /// `kubelet_pod_worker_start_duration_seconds`: seen to worker started.
    pub start_duration: Histogram,
    /// `kubelet_pod_start_duration_seconds`: seen to running.
    pub pod_start_duration: Histogram,
    /// `kubelet_terminated_containers_total{container_type,exit_code,reason}`.
    pub terminated_containers: CounterVec,
    /// `kubelet_orphaned_runtime_pods_total`.
    pub orphaned_runtime_pods: Counter,
    /// `kubelet_restarted_pods_total{static}`: pods re-added with the same UID.
    pub restarted_pods: CounterVec,
    /// `kubelet_containers_per_pod_count`: app containers of each started pod.
    pub containers_per_pod: Histogram,
    /// `windlass_start_slots_in_use`: start slots in use.
    pub start_slots_in_use: Gauge,
}

impl WorkerMetrics {
    /// Creates and registers the families.
    ///
    /// # Errors
    /// A family of the same name is registered.
    pub fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            sync_duration: r.histograms(
                "kubelet_pod_worker_duration_seconds",
                "Duration in seconds of a pod sync, by operation type.",
                default_buckets(),
                &["operation_type"],
            )?,
            start_duration: r.histogram(
                "kubelet_pod_worker_start_duration_seconds",
                "Duration in seconds from receiving a pod to starting its worker.",
                default_buckets(),
            )?,
            pod_start_duration: r.histogram(
                "kubelet_pod_start_duration_seconds",
                "Duration in seconds from receiving a pod to running all its containers.",
                vec![
                    0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0,
                    60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0,
                    2700.0, 3600.0,
                ],
            )?,
            terminated_containers: r.counters(
                "kubelet_terminated_containers_total",
                "Number of terminated containers.",
                &["container_type", "exit_code", "reason"],
            )?,
            orphaned_runtime_pods: r.counter(
                "kubelet_orphaned_runtime_pods_total",
                "Number of orphaned pods found in the runtime.",
            )?,
            restarted_pods: r.counters(
                "kubelet_restarted_pods_total",
                "Number of pods removed and added again with the same UID.",
                &["static"],
            )?,
            containers_per_pod: r.histogram(
                "kubelet_containers_per_pod_count",
                "Number of containers per started pod.",
                exponential(1.0, 2.0, 5),
            )?,
            start_slots_in_use: r.gauge(
                "windlass_start_slots_in_use",
                "Number of start slots in use.",
            )?,
        })
    }
}
