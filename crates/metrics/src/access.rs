//! Families of authentication and authorization.

use std::time::Duration;

use prometheus::{CounterVec, HistogramVec};

use crate::{NO_LABELS, Registrar};

/// Handles to the families. Clones share them.
#[derive(Clone, Debug)]
pub struct AccessMetrics {
    /// `apiserver_delegated_authn_request_total{code}`.
    authn: CounterVec,
    /// `apiserver_delegated_authn_request_duration_seconds{code}`.
    authn_duration: HistogramVec,
    /// `apiserver_delegated_authz_request_total{code}`.
    authz: CounterVec,
    /// `apiserver_delegated_authz_request_duration_seconds{code}`.
    authz_duration: HistogramVec,
    /// `authentication_token_cache_request_total{status}`.
    token_cache: CounterVec,
    /// `authentication_token_cache_fetch_total{status}`.
    token_fetch: CounterVec,
    /// `apiserver_client_certificate_expiration_seconds`.
    certificate_ttl: HistogramVec,
}

impl AccessMetrics {
    pub(crate) fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        let seconds = || vec![0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];
        Ok(Self {
            authn: r.counters(
                "apiserver_delegated_authn_request_total",
                "Number of TokenReviews, by status code.",
                &["code"],
            )?,
            authn_duration: r.histograms(
                "apiserver_delegated_authn_request_duration_seconds",
                "Duration in seconds of a TokenReview.",
                seconds(),
                &["code"],
            )?,
            authz: r.counters(
                "apiserver_delegated_authz_request_total",
                "Number of SubjectAccessReviews, by status code.",
                &["code"],
            )?,
            authz_duration: r.histograms(
                "apiserver_delegated_authz_request_duration_seconds",
                "Duration in seconds of a SubjectAccessReview.",
                seconds(),
                &["code"],
            )?,
            token_cache: r.counters(
                "authentication_token_cache_request_total",
                "Number of token cache lookups, by hit or miss.",
                &["status"],
            )?,
            token_fetch: r.counters(
                "authentication_token_cache_fetch_total",
                "Number of TokenReviews sent on a cache miss, by result.",
                &["status"],
            )?,
            certificate_ttl: r.histograms(
                "apiserver_client_certificate_expiration_seconds",
                "Remaining lifetime in seconds of the client certificate of a request.",
                vec![
                    0.0,
                    1800.0,
                    3600.0,
                    7200.0,
                    21_600.0,
                    43_200.0,
                    86_400.0,
                    172_800.0,
                    345_600.0,
                    604_800.0,
                    2_592_000.0,
                    7_776_000.0,
                    15_552_000.0,
                    31_104_000.0,
                ],
                &NO_LABELS,
            )?,
        })
    }

    /// Records a TokenReview.
    pub fn observe_authn(&self, code: &str, took: Duration) {
        self.authn.with_label_values(&[code]).inc();
        self.authn_duration
            .with_label_values(&[code])
            .observe(took.as_secs_f64());
    }

    /// Records a SubjectAccessReview.
    pub fn observe_authz(&self, code: &str, took: Duration) {
        self.authz.with_label_values(&[code]).inc();
        self.authz_duration
            .with_label_values(&[code])
            .observe(took.as_secs_f64());
    }

    /// Counts a lookup in the token cache.
    pub fn count_token_cache(&self, hit: bool) {
        let status = if hit { "hit" } else { "miss" };
        self.token_cache.with_label_values(&[status]).inc();
    }

    /// Counts a TokenReview on a cache miss.
    pub fn count_token_fetch(&self, succeeded: bool) {
        let status = if succeeded { "ok" } else { "error" };
        self.token_fetch.with_label_values(&[status]).inc();
    }

    /// Records the remaining lifetime of a client certificate in seconds.
    pub fn observe_certificate_ttl(&self, seconds: i64) {
        #[expect(
            clippy::cast_precision_loss,
            reason = "the lifetime in seconds is far below 2^53"
        )]
        let seconds = seconds as f64;
        self.certificate_ttl
            .with_label_values(&NO_LABELS)
            .observe(seconds);
    }
}
