//! All metric families of the agent.
//!
//! Names that start with `kubelet_` have the labels and units of the Go kubelet, so that its
//! dashboards work. Names that start with `windlass_` are specific to Windlass.
//!
//! # Entry points
//!
//! * [`Metrics::new`] creates all families; clones share them
//! * a field of [`Metrics`] is a family: a counter, gauge or histogram of the `prometheus` crate
//! * [`Metrics::render`] returns the text for `/metrics`; [`ProbeMetrics`] and [`SliMetrics`] have
//!   separate registries, as upstream
//!
//! # Example
//!
//! ```
//! let metrics = windlass_metrics::Metrics::new()?;
//! metrics.observe_runtime_operation("pull_image", 2.5, true);
//! metrics.running_pods.set(3.0);
//!
//! let page = metrics.render()?;
//! assert!(page.contains("kubelet_running_pods 3"));
//! assert!(page.contains("kubelet_runtime_operations_errors_total{operation_type=\"pull_image\"} 1"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `cargo run -p windlass-metrics --example print_metrics -- kubelet_pleg` prints the families
//! with this prefix.
//!
//! # Guarantees
//!
//! There is no global registry, so tests can run in parallel. [`Metrics::new`] fails only on a
//! duplicate name. Recording never fails. Label values are bounded, except for container labels,
//! which are removed with the pod.
//!
//! # Limits
//!
//! Only the `process_*` metrics are collected here, on each scrape; `windlass-server` serves the
//! text. `docs/reference/metrics.md` lists all families.

mod access;
mod build_info;
mod certificates;
mod plugins;
mod pod_resources;
mod probes;
mod process;
mod requests;
mod slis;
mod spans;
mod stability;
mod starts;
mod volumes;

pub use access::AccessMetrics;
pub use build_info::BuildInfoMetrics;
pub use certificates::CertificateMetrics;
pub use plugins::PluginMetrics;
pub use pod_resources::PodResourcesMetrics;
pub use probes::{ProbeLabels, ProbeMetrics, ProbeResult, ProbeSeries};
pub use prometheus::Counter;
use prometheus::{
    CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, Opts, Registry,
    TextEncoder,
};
pub use requests::{InFlightRequest, RequestLabels, RequestMetrics};
pub use slis::SliMetrics;
pub use spans::SpanMetrics;
pub use stability::Stability;
use stability::help_with_stability;
pub use starts::StartMetrics;
pub use volumes::{PvcStats, VolumeMetrics, VolumeWorld};

