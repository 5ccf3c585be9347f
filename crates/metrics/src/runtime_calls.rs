//! Families of calls to the container runtime.

use prometheus::{CounterVec, HistogramVec};

use crate::{Registrar, default_buckets, exponential};

/// Handles to the families. Clones share them.
#[derive(Clone, Debug)]
pub struct RuntimeCallMetrics {
    /// `kubelet_runtime_operations_total{operation_type}`.
    pub operations: CounterVec,
    /// `kubelet_runtime_operations_errors_total{operation_type}`.
    pub operation_errors: CounterVec,
    /// `kubelet_runtime_operations_duration_seconds{operation_type}`.
    pub operation_duration: HistogramVec,
    /// `kubelet_run_podsandbox_duration_seconds{runtime_handler}`.
    pub run_sandbox_duration: HistogramVec,
    /// `kubelet_run_podsandbox_errors_total{runtime_handler}`.
    pub run_sandbox_errors: CounterVec,
}

impl RuntimeCallMetrics {
    /// Creates and registers the families.
    ///
    /// # Errors
    /// A family of the same name is registered.
    pub fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            operations: r.counters(
                "kubelet_runtime_operations_total",
                "Number of runtime operations, by operation type.",
                &["operation_type"],
            )?,
            operation_errors: r.counters(
                "kubelet_runtime_operations_errors_total",
                "Number of runtime operation errors, by operation type.",
                &["operation_type"],
            )?,
            operation_duration: r.histograms(
                "kubelet_runtime_operations_duration_seconds",
                "Duration in seconds of runtime operations, by operation type.",
                runtime_buckets(),
                &["operation_type"],
            )?,
            run_sandbox_duration: r.histograms(
                "kubelet_run_podsandbox_duration_seconds",
                "Duration in seconds of RunPodSandbox, by RuntimeClass handler.",
                default_buckets(),
                &["runtime_handler"],
            )?,
            run_sandbox_errors: r.counters(
                "kubelet_run_podsandbox_errors_total",
                "Number of RunPodSandbox errors, by RuntimeClass handler.",
                &["runtime_handler"],
            )?,
        })
    }

    /// Records a completed CRI call.
    pub fn observe(&self, operation: &str, seconds: f64, failed: bool) {
        self.operations.with_label_values(&[operation]).inc();
        self.operation_duration
            .with_label_values(&[operation])
            .observe(seconds);
        if failed {
            self.operation_errors.with_label_values(&[operation]).inc();
        }
    }
}

/// Upstream buckets of CRI operations: 14 from 5 ms, factor 2.5.
fn runtime_buckets() -> Vec<f64> {
    exponential(0.005, 2.5, 14)
}
