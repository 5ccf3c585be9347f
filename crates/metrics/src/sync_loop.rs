//! Families of the sync loop: admission, housekeeping and numbers of pods.

families! {
    /// Families of the sync loop: admission, housekeeping and numbers of pods. Clones share them.
    SyncLoopMetrics

    pub events: counters("windlass_sync_loop_events_total",
        "Number of SyncLoop iterations, by cause.",
        &["cause"]);
    pub admission_rejections: counters("kubelet_admission_rejections_total",
        "Number of pods rejected by admission, by reason.",
        &["reason"]);
    pub preemptions: counters("kubelet_preemptions",
        "Number of pods preempted for critical pods, by the resource that was lacking.",
        &["preemption_signal"]);
    pub pending_resizes: gauges("kubelet_pod_pending_resizes",
        "Number of pods whose resize is not allocated, by reason.",
        &["reason"]);
    pub infeasible_resizes: counters("kubelet_pod_infeasible_resizes_total",
        "Number of resizes that the node cannot do, by cause.",
        &["reason_detail"]);
    pub deferred_accepted_resizes: counters("kubelet_pod_deferred_accepted_resizes_total",
        "Number of deferred resizes that were allocated, by the trigger of the retry.",
        &["retry_trigger"]);
    pub requested_resizes: counters("kubelet_container_requested_resizes_total",
        "Number of changed sizes of containers, by resource, requirement and operation.",
        &["resource", "requirement", "operation"]);
    pub orphan_pods_cleaned: gauge("kubelet_orphan_pod_cleaned_volumes",
        "Number of orphaned pods whose directories the last housekeeping round removed.");
    pub orphan_pods_not_cleaned: gauge("kubelet_orphan_pod_cleaned_volumes_errors",
        "Number of orphaned pods whose directories the last housekeeping round failed to remove.");
    pub running_pods: gauge("kubelet_running_pods", "Number of pods with a running sandbox.");
    pub running_containers: gauges("kubelet_running_containers",
        "Number of containers, by state.",
        &["container_state"]);
    pub desired_pods: gauges("kubelet_desired_pods",
        "Number of desired pods, by whether the pod is static.",
        &["static"]);
    pub working_pods: gauges("kubelet_working_pods",
        "Number of pods with a worker, by lifecycle, config and whether the pod is static.",
        &["lifecycle", "config", "static"]);
    pub protected_memory: gauges("kubelet_memory_qos_node_memory_min_bytes",
        "Memory in bytes that is never reclaimed from Guaranteed pods (memory.min).",
        &[]);
    pub preferred_memory: gauges("kubelet_memory_qos_node_memory_low_bytes",
        "Memory in bytes that is reclaimed last from Burstable pods (memory.low).",
        &[]);
    pub active_pods: gauges("kubelet_active_pods", "Number of pods that count for admission.", &["static"]);
}
