//! Families of `/metrics/slis`: health checks.

use prometheus::{CounterVec, GaugeVec, Registry};

use crate::{Registrar, render};

/// Handles to the health check families. Clones share them.
#[derive(Clone, Debug)]
pub struct SliMetrics {
    registry: Registry,
    /// `kubernetes_healthcheck{name,type}`.
    last: GaugeVec,
    /// `kubernetes_healthchecks_total{name,type,status}`.
    total: CounterVec,
}

impl SliMetrics {
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        Self::in_registry(&Registrar::new(&registry), registry.clone())
    }

    pub(crate) fn in_registry(
        r: &Registrar<'_>,
        registry: Registry,
    ) -> Result<Self, prometheus::Error> {
        Ok(Self {
            last: r.gauges(
                "kubernetes_healthcheck",
                "This metric records the result of a single healthcheck.",
                &["name", "type"],
            )?,
            total: r.counters(
                "kubernetes_healthchecks_total",
                "This metric records the results of all healthcheck.",
                &["name", "type", "status"],
            )?,
            registry,
        })
    }

    /// Records a run of a check.
    pub fn observe(&self, name: &str, passed: bool) {
        let status = if passed { "success" } else { "error" };
        self.last
            .with_label_values(&[name, "healthz"])
            .set(f64::from(u8::from(passed)));
        self.total
            .with_label_values(&[name, "healthz", status])
            .inc();
    }

    /// Renders the families in the Prometheus text format 0.0.4.
    ///
    /// # Errors
    /// Fails if a family cannot be encoded.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        render(&self.registry)
    }
}
