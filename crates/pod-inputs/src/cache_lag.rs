//! Rejections that may be caused by a stale cache of the API server.
//!
//! The node authorizer and the admission plugin NodeRestriction have pods from informers. For some
//! milliseconds after the binding of a pod, longer on a busy control plane, they reject requests of
//! the node for it. Such a request is retried soon, and not reported at first.

use std::fmt;
use std::time::Duration;

/// Rejections are not reported for this time after the first one.
const QUIET_PERIOD: Duration = Duration::from_secs(2);
/// Delay before the first retry; it doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_millis(10);
/// Max delay before a retry.
const MAX_DELAY: Duration = Duration::from_millis(320);

/// What is requested for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodRequest {
    /// A service account token.
    Token,
    /// An object that the pod refers to.
    Object,
    /// A PodCertificateRequest, with its service account.
    Certificate,
}

/// HTTP status of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionStatus {
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 5xx.
    ServerError,
    /// Any other status, or no response.
    Other,
}

/// A rejected request.
#[derive(Clone, Copy, Debug)]
pub struct RejectedRequest {
    /// What was requested.
    pub request: PodRequest,
    /// The status of the response.
    pub status: RejectionStatus,
    /// Number of consecutive rejections before this one.
    pub earlier: u32,
    /// Time since the first of them, zero if this is the first.
    pub since_first: Duration,
}

/// What to do after a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionDecision {
    /// Retry after this delay, and report nothing.
    Retry(Duration),
    /// Report it.
    Report,
}

impl fmt::Display for RejectionDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry(delay) => write!(f, "retry in {} ms", delay.as_millis()),
            Self::Report => f.write_str("report"),
        }
    }
}

/// Decides what to do after a rejection.
///
/// Depends on the status only, because other authorizers and admission plugins have other caches
/// and messages. A permanent rejection is reported a little later.
pub fn rejection_decision(rejected: RejectedRequest) -> RejectionDecision {
    let left = QUIET_PERIOD.saturating_sub(rejected.since_first);
    if left.is_zero() || !may_be_lag(rejected.request, rejected.status) {
        return RejectionDecision::Report;
    }
    let doubled = FIRST_DELAY.saturating_mul(1 << rejected.earlier.min(16));
    RejectionDecision::Retry(doubled.min(MAX_DELAY).min(left))
}

fn may_be_lag(request: PodRequest, status: RejectionStatus) -> bool {
    match (request, status) {
        (_, RejectionStatus::Forbidden) => true,
        // objects are read from etcd, so a 404 is final
        (PodRequest::Object, RejectionStatus::NotFound) => false,
        (_, RejectionStatus::NotFound) => true,
        // NodeRestriction returns 500 for a pod that it does not have yet
        (PodRequest::Certificate, RejectionStatus::ServerError) => true,
        (_, RejectionStatus::ServerError | RejectionStatus::Other) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejection_decision_for_each_status_and_time() {
        let check = |request, status, earlier, since_first, expected: &str| {
            let rejected = RejectedRequest {
                request,
                status,
                earlier,
                since_first: Duration::from_millis(since_first),
            };
            assert_eq!(
                rejection_decision(rejected).to_string(),
                expected,
                "{rejected:?}"
            );
        };
        use PodRequest::{Certificate, Object, Token};
        use RejectionStatus::{Forbidden, NotFound, Other, ServerError};
        for (earlier, since_first, expected) in [
            (0, 0, "retry in 10 ms"),
            (1, 12, "retry in 20 ms"),
            (2, 35, "retry in 40 ms"),
            (5, 350, "retry in 320 ms"),
            (6, 700, "retry in 320 ms"),
            (9, 1900, "retry in 100 ms"),
            (10, 2000, "report"),
            (0, 2000, "report"),
            (1000, 60_000, "report"),
        ] {
            check(Token, Forbidden, earlier, since_first, expected);
            check(Token, NotFound, earlier, since_first, expected);
            check(Object, Forbidden, earlier, since_first, expected);
            check(Certificate, ServerError, earlier, since_first, expected);
        }
        for (request, status) in [
            (Token, ServerError),
            (Token, Other),
            (Object, NotFound),
            (Object, ServerError),
            (Object, Other),
            (Certificate, Other),
        ] {
            check(request, status, 0, 0, "report");
        }
    }
}
