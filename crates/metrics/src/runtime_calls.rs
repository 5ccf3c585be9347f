//! Families of calls to the container runtime.

use crate::{default_buckets, exponential};

families! {
    /// Families of calls to the container runtime. Clones share them.
    RuntimeCallMetrics

    pub operations: counters("kubelet_runtime_operations_total",
        "Number of runtime operations, by operation type.",
        &["operation_type"]);
    pub operation_errors: counters("kubelet_runtime_operations_errors_total",
        "Number of runtime operation errors, by operation type.",
        &["operation_type"]);
    pub operation_duration: histograms("kubelet_runtime_operations_duration_seconds",
        "Duration in seconds of runtime operations, by operation type.",
        runtime_buckets(), &["operation_type"]);
    pub run_sandbox_duration: histograms("kubelet_run_podsandbox_duration_seconds",
        "Duration in seconds of RunPodSandbox, by RuntimeClass handler.",
        default_buckets(), &["runtime_handler"]);
    pub run_sandbox_errors: counters("kubelet_run_podsandbox_errors_total",
        "Number of RunPodSandbox errors, by RuntimeClass handler.",
        &["runtime_handler"]);
}

impl RuntimeCallMetrics {
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
