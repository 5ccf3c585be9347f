//! Families about requests to the node's own API.

use prometheus::{CounterVec, GaugeVec, HistogramVec};

use crate::{Registrar, default_buckets};

/// Handles to the families. Cloning shares them.
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

/// Values of the labels; a client cannot make up new ones.
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
                "Number of the http requests received since the server started",
                labels,
            )?,
            duration: r.histograms(
                "kubelet_http_requests_duration_seconds",
                "Duration in seconds to serve http requests",
                default_buckets(),
                labels,
            )?,
            inflight: r.gauges(
                "kubelet_http_inflight_requests",
                "Number of the inflight http requests",
                labels,
            )?,
            websockets: r.counters(
                "kubelet_websocket_streaming_requests_total",
                "Number of WebSockets for exec, attach and port-forward that the agent serves.",
                &["subresource"],
            )?,
        })
    }

    /// Counts a WebSocket that the agent serves: `exec`, `attach` or `portforward`.
    pub fn count_websocket(&self, subresource: &str) {
        self.websockets.with_label_values(&[subresource]).inc();
    }

    /// Counts a request that begins. It is under way until the returned value is dropped.
    pub fn begin(&self, labels: RequestLabels) -> RequestUnderWay {
        let values = labels.values();
        self.total.with_label_values(&values).inc();
        self.inflight.with_label_values(&values).inc();
        RequestUnderWay {
            metrics: self.clone(),
            labels,
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub struct RequestUnderWay {
    metrics: RequestMetrics,
    labels: RequestLabels,
}

impl RequestUnderWay {
    /// It took so long.
    pub fn took(&self, seconds: f64) {
        self.metrics
            .duration
            .with_label_values(&self.labels.values())
            .observe(seconds);
    }
}

impl Drop for RequestUnderWay {
    fn drop(&mut self) {
        self.metrics
            .inflight
            .with_label_values(&self.labels.values())
            .dec();
    }
}
