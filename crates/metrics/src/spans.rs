//! Families of trace spans.

use prometheus::Counter;

use crate::Registrar;

/// Handles to the span families. Clones share them.
#[derive(Clone, Debug)]
pub struct SpanMetrics {
    /// `windlass_trace_spans_exported_total`.
    pub exported: Counter,
    /// `windlass_trace_spans_dropped_total{reason="queue_full"}`.
    pub queue_full: Counter,
    /// `windlass_trace_spans_dropped_total{reason="export_failed"}`: the collector was unreachable,
    /// rejected the spans or did not respond.
    pub export_failed: Counter,
}

impl SpanMetrics {
    pub(crate) fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        let dropped = r.counters(
            "windlass_trace_spans_dropped_total",
            "Number of spans that were not exported, by reason.",
            &["reason"],
        )?;
        Ok(Self {
            exported: r.counter(
                "windlass_trace_spans_exported_total",
                "Number of spans accepted by the collector.",
            )?,
            queue_full: dropped.with_label_values(&["queue_full"]),
            export_failed: dropped.with_label_values(&["export_failed"]),
        })
    }
}