/// Handles to all families. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    /// Families of `/metrics/probes`, in a separate registry.
    pub probes: ProbeMetrics,
    /// Families of `/metrics/slis`, in a separate registry.
    pub slis: SliMetrics,
    /// Families of requests to the node API.
    pub requests: RequestMetrics,
    /// Families of version, feature gates and cgroup version.
    pub build_info: BuildInfoMetrics,
    /// Families of authentication and authorization.
    pub access: AccessMetrics,
    /// Families of certificates.
    pub certificates: CertificateMetrics,
    /// Families of plugins.
    pub plugins: PluginMetrics,
    /// Families of the PodResources and Pods services.
    pub pod_resources: PodResourcesMetrics,
    /// Families of trace spans.
    pub spans: SpanMetrics,
    /// Families of pod starts and image pulls.
    pub starts: StartMetrics,
    /// Families of volumes.
    pub volumes: VolumeMetrics,

    /// `kubelet_runtime_operations_total{operation_type}`.
    pub runtime_operations: CounterVec,
    /// `kubelet_runtime_operations_errors_total{operation_type}`.
    pub runtime_operations_errors: CounterVec,
    /// `kubelet_runtime_operations_duration_seconds{operation_type}`.
    pub runtime_operations_duration: HistogramVec,

    /// `kubelet_pleg_relist_duration_seconds`.
    pub pleg_relist_duration: Histogram,
    /// `kubelet_pleg_relist_interval_seconds`.
    pub pleg_relist_interval: Histogram,
    /// `kubelet_pleg_pod_relist_duration_seconds`: inspection of one pod.
    pub pleg_pod_relist_duration: Histogram,
    /// `kubelet_pleg_last_seen_seconds`: Unix time of the last successful relist.
    pub pleg_last_seen: Gauge,
    /// `kubelet_pleg_discard_events`: always 0, events are coalesced per pod.
    pub pleg_discard_events: Counter,

    /// `kubelet_pod_worker_duration_seconds{operation_type}`.
    pub pod_worker_duration: HistogramVec,
    /// `kubelet_pod_worker_start_duration_seconds`: seen to worker started.
    pub pod_worker_start_duration: Histogram,
    /// `kubelet_pod_start_duration_seconds`: seen to running.
    pub pod_start_duration: Histogram,
    /// `kubelet_started_pods_total`.
    pub started_pods: Counter,
    /// `kubelet_started_pods_errors_total`.
    pub started_pods_errors: Counter,
    /// `kubelet_started_containers_total{container_type}`.
    pub started_containers: CounterVec,
    /// `kubelet_started_containers_errors_total{container_type,code}`.
    pub started_containers_errors: CounterVec,
    /// `kubelet_terminated_containers_total{container_type,exit_code,reason}`.
    pub terminated_containers: CounterVec,
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
    /// `kubelet_admission_rejections_total{reason}`.
    pub admission_rejections: CounterVec,
    /// `kubelet_orphaned_runtime_pods_total`.
    pub orphaned_runtime_pods: Counter,
    /// `kubelet_orphan_pod_cleaned_volumes`.
    pub orphan_pods_cleaned: Gauge,
    /// `kubelet_orphan_pod_cleaned_volumes_errors`.
    pub orphan_pods_not_cleaned: Gauge,
    /// `kubelet_running_pods`.
    pub running_pods: Gauge,
    /// `kubelet_running_containers{container_state}`.
    pub running_containers: GaugeVec,
    /// `kubelet_desired_pods{static}`.
    pub desired_pods: GaugeVec,
    /// `kubelet_working_pods{lifecycle,config,static}`.
    pub working_pods: GaugeVec,
    /// `kubelet_mirror_pods`.
    pub mirror_pods: Gauge,
    /// `kubelet_pod_status_sync_duration_seconds`: status change to API server response.
    pub pod_status_sync_duration: Histogram,
    /// `kubelet_run_podsandbox_duration_seconds{runtime_handler}`.
    pub run_podsandbox_duration: HistogramVec,
    /// `kubelet_run_podsandbox_errors_total{runtime_handler}`.
    pub run_podsandbox_errors: CounterVec,
    /// `kubelet_node_name{node}`.
    pub node_name: GaugeVec,
    /// `kubelet_active_pods{static}`: pods that count for admission.
    pub active_pods: GaugeVec,
    /// `kubelet_restarted_pods_total{static}`: pods re-added with the same UID.
    pub restarted_pods: CounterVec,
    /// `kubelet_containers_per_pod_count`: app containers of each started pod.
    pub containers_per_pod: Histogram,
    /// `kubelet_graceful_shutdown_start_time_seconds`: Unix time, 0 before the first one.
    pub graceful_shutdown_start: Gauge,
    /// `kubelet_graceful_shutdown_end_time_seconds`: Unix time, 0 while in progress.
    pub graceful_shutdown_end: Gauge,
    /// `kubelet_node_startup_duration_seconds`: boot to ready; its phases follow.
    pub node_startup: Gauge,
    /// `kubelet_node_startup_pre_kubelet_duration_seconds`: boot to the agent's start.
    pub node_startup_pre_kubelet: Gauge,
    /// `kubelet_node_startup_pre_registration_duration_seconds`: start to first registration attempt.
    pub node_startup_pre_registration: Gauge,
    /// `kubelet_node_startup_registration_duration_seconds`: first attempt to Node object.
    pub node_startup_registration: Gauge,
    /// `kubelet_node_startup_post_registration_duration_seconds`: Node object to ready.
    pub node_startup_post_registration: Gauge,
    /// `process_start_time_seconds`.
    pub process_start_time: Gauge,

    /// `rest_client_requests_total{code,host,method}`: requests to the API server.
    pub rest_client_requests: CounterVec,
    /// `rest_client_request_duration_seconds{verb,host}`: until the response headers.
    pub rest_client_request_duration: HistogramVec,

    /// `windlass_mailbox_depth{actor}`: messages waiting.
    pub mailbox_depth: GaugeVec,
    /// `windlass_mailbox_oldest_seconds{actor}`: age of the oldest waiting message.
    pub mailbox_oldest: GaugeVec,
    /// `windlass_mailbox_dropped_total{actor}`: runtime events dropped because the mailbox was full.
    pub mailbox_dropped: CounterVec,
    /// `windlass_mailbox_messages_total{actor}`: messages handled.
    pub mailbox_messages: CounterVec,
    /// `windlass_source_rejected_manifests{source}`: manifests rejected in the last pass.
    pub source_rejected: GaugeVec,
    /// `windlass_pod_watch_failing_seconds`: 0 while the watch works.
    pub pod_watch_failing: Gauge,
    /// `windlass_sync_loop_events_total{cause}`.
    pub sync_loop_events: CounterVec,
    /// `windlass_events_dropped_total`: events dropped from a full queue.
    pub events_dropped: Counter,
    /// `windlass_start_slots_in_use`: start slots in use.
    pub start_slots_in_use: Gauge,
}

