//! Families of the PodResources and Pods services.

use prometheus::{Counter, CounterVec};

use crate::Registrar;

/// Handles to the families of both services. Clones share them.
#[derive(Clone, Debug)]
pub struct PodResourcesMetrics {
    /// `kubelet_pod_resources_endpoint_requests_total{server_api_version}`.
    pub requests: CounterVec,
    /// `kubelet_pod_resources_endpoint_requests_list{server_api_version}`.
    pub lists: CounterVec,
    /// `kubelet_pod_resources_endpoint_requests_get_allocatable{server_api_version}`.
    pub allocatable: CounterVec,
    /// `kubelet_pod_resources_endpoint_requests_get{server_api_version}`.
    pub gets: CounterVec,
    /// `kubelet_pod_resources_endpoint_errors_get{server_api_version}`.
    pub get_errors: CounterVec,
    /// `kubelet_pod_watch_events_dropped_total`: always 0, a slow watch skips intermediate
    /// states only.
    pub watch_events_dropped: Counter,
}

impl PodResourcesMetrics {
    pub(crate) fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        let family = |suffix: &str, help: &str| {
            let name = format!("kubelet_pod_resources_endpoint_{suffix}");
            r.counters(&name, help, &["server_api_version"])
        };
        Ok(Self {
            requests: family(
                "requests_total",
                "Number of requests to the PodResources service, by API version.",
            )?,
            lists: family("requests_list", "Number of List requests.")?,
            allocatable: family(
                "requests_get_allocatable",
                "Number of GetAllocatableResources requests.",
            )?,
            gets: family("requests_get", "Number of Get requests.")?,
            get_errors: family("errors_get", "Number of Get requests for a pod that does not exist.")?,
            watch_events_dropped: r.counter(
                "kubelet_pod_watch_events_dropped_total",
                "Number of pod changes dropped from a watch; always 0, a slow watch gets the latest state.",
            )?,
        })
    }
}
