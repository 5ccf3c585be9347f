//! Sends queued spans in batches.

use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::SpanExporter as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use windlass_metrics::SpanMetrics;
use windlass_types::FinishedSpan;

use crate::{BATCH_INTERVAL, EXPORT_TIMEOUT, FLUSH_TIMEOUT, MAX_BATCH_SPANS, convert};

/// The receiving end of the queue.
#[derive(Debug)]
pub struct BatchExporter {
    exporter: SpanExporter,
    spans: mpsc::Receiver<FinishedSpan>,
    /// Received and not sent.
    batch: Vec<FinishedSpan>,
    metrics: SpanMetrics,
    /// The last export failed; logged once.
    failing: bool,
}

impl BatchExporter {
    pub(crate) fn new(
        exporter: SpanExporter,
        spans: mpsc::Receiver<FinishedSpan>,
        metrics: SpanMetrics,
    ) -> Self {
        Self {
            exporter,
            spans,
            batch: Vec::new(),
            metrics,
            failing: false,
        }
    }

    /// Sends batches until shutdown, and then the rest for at most two seconds.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let flush_timeout = async {
            shutdown.cancelled().await;
            sleep(FLUSH_TIMEOUT).await;
        };
        let work = async {
            while self.gather(&shutdown).await {
                self.export().await;
            }
        };
        tokio::select! {
            biased;
            () = work => {}
            () = flush_timeout => tracing::debug!("exporting the last spans timed out"),
        }
    }

    /// Fills the batch; false if the queue is closed and empty.
    async fn gather(&mut self, shutdown: &CancellationToken) -> bool {
        if shutdown.run_until_cancelled(self.fill()).await.is_none() {
            // only what is already queued
            self.spans.close();
            while self.room() > 0 && self.take().await > 0 {}
        }
        !self.batch.is_empty()
    }

    /// Receives spans until an interval after the first.
    async fn fill(&mut self) {
        if self.take().await == 0 {
            return;
        }
        let due = Instant::now() + BATCH_INTERVAL;
        while self.room() > 0 && matches!(timeout_at(due, self.take()).await, Ok(1..)) {}
    }

    fn room(&self) -> usize {
        MAX_BATCH_SPANS.saturating_sub(self.batch.len())
    }

    /// Receives spans and returns their number, zero if the queue is closed. Cancel safe.
    async fn take(&mut self) -> usize {
        let room = self.room();
        self.spans.recv_many(&mut self.batch, room).await
    }

    async fn export(&mut self) {
        let spans = self.batch.len() as f64;
        let batch = self.batch.drain(..).map(convert::span).collect();
        let exported = timeout(EXPORT_TIMEOUT, self.exporter.export(batch)).await;
        let failure = match exported {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no response within {EXPORT_TIMEOUT:?}")),
        };
        match &failure {
            None => self.metrics.exported.inc_by(spans),
            Some(_) => self.metrics.export_failed.inc_by(spans),
        }
        match (&failure, self.failing) {
            (Some(error), false) => tracing::warn!(error, "exporting spans failed"),
            (None, true) => tracing::info!("exporting spans works again"),
            _ => {}
        }
        self.failing = failure.is_some();
    }
}
