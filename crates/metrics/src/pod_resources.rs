//! Families about the PodResources and Pods services on the node's sockets.

use prometheus::{Counter, CounterVec};

use crate::Registrar;

/// Handles to the families about both services. Cloning shares them.
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
    /// `kubelet_pod_watch_events_dropped_total`: stays 0, a slow watch misses intermediate states
    /// and loses no pod.
    pub watch_events_dropped: Counter,
}

impl PodResourcesMetrics {
    pub(crate) fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        let family = |what: &str, help: &str| {
            let name = format!("kubelet_pod_resources_endpoint_{what}");
            r.counters(&name, help, &["server_api_version"])
        };
        Ok(Self {
            requests: family(
                "requests_total",
                "Requests to the PodResources service, by its version.",
            )?,
            lists: family("requests_list", "Lists of pods with their resources.")?,
            allocatable: family(
                "requests_get_allocatable",
                "Questions for all resources of the node.",
            )?,
            gets: family("requests_get", "Questions for the resources of one pod.")?,
            get_errors: family("errors_get", "Questions for a pod that is not there.")?,
            watch_events_dropped: r.counter(
                "kubelet_pod_watch_events_dropped_total",
                "Changes of pods kept from a watch; always 0, a slow one gets the latest state.",
            )?,
        })
    }
}
