//! Sends what was taken, in batches.

use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::SpanExporter as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use windlass_metrics::SpanMetrics;
use windlass_types::FinishedSpan;

use crate::{BATCH_INTERVAL, EXPORT_TIMEOUT, FLUSH_TIMEOUT, MAX_BATCH_SPANS, convert};

/// The other end of the queue.
#[derive(Debug)]
pub struct BatchExporter {
    exporter: SpanExporter,
    spans: mpsc::Receiver<FinishedSpan>,
    /// Taken from the queue and not sent yet.
    batch: Vec<FinishedSpan>,
    metrics: SpanMetrics,
    /// The last batch was lost; said once.
    away: bool,
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
            away: false,
        }
    }

    /// Sends until the shutdown, and then what is left: for at most two seconds.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let too_late = async {
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
            () = too_late => tracing::debug!("the last spans were not taken in time"),
        }
    }

    /// Fills the batch; false if there is and will be nothing.
    async fn gather(&mut self, shutdown: &CancellationToken) -> bool {
        if shutdown.run_until_cancelled(self.fill()).await.is_none() {
            // what is queued, and no more
            self.spans.close();
            while self.room() > 0 && self.take().await > 0 {}
        }
        !self.batch.is_empty()
    }

    /// What comes within a period of the first.
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

    /// How many were taken: none only when no more can come. May be dropped at any time.
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
            Err(_) => Some(format!("no answer in {EXPORT_TIMEOUT:?}")),
        };
        match &failure {
            None => self.metrics.exported.inc_by(spans),
            Some(_) => self.metrics.export_failed.inc_by(spans),
        }
        match (&failure, self.away) {
            (Some(error), false) => tracing::warn!(error, "collector of traces not reached"),
            (None, true) => tracing::info!("collector of traces reached again"),
            _ => {}
        }
        self.away = failure.is_some();
    }
}
