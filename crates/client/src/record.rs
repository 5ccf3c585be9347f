//! Metrics of requests by method, code and duration, as upstream's `rest_client_*`.

use std::time::Duration;

use http::{Method, StatusCode};
use windlass_metrics::RestClientMetrics;

/// Counts the requests to one server.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    pub(crate) metrics: RestClientMetrics,
    /// Host and port.
    pub(crate) host: String,
}

impl Recorder {
    /// Records one request; without a response the code is `<error>`, as upstream.
    pub(crate) fn record(&self, method: &Method, status: Option<StatusCode>, took: Duration) {
        let code = status.as_ref().map_or("<error>", StatusCode::as_str);
        let (method, host) = (method.as_str(), self.host.as_str());
        self.metrics
            .requests
            .with_label_values(&[code, host, method])
            .inc();
        self.metrics
            .request_duration
            .with_label_values(&[method, host])
            .observe(took.as_secs_f64());
    }
}
