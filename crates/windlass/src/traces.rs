//! Export of traces, if `tracing` is configured.

use anyhow::Context;
use windlass_config::{CollectorAddress, Config};
use windlass_metrics::Metrics;
use windlass_telemetry::{BatchExporter, Collector, OtlpSink, Sampler, TelemetryConfig};

/// Returns the span sink and its exporter; `None` without a configured collector. Requires a tokio
/// runtime.
pub(crate) fn connect(
    config: &Config,
    node_name: &str,
    metrics: &Metrics,
) -> anyhow::Result<Option<(OtlpSink, BatchExporter)>> {
    let Some(tracing) = &config.kubelet.tracing else {
        return Ok(None);
    };
    let address = match &tracing.endpoint {
        None => CollectorAddress::default(),
        Some(text) => text.parse().context("tracing.endpoint")?,
    };
    let config = TelemetryConfig {
        collector: match address {
            CollectorAddress::Tcp(host) => {
                Collector::Tcp(host.parse().context("tracing.endpoint")?)
            }
            CollectorAddress::Unix(path) => Collector::Unix(path),
            CollectorAddress::Abstract(name) => Collector::Abstract(name),
            // configuration loading has warned
            CollectorAddress::Unusable => return Ok(None),
        },
        sampler: Sampler::per_million(tracing.sampling_rate_per_million.unwrap_or(0)),
        host_name: node_name.to_owned(),
    };
    let connected = windlass_telemetry::connect(&config, metrics.spans.clone());
    connected.context("tracing").map(Some)
}
