//! Families of `/metrics/probes`: one series per container, hence a separate endpoint.

use prometheus::{Counter, CounterVec, Histogram, HistogramVec, Registry};

use crate::{Registrar, default_buckets, render};

/// Handles to the probe families. Clones share them.
#[derive(Clone, Debug)]
pub struct ProbeMetrics {
    registry: Registry,
    /// `prober_probe_total{probe_type,result,container,pod,namespace,pod_uid}`.
    total: CounterVec,
    /// `prober_probe_duration_seconds{probe_type,container,pod,namespace}`.
    duration: HistogramVec,
}

/// Label values of a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeLabels {
    /// `Liveness`, `Readiness` or `Startup`.
    pub probe_type: &'static str,
    /// Container name.
    pub container: String,
    /// Pod name.
    pub pod: String,
    /// Pod namespace.
    pub namespace: String,
    /// Pod UID.
    pub pod_uid: String,
}

/// Result of a probe attempt (label `result`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// `successful`.
    Successful,
    /// `failed`.
    Failed,
    /// `unknown`: the attempt failed with an error.
    Unknown,
}

impl ProbeResult {
    const ALL: [Self; 3] = [Self::Successful, Self::Failed, Self::Unknown];

    /// Returns the label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Successful => "successful",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

impl ProbeMetrics {
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        Self::in_registry(&Registrar::new(&registry), registry.clone())
    }

    pub(crate) fn in_registry(
        r: &Registrar<'_>,
        registry: Registry,
    ) -> Result<Self, prometheus::Error> {
        Ok(Self {
            total: r.counters(
                "prober_probe_total",
                "Number of liveness, readiness and startup probe attempts of a container, by result.",
                &["probe_type", "result", "container", "pod", "namespace", "pod_uid"],
            )?,
            duration: r.histograms(
                "prober_probe_duration_seconds",
                "Duration in seconds of a probe attempt.",
                default_buckets(),
                &["probe_type", "container", "pod", "namespace"],
            )?,
            registry,
        })
    }

    /// Returns the series of a probe, which exist from the first attempt until the drop.
    pub fn series(&self, labels: ProbeLabels) -> ProbeSeries {
        ProbeSeries {
            metrics: self.clone(),
            labels,
            counters: [const { None }; 3],
            duration: None,
        }
    }

    /// Renders the families in the Prometheus text format 0.0.4.
    ///
    /// # Errors
    /// Fails if a family cannot be encoded.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        render(&self.registry)
    }
}

/// Series of a probe; the drop removes them.
#[derive(Debug)]
pub struct ProbeSeries {
    metrics: ProbeMetrics,
    labels: ProbeLabels,
    counters: [Option<Counter>; 3],
    duration: Option<Histogram>,
}

impl ProbeSeries {
    /// Records an attempt. As upstream, the duration of a failure is not observed.
    pub fn observe(&mut self, result: ProbeResult, seconds: f64) {
        let (metrics, labels) = (&self.metrics, &self.labels);
        self.counters[result as usize]
            .get_or_insert_with(|| {
                metrics
                    .total
                    .with_label_values(&labels.total_labels(result))
            })
            .inc();
        if result == ProbeResult::Failed {
            return;
        }
        self.duration
            .get_or_insert_with(|| {
                metrics
                    .duration
                    .with_label_values(&labels.duration_labels())
            })
            .observe(seconds);
    }
}

impl Drop for ProbeSeries {
    fn drop(&mut self) {
        for result in ProbeResult::ALL {
            if self.counters[result as usize].take().is_some() {
                // cannot fail: created by this value
                let _ = self
                    .metrics
                    .total
                    .remove_label_values(&self.labels.total_labels(result));
            }
        }
        if self.duration.take().is_some() {
            let _ = self
                .metrics
                .duration
                .remove_label_values(&self.labels.duration_labels());
        }
    }
}

impl ProbeLabels {
    fn total_labels(&self, result: ProbeResult) -> [&str; 6] {
        [
            self.probe_type,
            result.as_str(),
            &self.container,
            &self.pod,
            &self.namespace,
            &self.pod_uid,
        ]
    }

    fn duration_labels(&self) -> [&str; 4] {
        [self.probe_type, &self.container, &self.pod, &self.namespace]
    }
}

#[cfg(test)]
mod tests {
    use super::{ProbeLabels, ProbeMetrics, ProbeResult};

    #[test]
    fn probe_series_are_removed_on_drop() {
        let metrics = ProbeMetrics::new().expect("unique names");
        let labels = ProbeLabels {
            probe_type: "Readiness",
            container: "app".into(),
            pod: "web".into(),
            namespace: "default".into(),
            pod_uid: "u1".into(),
        };
        let mut series = metrics.series(labels);
        assert_eq!(metrics.render().expect("text"), "");
        series.observe(ProbeResult::Successful, 0.2);
        series.observe(ProbeResult::Failed, 0.2);
        series.observe(ProbeResult::Failed, 0.2);
        let text = metrics.render().expect("text");
        let total = |result: &str, count: u32| {
            format!(
                "prober_probe_total{{container=\"app\",namespace=\"default\",pod=\"web\",\
                 pod_uid=\"u1\",probe_type=\"Readiness\",result=\"{result}\"}} {count}\n"
            )
        };
        let took = "prober_probe_duration_seconds_count{container=\"app\",namespace=\"default\",\
                    pod=\"web\",probe_type=\"Readiness\"} 1\n";
        for line in [&total("successful", 1), &total("failed", 2), took] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("unknown"), "{text}");
        drop(series);
        assert_eq!(metrics.render().expect("text"), "");
    }
}
