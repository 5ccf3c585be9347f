//! Families of dynamic resource allocation.

use std::collections::BTreeMap;

/// Label of the number of claims of all drivers.
const ANY_DRIVER: &str = "<any>";

families! {
    /// Families of dynamic resource allocation. Clones share them.
    DraMetrics

    operations: histograms("dra_operations_duration_seconds",
        "Duration in seconds of preparing or unpreparing all claims of a pod, by success.",
        buckets(), &["operation_name", "is_error"]);
    calls: histograms("dra_grpc_operations_duration_seconds",
        "Duration in seconds of a DRA driver call.",
        buckets(), &["driver_name", "method_name", "grpc_status_code"]);
    claims: gauges("dra_resource_claims_in_use",
        "Number of resource claims in use on the node, by driver; <any> counts each claim once.",
        &["driver_name"]);
}

/// Buckets of upstream: 15 from 0.1 s to 40 s.
fn buckets() -> Vec<f64> {
    let factor = 400_f64.powf(1.0 / 14.0);
    (0..15).map(|step| 0.1 * factor.powi(step)).collect()
}

impl DraMetrics {
    /// Records an operation on all claims of a pod.
    pub fn observe_operation(&self, name: &str, failed: bool, seconds: f64) {
        let labels = [name, if failed { "true" } else { "false" }];
        self.operations.with_label_values(&labels).observe(seconds);
    }

    /// Records a call with its gRPC method and status code.
    pub fn observe_call(&self, driver: &str, method: &str, code: &str, seconds: f64) {
        let labels = [driver, method, code];
        self.calls.with_label_values(&labels).observe(seconds);
    }

    /// Sets the number of claims in use, in total and by driver.
    pub fn set_claims_in_use(&self, all: usize, by_driver: &BTreeMap<&str, usize>) {
        self.claims.reset();
        let any = self.claims.with_label_values(&[ANY_DRIVER]);
        any.set(all as f64);
        for (driver, count) in by_driver {
            self.claims.with_label_values(&[driver]).set(*count as f64);
        }
    }
}
