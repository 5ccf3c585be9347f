//! Refusals in a row of one request for a pod.

use std::time::Duration;

use tokio::time::Instant;
use windlass_client::{ApiError, ApiErrorKind};
use windlass_pod_inputs::cache_lag::{
    PodRequest, Refusal, RefusalDecision, RefusalStatus, refusal_decision,
};

/// The refusals since the last request that was not refused.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    first: Option<Instant>,
    count: u32,
}

impl Refusals {
    /// Counts a failed request; the delay before its retry, `None` if the failure is to be reported.
    pub(crate) fn retry_delay(
        &mut self,
        request: PodRequest,
        error: &ApiError,
    ) -> Option<Duration> {
        let decision = refusal_decision(Refusal {
            request,
            status: status(error.kind),
            earlier: self.count,
            since_first: self.first.map(|first| first.elapsed()).unwrap_or_default(),
        });
        match decision {
            RefusalDecision::Retry(delay) => {
                tracing::debug!(%error, %decision, "refused for now");
                self.first.get_or_insert_with(Instant::now);
                self.count = self.count.saturating_add(1);
                Some(delay)
            }
            RefusalDecision::Report => None,
        }
    }

    /// Ends the row: a request was not refused.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn status(kind: ApiErrorKind) -> RefusalStatus {
    match kind {
        ApiErrorKind::Forbidden => RefusalStatus::Forbidden,
        ApiErrorKind::NotFound => RefusalStatus::NotFound,
        ApiErrorKind::Server => RefusalStatus::ServerError,
        _ => RefusalStatus::Other,
    }
}
