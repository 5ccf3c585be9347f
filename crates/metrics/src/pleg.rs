//! Families of the PLEG.

use prometheus::{Counter, Gauge, Histogram};

use crate::{Registrar, default_buckets};

/// Handles to the families. Clones share them.
#[derive(Clone, Debug)]
pub struct PlegMetrics {
    /// `kubelet_pleg_relist_duration_seconds`.
    pub relist_duration: Histogram,
    /// `kubelet_pleg_relist_interval_seconds`.
    pub relist_interval: Histogram,
    /// `kubelet_pleg_pod_relist_duration_seconds`: inspection of one pod.
    pub inspection_duration: Histogram,
    /// `kubelet_pleg_last_seen_seconds`: Unix time of the last successful relist.
    pub last_seen: Gauge,
    /// `kubelet_pleg_discard_events`: always 0, events are coalesced per pod.
    pub discarded_events: Counter,
}

impl PlegMetrics {
    /// Creates and registers the families.
    ///
    /// # Errors
    /// A family of the same name is registered.
    pub fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            relist_duration: r.histogram(
                "kubelet_pleg_relist_duration_seconds",
                "Duration in seconds of a relist.",
                default_buckets(),
            )?,
            relist_interval: r.histogram(
                "kubelet_pleg_relist_interval_seconds",
                "Interval in seconds between relists.",
                default_buckets(),
            )?,
            inspection_duration: r.histogram(
                "kubelet_pleg_pod_relist_duration_seconds",
                "Duration in seconds of the inspection of a pod.",
                default_buckets(),
            )?,
            last_seen: r.gauge(
                "kubelet_pleg_last_seen_seconds",
                "Unix time of the last successful relist.",
            )?,
            discarded_events: r.counter(
                "kubelet_pleg_discard_events",
                "Number of events discarded by the PLEG; always 0, events are coalesced per pod.",
            )?,
        })
    }
}
