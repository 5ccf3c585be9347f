//! Families of pod sources.

families! {
    /// Families of pod sources. Clones share them.
    SourceMetrics

    pub rejected: gauges("windlass_source_rejected_manifests",
        "Number of manifests rejected in the last pass, by pod source.",
        &["source"]);
    pub pod_watch_failing: gauge("windlass_pod_watch_failing_seconds",
        "Duration in seconds of the current failure to list and watch pods, 0 without a failure.");
}
