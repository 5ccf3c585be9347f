//! Which piece of work the current task does, for those whom it asks.

use windlass_types::TraceParent;

tokio::task_local! {
    static CURRENT: TraceParent;
}

/// Does `work` as the piece `span` of a trace: what it asks of others carries that name.
pub async fn within<T>(span: TraceParent, work: impl Future<Output = T>) -> T {
    CURRENT.scope(span, work).await
}

/// The piece of a sampled trace that the current task does.
pub fn traceparent() -> Option<TraceParent> {
    CURRENT.try_with(|span| *span).ok()
}

#[cfg(test)]
mod tests {
    use windlass_types::{SpanId, TraceId};

    use super::*;

    #[tokio::test]
    async fn work_knows_which_piece_it_is_and_others_do_not() {
        let span = TraceParent {
            trace: TraceId(1),
            span: SpanId(2),
        };
        assert_eq!(within(span, async { traceparent() }).await, Some(span));
        assert_eq!(traceparent(), None);
    }
}
