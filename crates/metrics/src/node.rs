//! Families of the node and its start and shutdown.

use prometheus::{Gauge, GaugeVec};

use crate::Registrar;

/// Handles to the families. Clones share them.
#[derive(Clone, Debug)]
pub struct NodeMetrics {
    /// `kubelet_node_name{node}`.
    pub name: GaugeVec,
    /// `kubelet_graceful_shutdown_start_time_seconds`: Unix time, 0 before the first one.
    pub shutdown_start: Gauge,
    /// `kubelet_graceful_shutdown_end_time_seconds`: Unix time, 0 while in progress.
    pub shutdown_end: Gauge,
    /// `kubelet_node_startup_duration_seconds`: boot to ready; its phases follow.
    pub startup: Gauge,
    /// `kubelet_node_startup_pre_kubelet_duration_seconds`: boot to the agent's start.
    pub startup_pre_kubelet: Gauge,
    /// `kubelet_node_startup_pre_registration_duration_seconds`: start to first registration attempt.
    pub startup_pre_registration: Gauge,
    /// `kubelet_node_startup_registration_duration_seconds`: first attempt to Node object.
    pub startup_registration: Gauge,
    /// `kubelet_node_startup_post_registration_duration_seconds`: Node object to ready.
    pub startup_post_registration: Gauge,
    /// `process_start_time_seconds`.
    pub process_start_time: Gauge,
}

impl NodeMetrics {
    /// Creates and registers the families.
    ///
    /// # Errors
    /// A family of the same name is registered.
    pub fn new(r: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            name: r.gauges(
                "kubelet_node_name",
                "Name of the node; always 1.",
                &["node"],
            )?,
            shutdown_start: r.gauge(
                "kubelet_graceful_shutdown_start_time_seconds",
                "Unix time of the start of the last graceful shutdown.",
            )?,
            shutdown_end: r.gauge(
                "kubelet_graceful_shutdown_end_time_seconds",
                "Unix time of the end of the last graceful shutdown.",
            )?,
            startup: r.gauge(
                "kubelet_node_startup_duration_seconds",
                "Duration in seconds from host boot to the node being ready.",
            )?,
            startup_pre_kubelet: r.gauge(
                "kubelet_node_startup_pre_kubelet_duration_seconds",
                "Duration in seconds from host boot to agent start.",
            )?,
            startup_pre_registration: r.gauge(
                "kubelet_node_startup_pre_registration_duration_seconds",
                "Duration in seconds from agent start to the first registration attempt.",
            )?,
            startup_registration: r.gauge(
                "kubelet_node_startup_registration_duration_seconds",
                "Duration in seconds from the first registration attempt to the Node object.",
            )?,
            startup_post_registration: r.gauge(
                "kubelet_node_startup_post_registration_duration_seconds",
                "Duration in seconds from the Node object to the node being ready.",
            )?,
            process_start_time: r.gauge(
                "process_start_time_seconds",
                "Unix time of the process start.",
            )?,
        })
    }
}
