//! Families of container starts, hooks and image volumes.

use prometheus::{Counter, CounterVec};

use crate::Registrar;

/// Handles to the families. Clones share them.
#[derive(Clone, Debug)]
pub struct ContainerMetrics {
    /// `kubelet_started_pods_total`.
    pub started_pods: Counter,
    /// `kubelet_started_pods_errors_total`.
    pub started_pods_errors: Counter,
    /// `kubelet_started_containers_total{container_type}`.
    pub started_containers: CounterVec,
    /// `kubelet_started_containers_errors_total{container_type,code}`.
    pub started_containers_errors: CounterVec,
    /// `kubelet_image_volume_requested_total`: image volumes of containers.
    pub image_volumes_requested: Counter,
    /// `kubelet_image_volume_mounted_succeed_total`.
    pub image_volumes_mounted: Counter,
    /// `kubelet_image_volume_mounted_errors_total`.
    pub image_volumes_failed: Counter,
    /// `kubelet_lifecycle_handler_http_fallbacks_total`.
    pub hook_http_fallbacks: Counter,
    /// `kubelet_sleep_action_terminated_early_total`.
    pub hook_sleeps_terminated: Counter,
}

impl ContainerMetrics {
    /// Creates and registers the families.
    ///
    /// # Errors
    /// A family of the same name is registered.
    pub fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            started_pods: r.counter("kubelet_started_pods_total", "Number of started pods.")?,
            started_pods_errors: r.counter("kubelet_started_pods_errors_total", "Number of pod start errors.")?,
            started_containers: r.counters("kubelet_started_containers_total", "Number of started containers.", &["container_type"])?,
            started_containers_errors: r.counters("kubelet_started_containers_errors_total", "Number of container start errors.", &["container_type", "code"])?,
            image_volumes_requested: r.counter("kubelet_image_volume_requested_total", "Number of requested image volumes.")?,
            image_volumes_mounted: r.counter("kubelet_image_volume_mounted_succeed_total", "Number of successful image volume mounts.")?,
            image_volumes_failed: r.counter("kubelet_image_volume_mounted_errors_total", "Number of failed image volume mounts.")?,
            hook_http_fallbacks: r.counter("kubelet_lifecycle_handler_http_fallbacks_total", "Number of lifecycle hooks that succeeded over HTTP after an HTTP response to HTTPS.")?,
            hook_sleeps_terminated: r.counter("kubelet_sleep_action_terminated_early_total", "Number of lifecycle hook sleeps that ended early.")?,
        })
    }
}
