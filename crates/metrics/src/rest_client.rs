//! Families of requests to the API server.

families! {
    /// Families of requests to the API server. Clones share them.
    RestClientMetrics

    pub requests: counters("rest_client_requests_total",
        "Number of HTTP requests to the API server, by status code, host and method.",
        &["code", "host", "method"]);
    pub request_duration: histograms("rest_client_request_duration_seconds",
        "Duration in seconds of API server requests until the response headers, by verb and host.",
        vec![0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0], &["verb", "host"]);
}
