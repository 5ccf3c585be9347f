//! Takes finished spans out of the agent: OTLP over gRPC (`tracing` of the configuration).
//!
//! For a program that has spans as values ([`FinishedSpan`]) and wants them at an OpenTelemetry collector
//! at the price of a queue. Made only when it is configured. One task sends batches over a connection that
//! is dialled with the first of them; whoever ends a span puts it into a queue and never waits.
//!
//! *owns* the queue and the connection · *hears* `SpanSink::ended` · *bound* 1024 spans, whose texts
//! are cut to 128 bytes and their errors to 512, and one batch under way · *restart* what is
//! queued is lost.
//!
//! # The way in
//!
//! * [`connect`] makes both ends of the queue from a [`TelemetryConfig`]
//! * [`OtlpSink`] is the end that takes spans, a `windlass_types::SpanSink`
//! * [`BatchExporter`] is the end that sends them: spawn [`BatchExporter::run`]
//! * [`Sampler`] says which traces are taken
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
//! // nothing is dialled before there is a span
//! let (sink, exporter) = connect(&config, Metrics::new()?.spans)?;
//! tokio::spawn(exporter.run(Default::default()));
//! assert!(sink.samples(TraceId(1)), "the name decides, wherever it is asked");
//! assert!(!sink.samples(TraceId(u128::MAX)));
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-telemetry --example send_spans` sends two spans to a collector.
//!
//! # What it promises
//!
//! * A collector that is away, slow or silent costs spans, which are counted, and nothing else: an export
//!   ends after 10 s, the end of the agent waits 2 s for the last batches.
//! * A batch has 512 spans and goes after 5 s, as upstream's.
//!
//! # What it does not do
//!
//! It makes no span: `windlass-timelines` and the node's API do. No TLS and no headers of the
//! configuration's own, as upstream; the `OTEL_*` variables of the environment are the exporter's. No logs
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

/// Spans that wait. The start of a pod is some thirty of them, so that a burst of 30 pods has
/// room while a batch is sent. A span is some 400 bytes and at most 2 KiB: half a megabyte, 2 MiB at the
/// worst, and as much again for the batch under way in its three forms (ours, the SDK's, encoded).
const QUEUE_CAPACITY: usize = 1024;

/// Spans in one request, as upstream.
const MAX_BATCH_SPANS: usize = 512;

/// What is not enough for a batch is sent after this time, as upstream.
const BATCH_INTERVAL: Duration = Duration::from_secs(5);

/// A batch that was not taken by then is lost. It is tried more than once if the collector says that
/// it may be.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// What the end of the agent waits for the last batches: less than half of what it waits for state.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest text of an attribute, in bytes.
const MAX_ATTRIBUTE_BYTES: usize = 128;

/// Longest error, in bytes.
const MAX_ERROR_BYTES: usize = 512;

/// How traces are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelemetryConfig {
    /// `tracing.endpoint`.
    pub collector: Collector,
    /// `tracing.samplingRatePerMillion`.
    pub sampler: Sampler,
    /// The machine's name, `host.name`.
    pub host_name: String,
}

/// Traces cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// What is in the environment does not fit.
    #[error("tracing cannot be set up, see the OTEL_* variables of the environment: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// The way in. Clones share the queue.
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

/// Makes the sink, and what sends that which it takes: somebody has to run it. Needs a tokio
/// runtime; nothing is dialled before there is a span.
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

/// Cuts a text at the last character that fits.
fn cut(text: &mut String, max: usize) {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
        text.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests;
