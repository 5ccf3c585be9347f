//! Families of status updates, mirror pods and events.

families! {
    /// Families of status updates, mirror pods and events. Clones share them.
    PodStatusMetrics

    pub mirror_pods: gauge("kubelet_mirror_pods", "Number of mirror pods of this node in the API server.");
    pub sync_duration: histogram("kubelet_pod_status_sync_duration_seconds",
        "Duration in seconds from a pod status change to its update in the API server.",
        vec![0.010, 0.050, 0.100, 0.500, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0]);
    pub events_dropped: counter("windlass_events_dropped_total",
        "Number of events dropped because the send queue was full.");
}
