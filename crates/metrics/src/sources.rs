//! Families of pod sources.

use prometheus::{Gauge, GaugeVec};

use crate::Registrar;

/// Handles to the families. Clones share them.
#[derive(Clone, Debug)]
pub struct SourceMetrics {
    /// `windlass_source_rejected_manifests{source}`: manifests rejected in the last pass.
    pub rejected: GaugeVec,
    /// `windlass_pod_watch_failing_seconds`: 0 while the watch works.
    pub pod_watch_failing: Gauge,
}

impl SourceMetrics {
    /// Creates and registers the families.
    ///
    /// # Errors
    /// A family of the same name is registered.
    pub fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            rejected: r.gauges("windlass_source_rejected_manifests", "Number of manifests rejected in the last pass, by pod source.", &["source"])?,
            pod_watch_failing: r.gauge("windlass_pod_watch_failing_seconds", "Duration in seconds of the current failure to list and watch pods, 0 without a failure.")?,
        })
    }
}
