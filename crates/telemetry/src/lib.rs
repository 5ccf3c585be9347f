//! Exports finished spans with OTLP over gRPC (`tracing` of the configuration).
//!
//! For a program with spans as values ([`FinishedSpan`]), at the cost of a queue. It exists only
//! if configured. One task sends batches over a connection that is opened with the first span.
//! Ending a span only queues it and never blocks.
//!
//! *owns* the queue and the connection · *receives* `SpanSink::ended` · *bound* 1024 spans with
//! texts of at most 128 bytes and errors of at most 512, and one batch in flight · *restart*
//! queued spans are lost.
//!
//! # Entry points
//!
//! * [`connect`] creates both ends of the queue from a [`TelemetryConfig`]
//! * [`OtlpSink`] accepts spans, as a `windlass_types::SpanSink`
//! * [`BatchExporter`] sends them: spawn [`BatchExporter::run`]
//! * [`Sampler`] selects the traces
//!
//! # Example
//!
//! ```
//! use windlass_metrics::Metrics;
//! use windlass_telemetry::{Collector, Sampler, TelemetryConfig, connect};
//! use windlass_types::{SpanSink, TraceId};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = TelemetryConfig {
//!     collector: Collector::Tcp("collector.example.com:4317".parse()?),
//!     sampler: Sampler::per_million(500_000), // half of all traces
//!     host_name: "n1".to_owned(),
//! };
//! // the connection is opened with the first span
//! let (sink, exporter) = connect(&config, Metrics::new()?.spans)?;
//! tokio::spawn(exporter.run(Default::default()));
//! assert!(sink.samples(TraceId(1)), "the trace ID decides");
//! assert!(!sink.samples(TraceId(u128::MAX)));
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-telemetry --example send_spans` sends two spans to a collector.
//!
//! # Guarantees
//!
//! * An unreachable or slow collector only costs spans, which are counted. An export times out
//!   after 10 s, and shutdown waits 2 s for the last batches.
//! * As upstream, a batch has at most 512 spans and is sent after 5 s.
//!
//! # Limits
//!
//! It creates no spans: `windlass-timelines` and the node API do. As upstream, no TLS and no
//! headers from the configuration; the exporter reads the `OTEL_*` environment variables. No logs
//! and no metrics.

mod channel;
mod convert;
mod export;
mod sampler;

use std::time::Duration;

use opentelemetry_otlp::{SpanExporter, WithTonicConfig};
use opentelemetry_sdk::trace::SpanExporter as _;
use tokio::sync::mpsc;
use tonic::transport::Channel;
use windlass_metrics::SpanMetrics;
use windlass_types::{FinishedSpan, SpanSink, TraceId};

pub use channel::Collector;
pub use export::BatchExporter;
pub use sampler::Sampler;

/// Maximum number of queued spans. A pod start has some thirty, so a burst of 30 pods fits while a
/// batch is sent. A span has some 400 bytes and at most 2 KiB: 0.5 MiB, 2 MiB at worst. The batch
/// in flight takes as much again in its three forms (ours, the SDK's, encoded).
const QUEUE_CAPACITY: usize = 1024;

/// Maximum number of spans per request, as upstream.
const MAX_BATCH_SPANS: usize = 512;

/// An incomplete batch is sent after this time, as upstream.
const BATCH_INTERVAL: Duration = Duration::from_secs(5);

/// A batch that is not exported within this time is lost. The exporter retries if the collector
/// permits it.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of the last batches at shutdown: less than half of the timeout for state.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum size of an attribute.
const MAX_ATTRIBUTE_BYTES: usize = 128;

/// Maximum size of an error.
const MAX_ERROR_BYTES: usize = 512;

/// Settings of the export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelemetryConfig {
    /// `tracing.endpoint`.
    pub collector: Collector,
    /// `tracing.samplingRatePerMillion`.
    pub sampler: Sampler,
    /// The host name, `host.name`.
    pub host_name: String,
}

/// Spans cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// An invalid environment variable.
    #[error("cannot set up tracing: {0}; check the OTEL_* environment variables")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// Accepts spans. Clones share the queue.
#[derive(Clone, Debug)]
pub struct OtlpSink {
    queue: mpsc::Sender<FinishedSpan>,
    sampler: Sampler,
    metrics: SpanMetrics,
}

impl SpanSink for OtlpSink {
    fn samples(&self, trace: TraceId) -> bool {
        self.sampler.samples(trace)
    }

    fn ended(&self, mut span: FinishedSpan) {
        for (_, text) in &mut span.attributes {
            cut(text, MAX_ATTRIBUTE_BYTES);
        }
        if let Some(error) = &mut span.error {
            cut(error, MAX_ERROR_BYTES);
        }
        if self.queue.try_send(span).is_err() {
            self.metrics.queue_full.inc();
        }
    }
}

/// Creates the sink and the exporter, which must be spawned. Requires a tokio runtime; the
/// connection is opened with the first span.
///
/// # Errors
/// See [`TelemetryError`].
pub fn connect(
    config: &TelemetryConfig,
    metrics: SpanMetrics,
) -> Result<(OtlpSink, BatchExporter), TelemetryError> {
    connect_with_channel(config.collector.channel(), config, metrics)
}

fn connect_with_channel(
    channel: Channel,
    config: &TelemetryConfig,
    metrics: SpanMetrics,
) -> Result<(OtlpSink, BatchExporter), TelemetryError> {
    let mut exporter = SpanExporter::builder()
        .with_tonic()
        .with_channel(channel)
        .build()?;
    exporter.set_resource(&convert::resource(&config.host_name));
    let (queue, spans) = mpsc::channel(QUEUE_CAPACITY);
    let sink = OtlpSink {
        queue,
        sampler: config.sampler,
        metrics: metrics.clone(),
    };
    Ok((sink, BatchExporter::new(exporter, spans, metrics)))
}

/// Truncates a text at a character boundary.
fn cut(text: &mut String, max: usize) {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
        text.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests;
