//! Families of the node and its start and shutdown.

use crate::default_buckets;

families! {
    /// Families of the node and its start and shutdown. Clones share them.
    NodeMetrics

    pub name: gauges("kubelet_node_name", "Name of the node; always 1.", &["node"]);
    pub shutdown_start: gauge("kubelet_graceful_shutdown_start_time_seconds",
        "Unix time of the start of the last graceful shutdown.");
    pub shutdown_end: gauge("kubelet_graceful_shutdown_end_time_seconds",
        "Unix time of the end of the last graceful shutdown.");
    pub startup: gauge("kubelet_node_startup_duration_seconds",
        "Duration in seconds from host boot to the node being ready.");
    pub startup_pre_kubelet: gauge("kubelet_node_startup_pre_kubelet_duration_seconds",
        "Duration in seconds from host boot to agent start.");
    pub startup_pre_registration: gauge("kubelet_node_startup_pre_registration_duration_seconds",
        "Duration in seconds from agent start to the first registration attempt.");
    pub startup_registration: gauge("kubelet_node_startup_registration_duration_seconds",
        "Duration in seconds from the first registration attempt to the Node object.");
    pub startup_post_registration: gauge("kubelet_node_startup_post_registration_duration_seconds",
        "Duration in seconds from the Node object to the node being ready.");
    pub eviction_stats_age: histograms("kubelet_eviction_stats_age_seconds",
        "Duration in seconds from a reading of a signal to an eviction because of it, by signal.",
        default_buckets(),
        &["eviction_signal"]);
    pub hung_operations: gauges("windlass_hung_operations",
        "Number of operations of pods that hang, by kind.", &["kind"]);
    pub hung_operations_total: counters("windlass_hung_operations_total",
        "Number of operations of pods that have hung, by kind.", &["kind"]);
    pub process_start_time: gauge("process_start_time_seconds", "Unix time of the process start.");
}
