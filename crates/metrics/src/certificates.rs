//! Families of the node's certificates.

use crate::NO_LABELS;

families! {
    /// Families of the node's certificates. Clones share them.
    CertificateMetrics

    client_ttl: gauges("kubelet_certificate_manager_client_ttl_seconds",
        "Remaining lifetime in seconds of the client certificate, negative after expiry, +Inf without one.",
        &NO_LABELS);
    server_ttl: gauges("kubelet_certificate_manager_server_ttl_seconds",
        "Remaining lifetime in seconds of the serving certificate, negative after expiry, +Inf without one.",
        &NO_LABELS);
    pub client_renew_errors: counter("kubelet_certificate_manager_client_expiration_renew_errors",
        "Number of failed client certificate requests.");
    pub server_renew_errors: counter("kubelet_server_expiration_renew_errors",
        "Number of failed serving certificate requests.");
    pub server_rotation: histogram("kubelet_certificate_manager_server_rotation_seconds",
        "Age in seconds of a serving certificate at its replacement.",
        vec![ 60.0, 3600.0, 14_400.0, 86_400.0, 604_800.0, 2_592_000.0, 7_776_000.0, 15_552_000.0, 31_104_000.0, 124_416_000.0, ]);
}

impl CertificateMetrics {
    /// Sets the remaining lifetime of the client certificate in seconds.
    pub fn set_client_ttl(&self, seconds: f64) {
        self.client_ttl.with_label_values(&NO_LABELS).set(seconds);
    }

    /// Sets the remaining lifetime of the serving certificate in seconds.
    pub fn set_server_ttl(&self, seconds: f64) {
        self.server_ttl.with_label_values(&NO_LABELS).set(seconds);
    }
}
