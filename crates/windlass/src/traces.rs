//! Traces leave the agent if `tracing` is configured, as upstream's do.

use anyhow::Context;
use windlass_config::{CollectorAddress, Config};
use windlass_metrics::Metrics;
use windlass_telemetry::{Collector, OtlpSink, Sampler, Sending, TelemetryConfig};

/// What takes spans, and what sends them; `None` if nobody asks for traces or is there to take them. Needs a tokio runtime.
pub(crate) fn connect(
    config: &Config,
    node_name: &str,
    metrics: &Metrics,
) -> anyhow::Result<Option<(OtlpSink, Sending)>> {
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
            // there was a warning
            CollectorAddress::Nowhere => return Ok(None),
        },
        sampler: Sampler::per_million(tracing.sampling_rate_per_million.unwrap_or(0)),
        host_name: node_name.to_owned(),
    };
    let connected = windlass_telemetry::connect(&config, metrics.spans.clone());
    connected.context("tracing").map(Some)
}
