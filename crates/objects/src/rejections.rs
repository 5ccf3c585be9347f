//! Consecutive rejections of a request for a pod.

use std::time::Duration;

use tokio::time::Instant;
use windlass_client::{ApiError, ApiErrorKind};
use windlass_pod_inputs::cache_lag::{
    PodRequest, RejectedRequest, RejectionDecision, RejectionStatus, rejection_decision,
};

/// Rejections since the last accepted request.
#[derive(Debug, Default)]
pub(crate) struct Rejections {
    first: Option<Instant>,
    count: u32,
}

impl Rejections {
    /// Counts a failed request; returns the delay before its retry, `None` to report the failure.
    pub(crate) fn retry_delay(
        &mut self,
        request: PodRequest,
        error: &ApiError,
    ) -> Option<Duration> {
        let decision = rejection_decision(RejectedRequest {
            request,
            status: status(error.kind),
            earlier: self.count,
            since_first: self.first.map(|first| first.elapsed()).unwrap_or_default(),
        });
        match decision {
            RejectionDecision::Retry(delay) => {
                tracing::debug!(%error, %decision, "request rejected, retrying");
                self.first.get_or_insert_with(Instant::now);
                self.count = self.count.saturating_add(1);
                Some(delay)
            }
            RejectionDecision::Report => None,
        }
    }

    /// Resets the count after an accepted request.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn status(kind: ApiErrorKind) -> RejectionStatus {
    match kind {
        ApiErrorKind::Forbidden => RejectionStatus::Forbidden,
        ApiErrorKind::NotFound => RejectionStatus::NotFound,
        ApiErrorKind::Server => RejectionStatus::ServerError,
        _ => RejectionStatus::Other,
    }
}
