//! Families about the spans of traces.

use prometheus::Counter;

use crate::Registrar;

/// Handles to the families about spans. Cloning shares them.
#[derive(Clone, Debug)]
pub struct SpanMetrics {
    /// `windlass_trace_spans_exported_total`.
    pub exported: Counter,
    /// `windlass_trace_spans_dropped_total{reason="no_room"}`: as many waited as may.
    pub no_room: Counter,
    /// `windlass_trace_spans_dropped_total{reason="not_taken"}`: the collector was away, refused
    /// them or was silent.
    pub not_taken: Counter,
}

impl SpanMetrics {
    pub(crate) fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        let dropped = r.counters(
            "windlass_trace_spans_dropped_total",
            "Spans that no collector of traces took, by reason.",
            &["reason"],
        )?;
        Ok(Self {
            exported: r.counter(
                "windlass_trace_spans_exported_total",
                "Spans that the collector of traces took.",
            )?,
            no_room: dropped.with_label_values(&["no_room"]),
            not_taken: dropped.with_label_values(&["not_taken"]),
        })
    }
}
