//! Families of status updates, mirror pods and events.

use prometheus::{Counter, Gauge, Histogram};

use crate::Registrar;

/// Handles to the families. Clones share them.
#[derive(Clone, Debug)]
pub struct PodStatusMetrics {
    /// `kubelet_mirror_pods`.
    pub mirror_pods: Gauge,
    /// `kubelet_pod_status_sync_duration_seconds`: status change to API server response.
    pub sync_duration: Histogram,
    /// `windlass_events_dropped_total`: events dropped from a full queue.
    pub events_dropped: Counter,
}

impl PodStatusMetrics {
    /// Creates and registers the families.
    ///
    /// # Errors
    /// A family of the same name is registered.
    pub fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            mirror_pods: r.gauge(
                "kubelet_mirror_pods",
                "Number of mirror pods of this node in the API server.",
            )?,
            sync_duration: r.histogram(
                "kubelet_pod_status_sync_duration_seconds",
                "Duration in seconds from a pod status change to its update in the API server.",
                vec![
                    0.010, 0.050, 0.100, 0.500, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0,
                ],
            )?,
            events_dropped: r.counter(
                "windlass_events_dropped_total",
                "Number of events dropped because the send queue was full.",
            )?,
        })
    }
}
