//! Requests by method, code and duration, as upstream's `rest_client_*` families have them.

use std::time::Duration;

use http::{Method, StatusCode};
use windlass_metrics::Metrics;

/// Counts the requests to one server.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    pub(crate) metrics: Metrics,
    /// Host and port.
    pub(crate) host: String,
}

impl Recorder {
    /// One request; without a status there was no answer, which upstream calls `<error>`.
    pub(crate) fn record(&self, method: &Method, status: Option<StatusCode>, took: Duration) {
        let code = status.as_ref().map_or("<error>", StatusCode::as_str);
        let (method, host) = (method.as_str(), self.host.as_str());
        self.metrics
            .rest_client.requests
            .with_label_values(&[code, host, method])
            .inc();
        self.metrics
            .rest_client.request_duration
            .with_label_values(&[method, host])
            .observe(took.as_secs_f64());
    }
}
