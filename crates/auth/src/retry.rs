//! Retries of reviews.

use std::time::Duration;

use windlass_client::{ApiError, ApiErrorKind};

use crate::review_cache::Key;

/// Timeout of all attempts together, upstream `sharedLookupTimeout`.
pub(crate) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the back-off between five attempts, upstream `DefaultAuthWebhookRetryBackoff`: 0.5 s,
/// growing by half, with up to 20 % jitter.
pub(crate) fn backoffs(key: &Key) -> impl Iterator<Item = Duration> + use<> {
    let jitter = 1.0 + 0.2 * f64::from(key[0]) / 255.0;
    [500.0, 750.0, 1125.0, 1687.5]
        .into_iter()
        .map(move |millis| Duration::from_secs_f64(millis * jitter / 1000.0))
}

/// Returns true if the next attempt may succeed.
pub(crate) fn is_retryable(error: &ApiError) -> bool {
    let passing = matches!(
        error.kind,
        ApiErrorKind::Connection | ApiErrorKind::Server | ApiErrorKind::TooManyRequests
    );
    passing || error.retry_after.is_some()
}

/// Returns the label `code` of a response: its status if known, else `<error>` as upstream.
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
