//! When a question is asked again.

use std::time::Duration;

use windlass_client::{ApiError, ApiErrorKind};

use crate::review_cache::Key;

/// How long the whole of it may take, upstream's `sharedLookupTimeout`.
pub(crate) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);

/// The backoffs between five attempts, upstream's `DefaultAuthWebhookRetryBackoff`: 0.5 s, half as
/// long again each time, and up to a fifth more, so that nodes do not come in step.
pub(crate) fn backoffs(key: &Key) -> impl Iterator<Item = Duration> + use<> {
    let jitter = 1.0 + 0.2 * f64::from(key[0]) / 255.0;
    [500.0, 750.0, 1125.0, 1687.5]
        .into_iter()
        .map(move |millis| Duration::from_secs_f64(millis * jitter / 1000.0))
}

/// True if the next attempt may well go better.
pub(crate) fn is_retryable(error: &ApiError) -> bool {
    let passing = matches!(
        error.kind,
        ApiErrorKind::Connection | ApiErrorKind::Server | ApiErrorKind::TooManyRequests
    );
    passing || error.retry_after.is_some()
}

/// The label `code` of an answer: its status as far as it is known, else `<error>`, as upstream.
pub(crate) fn code<T>(result: &Result<T, ApiError>) -> &'static str {
    match result.as_ref().map_err(|error| error.kind) {
        Ok(_) => "201",
        Err(ApiErrorKind::Invalid) => "400",
        Err(ApiErrorKind::Unauthorized) => "401",
        Err(ApiErrorKind::Forbidden) => "403",
        Err(ApiErrorKind::NotFound) => "404",
        Err(ApiErrorKind::TooManyRequests) => "429",
        Err(ApiErrorKind::Server) => "500",
        Err(_) => "<error>",
    }
}
