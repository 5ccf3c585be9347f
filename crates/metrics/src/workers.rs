//! Families of pod workers.

use crate::{default_buckets, exponential};

families! {
    /// Families of pod workers. Clones share them.
    WorkerMetrics

    pub sync_duration: histograms("kubelet_pod_worker_duration_seconds",
        "Duration in seconds of a pod sync, by operation type.",
        default_buckets(), &["operation_type"]);
    pub start_duration: histogram("kubelet_pod_worker_start_duration_seconds",
        "Duration in seconds from receiving a pod to starting its worker.",
        default_buckets());
    pub pod_start_duration: histogram("kubelet_pod_start_duration_seconds",
        "Duration in seconds from receiving a pod to running all its containers.",
        vec![
            0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0,
            60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0,
            2700.0, 3600.0,
        ]);
    pub terminated_containers: counters("kubelet_terminated_containers_total",
        "Number of terminated containers.",
        &["container_type", "exit_code", "reason"]);
    pub orphaned_runtime_pods: counter("kubelet_orphaned_runtime_pods_total",
        "Number of orphaned pods found in the runtime.");
    pub restarted_pods: counters("kubelet_restarted_pods_total",
        "Number of pods removed and added again with the same UID.",
        &["static"]);
    pub containers_per_pod: histogram("kubelet_containers_per_pod_count",
        "Number of containers per started pod.",
        exponential(1.0, 2.0, 5));
    pub resize_duration: histograms("kubelet_pod_resize_duration_milliseconds",
        "Duration in milliseconds of the actuation of a pod resize, by success.",
        vec![
            10.0, 50.0, 100.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0, 30_000.0,
            60_000.0, 120_000.0, 300_000.0, 600_000.0,
        ], &["success"]);
    pub resizes_in_progress: gauge("kubelet_pod_in_progress_resizes",
        "Number of pods with a resize in progress.");
    pub start_slots_in_use: gauge("windlass_start_slots_in_use", "Number of start slots in use.");
}
