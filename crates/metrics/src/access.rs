//! Families about who asks the node's API.

use std::time::Duration;

use prometheus::{CounterVec, HistogramVec};

use crate::Registrar;

/// Handles to the families about access. Cloning shares them.
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
    certificate_life: HistogramVec,
}

/// Of a family without labels that is absent until it is observed.
const NO_LABELS: [&str; 0] = [];

impl AccessMetrics {
    pub(crate) fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        let seconds = || vec![0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];
        Ok(Self {
            authn: r.counters(
                "apiserver_delegated_authn_request_total",
                "TokenReviews by the status code of the answer.",
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
                "SubjectAccessReviews by the status code of the answer.",
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
                "Tokens of requests, by whether they were known.",
                &["status"],
            )?,
            token_fetch: r.counters(
                "authentication_token_cache_fetch_total",
                "Tokens that were asked about, by whether there was an answer.",
                &["status"],
            )?,
            certificate_life: r.histograms(
                "apiserver_client_certificate_expiration_seconds",
                "Seconds that the client certificate of a request had left.",
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

    /// Records one TokenReview.
    pub fn observe_authn(&self, code: &str, took: Duration) {
        self.authn.with_label_values(&[code]).inc();
        self.authn_duration
            .with_label_values(&[code])
            .observe(took.as_secs_f64());
    }

    /// Records one SubjectAccessReview.
    pub fn observe_authz(&self, code: &str, took: Duration) {
        self.authz.with_label_values(&[code]).inc();
        self.authz_duration
            .with_label_values(&[code])
            .observe(took.as_secs_f64());
    }

    /// Counts a request with a token that was known, or not.
    pub fn count_token_cache(&self, hit: bool) {
        let status = if hit { "hit" } else { "miss" };
        self.token_cache.with_label_values(&[status]).inc();
    }

    /// Counts a token that was asked about, with or without an answer.
    pub fn count_token_fetch(&self, answered: bool) {
        let status = if answered { "ok" } else { "error" };
        self.token_fetch.with_label_values(&[status]).inc();
    }

    /// Records what a client certificate had left, in seconds.
    pub fn observe_certificate_life(&self, seconds: i64) {
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds of a certificate's life are far below 2^53"
        )]
        let seconds = seconds as f64;
        self.certificate_life
            .with_label_values(&NO_LABELS)
            .observe(seconds);
    }
}
