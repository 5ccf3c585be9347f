//! Families of requests to the node API.

use prometheus::{CounterVec, GaugeVec, HistogramVec};

use crate::{Registrar, default_buckets};

/// Handles to the families. Clones share them.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    /// `kubelet_http_requests_total{method,path,server_type,long_running}`.
    total: CounterVec,
    /// `kubelet_http_requests_duration_seconds{method,path,server_type,long_running}`.
    duration: HistogramVec,
    /// `kubelet_http_inflight_requests{method,path,server_type,long_running}`.
    inflight: GaugeVec,
    /// `kubelet_websocket_streaming_requests_total{subresource}`.
    websockets: CounterVec,
}

/// Label values, which clients cannot extend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLabels {
    /// Method, or `other`.
    pub method: &'static str,
    /// Group of endpoints, or `other`.
    pub path: &'static str,
    /// `readwrite` or `readonly`.
    pub server_type: &'static str,
    /// `true` for streams and profiles.
    pub long_running: bool,
}

impl RequestLabels {
    fn values(self) -> [&'static str; 4] {
        let long_running = if self.long_running { "true" } else { "false" };
        [self.method, self.path, self.server_type, long_running]
    }
}

impl RequestMetrics {
    pub(crate) fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        let labels = &["method", "path", "server_type", "long_running"];
        Ok(Self {
            total: r.counters(
                "kubelet_http_requests_total",
                "Number of received HTTP requests.",
                labels,
            )?,
            duration: r.histograms(
                "kubelet_http_requests_duration_seconds",
                "Duration in seconds of HTTP requests.",
                default_buckets(),
                labels,
            )?,
            inflight: r.gauges(
                "kubelet_http_inflight_requests",
                "Number of in-flight HTTP requests.",
                labels,
            )?,
            websockets: r.counters(
                "kubelet_websocket_streaming_requests_total",
                "Number of WebSocket requests for exec, attach and port-forward.",
                &["subresource"],
            )?,
        })
    }

    /// Counts a WebSocket for `exec`, `attach` or `portforward`.
    pub fn count_websocket(&self, subresource: &str) {
        self.websockets.with_label_values(&[subresource]).inc();
    }

    /// Counts a request, which is in flight until the returned guard is dropped.
    pub fn begin(&self, labels: RequestLabels) -> InFlightRequest {
        let values = labels.values();
        self.total.with_label_values(&values).inc();
        self.inflight.with_label_values(&values).inc();
        InFlightRequest {
            metrics: self.clone(),
            labels,
        }
    }
}

/// Guard of an in-flight request.
#[derive(Debug)]
pub struct InFlightRequest {
    metrics: RequestMetrics,
    labels: RequestLabels,
}

impl InFlightRequest {
    /// Records the duration in seconds.
    pub fn observe(&self, seconds: f64) {
        self.metrics
            .duration
            .with_label_values(&self.labels.values())
            .observe(seconds);
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.metrics
            .inflight
            .with_label_values(&self.labels.values())
            .dec();
    }
}
