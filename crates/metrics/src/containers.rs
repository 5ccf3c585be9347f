//! Families of container starts, hooks and image volumes.

families! {
    /// Families of container starts, hooks and image volumes. Clones share them.
    ContainerMetrics

    pub started_pods: counter("kubelet_started_pods_total", "Number of started pods.");
    pub started_pods_errors: counter("kubelet_started_pods_errors_total", "Number of pod start errors.");
    pub started_user_namespaced_pods: counter("kubelet_started_user_namespaced_pods_total",
        "Number of started pods with a user namespace.");
    pub started_user_namespaced_pods_errors: counter("kubelet_started_user_namespaced_pods_errors_total",
        "Number of pod starts with a user namespace in which a step failed.");
    pub started_containers: counters("kubelet_started_containers_total",
        "Number of started containers.",
        &["container_type"]);
    pub started_containers_errors: counters("kubelet_started_containers_errors_total",
        "Number of container start errors.",
        &["container_type", "code"]);
    pub image_volumes_requested: counter("kubelet_image_volume_requested_total",
        "Number of requested image volumes.");
    pub image_volumes_mounted: counter("kubelet_image_volume_mounted_succeed_total",
        "Number of successful image volume mounts.");
    pub image_volumes_failed: counter("kubelet_image_volume_mounted_errors_total",
        "Number of failed image volume mounts.");
    pub hook_http_fallbacks: counter("kubelet_lifecycle_handler_http_fallbacks_total",
        "Number of lifecycle hooks that succeeded over HTTP after an HTTP response to HTTPS.");
    pub hook_sleeps_terminated: counter("kubelet_sleep_action_terminated_early_total",
        "Number of lifecycle hook sleeps that ended early.");
}
