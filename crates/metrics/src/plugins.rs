//! Families of plugins, CSI drivers and credential providers.

families! {
    /// Families of plugins, CSI drivers and credential providers. Clones share them.
    PluginMetrics

    total: gauges("plugin_manager_total_plugins",
        "Number of plugins, by socket path and state (desired or registered).",
        &["socket_path", "state"]);
    csi_operations: histograms("csi_operations_seconds",
        "Duration in seconds of a CSI driver call.",
        vec![0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0], &["driver_name", "method_name", "grpc_status_code", "migrated"]);
    credential_runs: histograms("kubelet_credential_provider_plugin_duration",
        "Duration in seconds of a credential provider plugin execution.",
        prometheus::DEFAULT_BUCKETS.to_vec(), &["plugin_name"]);
    credential_errors: counters("kubelet_credential_provider_plugin_errors_total",
        "Number of failed credential provider plugin executions.",
        &["plugin_name"]);
    device_registrations: counters("kubelet_device_plugin_registration_total",
        "Number of registration requests of device plugins.",
        &["resource_name"]);
    device_allocations: histograms("kubelet_device_plugin_alloc_duration_seconds",
        "Duration in seconds of an Allocate call of a device plugin.",
        prometheus::DEFAULT_BUCKETS.to_vec(), &["resource_name"]);
}

impl PluginMetrics {
    /// Sets whether the socket of a plugin exists.
    pub fn set_desired(&self, socket: &str, desired: bool) {
        self.set(socket, "desired_state_of_world", desired);
    }

    /// Sets whether a plugin is registered.
    pub fn set_registered(&self, socket: &str, registered: bool) {
        self.set(socket, "actual_state_of_world", registered);
    }

    fn set(&self, socket: &str, state: &str, present: bool) {
        let labels = [socket, state];
        match present {
            true => self.total.with_label_values(&labels).set(1.0),
            // absent if it was never set
            false => drop(self.total.remove_label_values(&labels)),
        }
    }

    /// Records a CSI driver call with its gRPC method (`/csi.v1.Node/NodeGetInfo`) and status
    /// code (`OK`).
    pub fn observe_csi_call(&self, driver: &str, method: &str, code: &str, seconds: f64) {
        self.csi_operations
            .with_label_values(&[driver, method, code, "false"])
            .observe(seconds);
    }

    /// Counts a registration request of a device plugin.
    pub fn count_device_registration(&self, resource: &str) {
        let requests = self.device_registrations.with_label_values(&[resource]);
        requests.inc();
    }

    /// Records an Allocate call of a device plugin.
    pub fn observe_device_allocation(&self, resource: &str, seconds: f64) {
        let duration = self.device_allocations.with_label_values(&[resource]);
        duration.observe(seconds);
    }

    /// Records an execution of a credential provider plugin.
    pub fn observe_credential_provider(&self, name: &str, seconds: f64, failed: bool) {
        let duration = self.credential_runs.with_label_values(&[name]);
        duration.observe(seconds);
        if failed {
            self.credential_errors.with_label_values(&[name]).inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Metrics;

    #[test]
    fn plugins_are_counted_by_state_and_calls_by_code() {
        let metrics = Metrics::new().expect("unique names");
        metrics.plugins.set_desired("/a", true);
        metrics.plugins.set_registered("/a", true);
        metrics.plugins.set_registered("/a", false);
        metrics.plugins.set_registered("/b", false);
        metrics
            .plugins
            .observe_csi_call("d", "/csi.v1.Node/NodeGetInfo", "OK", 0.2);
        let text = metrics.render().expect("text");
        let desired =
            "plugin_manager_total_plugins{socket_path=\"/a\",state=\"desired_state_of_world\"} 1";
        assert!(text.contains(desired), "{text}");
        assert!(!text.contains("actual_state_of_world\"} "), "{text}");
        let call = "csi_operations_seconds_count{driver_name=\"d\",grpc_status_code=\"OK\",\
                    method_name=\"/csi.v1.Node/NodeGetInfo\",migrated=\"false\"} 1";
        assert!(text.contains(call), "{text}");
    }
}
