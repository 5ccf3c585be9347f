//! Families of requests to the API server.

use prometheus::{CounterVec, HistogramVec};

use crate::Registrar;

/// Handles to the families. Clones share them.
#[derive(Clone, Debug)]
pub struct RestClientMetrics {
    /// `rest_client_requests_total{code,host,method}`: requests to the API server.
    pub requests: CounterVec,
    /// `rest_client_request_duration_seconds{verb,host}`: until the response headers.
    pub request_duration: HistogramVec,
}

impl RestClientMetrics {
    /// Creates and registers the families.
    ///
    /// # Errors
    /// A family of the same name is registered.
    pub fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            requests: r.counters("rest_client_requests_total", "Number of HTTP requests to the API server, by status code, host and method.", &["code", "host", "method"])?,
            request_duration: r.histograms("rest_client_request_duration_seconds", "Duration in seconds of API server requests until the response headers, by verb and host.", vec![0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0], &["verb", "host"])?,
        })
    }
}
