//! Families about the node's certificates.

use prometheus::{Counter, GaugeVec, Histogram};

use crate::{NO_LABELS, Registrar};

/// Handles to the families. Cloning shares them.
#[derive(Clone, Debug)]
pub struct CertificateMetrics {
    /// `kubelet_certificate_manager_client_ttl_seconds`.
    client_ttl: GaugeVec,
    /// `kubelet_certificate_manager_server_ttl_seconds`.
    server_ttl: GaugeVec,
    /// `kubelet_certificate_manager_client_expiration_renew_errors`.
    pub client_renew_errors: Counter,
    /// `kubelet_server_expiration_renew_errors`.
    pub server_renew_errors: Counter,
    /// `kubelet_certificate_manager_server_rotation_seconds`: how long the certificate before had
    /// lived.
    pub server_rotation: Histogram,
}

impl CertificateMetrics {
    pub(crate) fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            client_ttl: r.gauges(
                "kubelet_certificate_manager_client_ttl_seconds",
                "Seconds until the client certificate runs out, negative afterwards; +Inf without one.",
                &NO_LABELS,
            )?,
            server_ttl: r.gauges(
                "kubelet_certificate_manager_server_ttl_seconds",
                "Seconds until the serving certificate runs out, negative afterwards; +Inf without one.",
                &NO_LABELS,
            )?,
            client_renew_errors: r.counter(
                "kubelet_certificate_manager_client_expiration_renew_errors",
                "Attempts to get a client certificate that failed.",
            )?,
            server_renew_errors: r.counter(
                "kubelet_server_expiration_renew_errors",
                "Attempts to get a serving certificate that failed.",
            )?,
            server_rotation: r.histogram(
                "kubelet_certificate_manager_server_rotation_seconds",
                "Seconds that a serving certificate had lived when another took its place.",
                vec![
                    60.0,
                    3600.0,
                    14_400.0,
                    86_400.0,
                    604_800.0,
                    2_592_000.0,
                    7_776_000.0,
                    15_552_000.0,
                    31_104_000.0,
                    124_416_000.0,
                ],
            )?,
        })
    }

    /// What the client certificate has left, in seconds.
    pub fn set_client_ttl(&self, seconds: f64) {
        self.client_ttl.with_label_values(&NO_LABELS).set(seconds);
    }

    /// What the serving certificate has left, in seconds.
    pub fn set_server_ttl(&self, seconds: f64) {
        self.server_ttl.with_label_values(&NO_LABELS).set(seconds);
    }
}
