//! Families of the PLEG.

use crate::default_buckets;

families! {
    /// Families of the PLEG. Clones share them.
    PlegMetrics

    pub relist_duration: histogram("kubelet_pleg_relist_duration_seconds",
        "Duration in seconds of a relist.",
        default_buckets());
    pub relist_interval: histogram("kubelet_pleg_relist_interval_seconds",
        "Interval in seconds between relists.",
        default_buckets());
    pub inspection_duration: histogram("kubelet_pleg_pod_relist_duration_seconds",
        "Duration in seconds of the inspection of a pod.",
        default_buckets());
    pub last_seen: gauge("kubelet_pleg_last_seen_seconds", "Unix time of the last successful relist.");
    pub discarded_events: counter("kubelet_pleg_discard_events",
        "Number of events discarded by the PLEG; always 0, events are coalesced per pod.");
}