/// Upstream buckets of CRI operations: 14 from 5 ms, factor 2.5.
fn runtime_buckets() -> Vec<f64> {
    exponential(0.005, 2.5, 14)
}

fn exponential(start: f64, factor: f64, count: i32) -> Vec<f64> {
    (0..count).map(|i| start * factor.powi(i)).collect()
}

/// Default buckets of the client library.
fn default_buckets() -> Vec<f64> {
    prometheus::DEFAULT_BUCKETS.to_vec()
}

impl Metrics {
    /// Creates and registers all families. Fails only on a duplicate name.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let r = Registrar(&registry);
        process::register(&r)?;
        Ok(Self {
            runtime_operations: r.counters("kubelet_runtime_operations_total", "Number of runtime operations, by operation type.", &["operation_type"])?,
            runtime_operations_errors: r.counters("kubelet_runtime_operations_errors_total", "Number of runtime operation errors, by operation type.", &["operation_type"])?,
            runtime_operations_duration: r.histograms("kubelet_runtime_operations_duration_seconds", "Duration in seconds of runtime operations, by operation type.", runtime_buckets(), &["operation_type"])?,
            pleg_relist_duration: r.histogram("kubelet_pleg_relist_duration_seconds", "Duration in seconds of a relist.", default_buckets())?,
            pleg_relist_interval: r.histogram("kubelet_pleg_relist_interval_seconds", "Interval in seconds between relists.", default_buckets())?,
            pleg_pod_relist_duration: r.histogram("kubelet_pleg_pod_relist_duration_seconds", "Duration in seconds of the inspection of a pod.", default_buckets())?,
            pleg_last_seen: r.gauge("kubelet_pleg_last_seen_seconds", "Unix time of the last successful relist.")?,
            pleg_discard_events: r.counter("kubelet_pleg_discard_events", "Number of events discarded by the PLEG; always 0, events are coalesced per pod.")?,
            pod_worker_duration: r.histograms("kubelet_pod_worker_duration_seconds", "Duration in seconds of a pod sync, by operation type.", default_buckets(), &["operation_type"])?,
            pod_worker_start_duration: r.histogram("kubelet_pod_worker_start_duration_seconds", "Duration in seconds from receiving a pod to starting its worker.", default_buckets())?,
            pod_start_duration: r.histogram("kubelet_pod_start_duration_seconds", "Duration in seconds from receiving a pod to running all its containers.", vec![0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0])?,
            started_pods: r.counter("kubelet_started_pods_total", "Number of started pods.")?,
            started_pods_errors: r.counter("kubelet_started_pods_errors_total", "Number of pod start errors.")?,
            started_containers: r.counters("kubelet_started_containers_total", "Number of started containers.", &["container_type"])?,
            started_containers_errors: r.counters("kubelet_started_containers_errors_total", "Number of container start errors.", &["container_type", "code"])?,
            terminated_containers: r.counters("kubelet_terminated_containers_total", "Number of terminated containers.", &["container_type", "exit_code", "reason"])?,
            image_volumes_requested: r.counter("kubelet_image_volume_requested_total", "Number of requested image volumes.")?,
            image_volumes_mounted: r.counter("kubelet_image_volume_mounted_succeed_total", "Number of successful image volume mounts.")?,
            image_volumes_failed: r.counter("kubelet_image_volume_mounted_errors_total", "Number of failed image volume mounts.")?,
            hook_http_fallbacks: r.counter("kubelet_lifecycle_handler_http_fallbacks_total", "Number of lifecycle hooks that succeeded over HTTP after an HTTP response to HTTPS.")?,
            hook_sleeps_terminated: r.counter("kubelet_sleep_action_terminated_early_total", "Number of lifecycle hook sleeps that ended early.")?,
            admission_rejections: r.counters("kubelet_admission_rejections_total", "Number of pods rejected by admission, by reason.", &["reason"])?,
            orphaned_runtime_pods: r.counter("kubelet_orphaned_runtime_pods_total", "Number of orphaned pods found in the runtime.")?,
            orphan_pods_cleaned: r.gauge("kubelet_orphan_pod_cleaned_volumes", "Number of orphaned pods whose directories the last housekeeping round removed.")?,
            orphan_pods_not_cleaned: r.gauge("kubelet_orphan_pod_cleaned_volumes_errors", "Number of orphaned pods whose directories the last housekeeping round failed to remove.")?,
            running_pods: r.gauge("kubelet_running_pods", "Number of pods with a running sandbox.")?,
            running_containers: r.gauges("kubelet_running_containers", "Number of containers, by state.", &["container_state"])?,
            desired_pods: r.gauges("kubelet_desired_pods", "Number of desired pods, by whether the pod is static.", &["static"])?,
            working_pods: r.gauges("kubelet_working_pods", "Number of pods with a worker, by lifecycle, config and whether the pod is static.", &["lifecycle", "config", "static"])?,
            mirror_pods: r.gauge("kubelet_mirror_pods", "Number of mirror pods of this node in the API server.")?,
            pod_status_sync_duration: r.histogram("kubelet_pod_status_sync_duration_seconds", "Duration in seconds from a pod status change to its update in the API server.", vec![0.010, 0.050, 0.100, 0.500, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0])?,
            run_podsandbox_duration: r.histograms("kubelet_run_podsandbox_duration_seconds", "Duration in seconds of RunPodSandbox, by RuntimeClass handler.", default_buckets(), &["runtime_handler"])?,
            run_podsandbox_errors: r.counters("kubelet_run_podsandbox_errors_total", "Number of RunPodSandbox errors, by RuntimeClass handler.", &["runtime_handler"])?,
            node_name: r.gauges("kubelet_node_name", "Name of the node; always 1.", &["node"])?,
            active_pods: r.gauges("kubelet_active_pods", "Number of pods that count for admission.", &["static"])?,
            restarted_pods: r.counters("kubelet_restarted_pods_total", "Number of pods removed and added again with the same UID.", &["static"])?,
            containers_per_pod: r.histogram("kubelet_containers_per_pod_count", "Number of containers per started pod.", exponential(1.0, 2.0, 5))?,
            graceful_shutdown_start: r.gauge("kubelet_graceful_shutdown_start_time_seconds", "Unix time of the start of the last graceful shutdown.")?,
            graceful_shutdown_end: r.gauge("kubelet_graceful_shutdown_end_time_seconds", "Unix time of the end of the last graceful shutdown.")?,
            node_startup: r.gauge("kubelet_node_startup_duration_seconds", "Duration in seconds from host boot to the node being ready.")?,
            node_startup_pre_kubelet: r.gauge("kubelet_node_startup_pre_kubelet_duration_seconds", "Duration in seconds from host boot to agent start.")?,
            node_startup_pre_registration: r.gauge("kubelet_node_startup_pre_registration_duration_seconds", "Duration in seconds from agent start to the first registration attempt.")?,
            node_startup_registration: r.gauge("kubelet_node_startup_registration_duration_seconds", "Duration in seconds from the first registration attempt to the Node object.")?,
            node_startup_post_registration: r.gauge("kubelet_node_startup_post_registration_duration_seconds", "Duration in seconds from the Node object to the node being ready.")?,
            process_start_time: r.gauge("process_start_time_seconds", "Unix time of the process start.")?,
            rest_client_requests: r.counters("rest_client_requests_total", "Number of HTTP requests to the API server, by status code, host and method.", &["code", "host", "method"])?,
            rest_client_request_duration: r.histograms("rest_client_request_duration_seconds", "Duration in seconds of API server requests until the response headers, by verb and host.", vec![0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0], &["verb", "host"])?,
            mailbox_depth: r.gauges("windlass_mailbox_depth", "Number of messages in the mailbox, by actor.", &["actor"])?,
            mailbox_oldest: r.gauges("windlass_mailbox_oldest_seconds", "Age in seconds of the oldest message in the mailbox, by actor.", &["actor"])?,
            mailbox_dropped: r.counters("windlass_mailbox_dropped_total", "Number of runtime events dropped because the mailbox was full, by actor; a relist recovers them.", &["actor"])?,
            mailbox_messages: r.counters("windlass_mailbox_messages_total", "Number of messages processed, by actor.", &["actor"])?,
            source_rejected: r.gauges("windlass_source_rejected_manifests", "Number of manifests rejected in the last pass, by pod source.", &["source"])?,
            pod_watch_failing: r.gauge("windlass_pod_watch_failing_seconds", "Duration in seconds of the current failure to list and watch pods, 0 without a failure.")?,
            sync_loop_events: r.counters("windlass_sync_loop_events_total", "Number of SyncLoop iterations, by cause.", &["cause"])?,
            events_dropped: r.counter("windlass_events_dropped_total", "Number of events dropped because the send queue was full.")?,
            start_slots_in_use: r.gauge("windlass_start_slots_in_use", "Number of start slots in use.")?,
            probes: ProbeMetrics::new()?,
            slis: SliMetrics::new()?,
            requests: RequestMetrics::new(&r)?,
            build_info: BuildInfoMetrics::new(&r)?,
            access: AccessMetrics::new(&r)?,
            certificates: CertificateMetrics::new(&r)?,
            plugins: PluginMetrics::new(&r)?,
            pod_resources: PodResourcesMetrics::new(&r)?,
            spans: SpanMetrics::new(&r)?,
            starts: StartMetrics::new(&r)?,
            volumes: VolumeMetrics::new(&r)?,
            registry,
        })
    }

    /// Renders all families of `/metrics` in the Prometheus text format 0.0.4.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        render(&self.registry)
    }

    /// Records a completed CRI call.
    pub fn observe_runtime_operation(&self, operation: &str, seconds: f64, failed: bool) {
        self.runtime_operations
            .with_label_values(&[operation])
            .inc();
        self.runtime_operations_duration
            .with_label_values(&[operation])
            .observe(seconds);
        if failed {
            self.runtime_operations_errors
                .with_label_values(&[operation])
                .inc();
        }
    }
}

