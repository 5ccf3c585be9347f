//! Trace context of the current task, for the requests that it sends.

use windlass_types::TraceParent;

tokio::task_local! {
    static CURRENT: TraceParent;
}

/// Runs `work` in `span`.
pub async fn within<T>(span: TraceParent, work: impl Future<Output = T>) -> T {
    CURRENT.scope(span, work).await
}

/// Returns the span of the current task, if its trace is sampled.
pub fn traceparent() -> Option<TraceParent> {
    CURRENT.try_with(|span| *span).ok()
}

#[cfg(test)]
mod tests {
    use windlass_types::{SpanId, TraceId};

    use super::*;

    #[tokio::test]
    async fn traceparent_is_set_only_within_span() {
        let span = TraceParent {
            trace: TraceId(1),
            span: SpanId(2),
        };
        assert_eq!(within(span, async { traceparent() }).await, Some(span));
        assert_eq!(traceparent(), None);
    }
}