fn render(registry: &Registry) -> Result<String, prometheus::Error> {
    let mut text = String::with_capacity(16 * 1024);
    TextEncoder::new().encode_utf8(&registry.gather(), &mut text)?;
    Ok(text)
}

/// No labels: the family is absent until it has a value.
const NO_LABELS: [&str; 0] = [];

/// Creates a family and registers it.
struct Registrar<'a>(&'a Registry);

impl Registrar<'_> {
    fn add<C: prometheus::core::Collector + Clone + 'static>(
        &self,
        c: C,
    ) -> Result<C, prometheus::Error> {
        self.0.register(Box::new(c.clone()))?;
        Ok(c)
    }

    fn counter(&self, name: &str, help: &str) -> Result<Counter, prometheus::Error> {
        self.add(Counter::new(name, help_with_stability(name, help))?)
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<CounterVec, prometheus::Error> {
        self.add(CounterVec::new(
            Opts::new(name, help_with_stability(name, help)),
            labels,
        )?)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<Gauge, prometheus::Error> {
        self.add(Gauge::new(name, help_with_stability(name, help))?)
    }

    fn gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<GaugeVec, prometheus::Error> {
        self.add(GaugeVec::new(
            Opts::new(name, help_with_stability(name, help)),
            labels,
        )?)
    }

    fn histogram(
        &self,
        name: &str,
        help: &str,
        buckets: Vec<f64>,
    ) -> Result<Histogram, prometheus::Error> {
        self.add(Histogram::with_opts(
            HistogramOpts::new(name, help_with_stability(name, help)).buckets(buckets),
        )?)
    }

    fn histograms(
        &self,
        name: &str,
        help: &str,
        buckets: Vec<f64>,
        labels: &[&str],
    ) -> Result<HistogramVec, prometheus::Error> {
        self.add(HistogramVec::new(
            HistogramOpts::new(name, help_with_stability(name, help)).buckets(buckets),
            labels,
        )?)
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn rendered_names_have_no_added_suffixes() {
        let metrics = Metrics::new().expect("unique names");
        metrics.pleg_discard_events.inc_by(0.0);
        metrics.observe_runtime_operation("run_podsandbox", 0.1, true);
        let text = metrics.render().expect("text");
        assert!(text.contains("\nkubelet_pleg_discard_events 0\n"), "{text}");
        assert!(
            text.contains(
                "kubelet_runtime_operations_errors_total{operation_type=\"run_podsandbox\"} 1"
            ),
            "{text}"
        );
    }
}
