//! Every metric family of the agent, made once in `main` and handed to whoever records.
//!
//! For whoever uses a Windlass crate in a program of their own: most of them ask for a [`Metrics`],
//! and this is how to make one and to show it. Names that start with `kubelet_` are upstream's and
//! keep upstream's labels and units, so that dashboards made for the Go kubelet work; names that
//! start with `windlass_` have no counterpart there.
//!
//! # The way in
//!
//! * [`Metrics::new`] makes all families; cloning shares them
//! * a field of [`Metrics`] is a family: a counter, gauge or histogram of the `prometheus` crate
//! * [`Metrics::render`] is the page behind `/metrics`; [`ProbeMetrics`] and [`SliMetrics`] have
//!   registries and pages of their own, as upstream
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
//! whose names begin so.
//!
//! # What it promises
//!
//! There is no global registry: two [`Metrics`] in one process know nothing of each other, which is
//! how tests run side by side. [`Metrics::new`] fails only if two families share a name. Recording
//! never fails. Labels have few values, but for those that name a pod's container, which go with
//! the pod.
//!
//! # What it does not do
//!
//! It measures nothing by itself, but for the process (`process_*`, read when the page is made),
//! and serves nothing: `windlass-server` does. All families are listed with their labels in
//! `docs/reference/metrics.md`.

mod about;
mod access;
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

pub use about::AboutMetrics;
pub use access::AccessMetrics;
pub use certificates::CertificateMetrics;
pub use plugins::PluginMetrics;
pub use pod_resources::PodResourcesMetrics;
pub use probes::{ProbeLabels, ProbeMetrics, ProbeResult, ProbeSeries};
pub use prometheus::Counter;
use prometheus::{
    CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, Opts, Registry,
    TextEncoder,
};
pub use requests::{RequestLabels, RequestMetrics, RequestUnderWay};
pub use slis::SliMetrics;
pub use spans::SpanMetrics;
pub use stability::Stability;
use stability::shown_help;
pub use starts::StartMetrics;
pub use volumes::{ClaimStats, VolumeMetrics, VolumeWorld};

/// Handles to all families. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    /// What `/metrics/probes` serves, in a registry of its own.
    pub probes: ProbeMetrics,
    /// What `/metrics/slis` serves, in a registry of its own.
    pub slis: SliMetrics,
    /// Families about requests to the node's own API.
    pub requests: RequestMetrics,
    /// What this agent is.
    pub about: AboutMetrics,
    /// Families about who asks the node's API.
    pub access: AccessMetrics,
    /// Families about the node's certificates.
    pub certificates: CertificateMetrics,
    /// Families about plugins.
    pub plugins: PluginMetrics,
    /// Families about the PodResources and Pods services.
    pub pod_resources: PodResourcesMetrics,
    /// Families about the spans of traces.
    pub spans: SpanMetrics,
    /// Families about starts of pods and pulls of images.
    pub starts: StartMetrics,
    /// Families about volumes.
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
    /// `kubelet_pleg_pod_relist_duration_seconds`: one pod's inspection.
    pub pleg_pod_relist_duration: Histogram,
    /// `kubelet_pleg_last_seen_seconds`: Unix time of the last successful relist.
    pub pleg_last_seen: Gauge,
    /// `kubelet_pleg_discard_events`: stays 0, events are coalesced per pod and never dropped.
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
    /// `kubelet_image_volume_requested_total`: images that containers were to mount.
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
    /// `kubelet_pod_status_sync_duration_seconds`: a status changed to the API server has it.
    pub pod_status_sync_duration: Histogram,
    /// `kubelet_run_podsandbox_duration_seconds{runtime_handler}`.
    pub run_podsandbox_duration: HistogramVec,
    /// `kubelet_run_podsandbox_errors_total{runtime_handler}`.
    pub run_podsandbox_errors: CounterVec,
    /// `kubelet_node_name{node}`.
    pub node_name: GaugeVec,
    /// `kubelet_active_pods{static}`: pods whose resources count when another is admitted.
    pub active_pods: GaugeVec,
    /// `kubelet_restarted_pods_total{static}`: pods that came back under the UID that was removed.
    pub restarted_pods: CounterVec,
    /// `kubelet_containers_per_pod_count`: app containers of each pod that is started.
    pub containers_per_pod: Histogram,
    /// `kubelet_graceful_shutdown_start_time_seconds`: Unix time; 0 if there was none.
    pub graceful_shutdown_start: Gauge,
    /// `kubelet_graceful_shutdown_end_time_seconds`: Unix time; 0 while it is under way.
    pub graceful_shutdown_end: Gauge,
    /// `kubelet_node_startup_duration_seconds`: boot to ready. The parts of it follow.
    pub node_startup: Gauge,
    /// `kubelet_node_startup_pre_kubelet_duration_seconds`: boot to the agent's start.
    pub node_startup_pre_kubelet: Gauge,
    /// `kubelet_node_startup_pre_registration_duration_seconds`: to the first attempt.
    pub node_startup_pre_registration: Gauge,
    /// `kubelet_node_startup_registration_duration_seconds`: to the new object.
    pub node_startup_registration: Gauge,
    /// `kubelet_node_startup_post_registration_duration_seconds`: to the ready node.
    pub node_startup_post_registration: Gauge,
    /// `process_start_time_seconds`.
    pub process_start_time: Gauge,

    /// `rest_client_requests_total{code,host,method}`: requests to the API server.
    pub rest_client_requests: CounterVec,
    /// `rest_client_request_duration_seconds{verb,host}`: until the answer begins.
    pub rest_client_request_duration: HistogramVec,

    /// `windlass_mailbox_depth{actor}`: messages waiting.
    pub mailbox_depth: GaugeVec,
    /// `windlass_mailbox_oldest_seconds{actor}`: age of the oldest waiting message.
    pub mailbox_oldest: GaugeVec,
    /// `windlass_mailbox_dropped_total{actor}`: hints not accepted because the mailbox was full.
    pub mailbox_dropped: CounterVec,
    /// `windlass_mailbox_messages_total{actor}`: messages handled.
    pub mailbox_messages: CounterVec,
    /// `windlass_source_rejected_manifests{source}`: manifests of the last pass that were refused.
    pub source_rejected: GaugeVec,
    /// `windlass_pod_watch_failing_seconds`: zero while the pods of the node can be watched.
    pub pod_watch_failing: Gauge,
    /// `windlass_sync_loop_events_total{cause}`.
    pub sync_loop_events: CounterVec,
    /// `windlass_events_dropped_total`: events that had to make room for newer ones.
    pub events_dropped: Counter,
    /// `windlass_start_slots_in_use`: pods starting at this moment.
    pub start_slots_in_use: Gauge,
}

/// Upstream's buckets for CRI operations: 5 ms, ×2.5, 14 of them.
fn runtime_buckets() -> Vec<f64> {
    exponential(0.005, 2.5, 14)
}

fn exponential(start: f64, factor: f64, count: i32) -> Vec<f64> {
    (0..count).map(|i| start * factor.powi(i)).collect()
}

/// The client library's default buckets, which upstream uses for the pod worker and PLEG.
fn default_buckets() -> Vec<f64> {
    prometheus::DEFAULT_BUCKETS.to_vec()
}

impl Metrics {
    /// Makes and registers every family. Fails only if two families share a name.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let r = Registrar(&registry);
        process::register(&r)?;
        Ok(Self {
            runtime_operations: r.counters("kubelet_runtime_operations_total", "Cumulative number of runtime operations by operation type.", &["operation_type"])?,
            runtime_operations_errors: r.counters("kubelet_runtime_operations_errors_total", "Cumulative number of runtime operation errors by operation type.", &["operation_type"])?,
            runtime_operations_duration: r.histograms("kubelet_runtime_operations_duration_seconds", "Duration in seconds of runtime operations, by operation type.", runtime_buckets(), &["operation_type"])?,
            pleg_relist_duration: r.histogram("kubelet_pleg_relist_duration_seconds", "Duration in seconds of a full listing of the runtime.", default_buckets())?,
            pleg_relist_interval: r.histogram("kubelet_pleg_relist_interval_seconds", "Seconds between two full listings of the runtime.", default_buckets())?,
            pleg_pod_relist_duration: r.histogram("kubelet_pleg_pod_relist_duration_seconds", "Duration in seconds of the inspection of one pod.", default_buckets())?,
            pleg_last_seen: r.gauge("kubelet_pleg_last_seen_seconds", "Unix time of the last successful listing of the runtime.")?,
            pleg_discard_events: r.counter("kubelet_pleg_discard_events", "Events discarded by the PLEG; always 0, they are coalesced per pod.")?,
            pod_worker_duration: r.histograms("kubelet_pod_worker_duration_seconds", "Duration in seconds of one job of a pod worker, by operation type.", default_buckets(), &["operation_type"])?,
            pod_worker_start_duration: r.histogram("kubelet_pod_worker_start_duration_seconds", "Seconds from seeing a pod to starting its worker.", default_buckets())?,
            pod_start_duration: r.histogram("kubelet_pod_start_duration_seconds", "Seconds from seeing a pod to all its containers running.", vec![0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0])?,
            started_pods: r.counter("kubelet_started_pods_total", "Cumulative number of pods started.")?,
            started_pods_errors: r.counter("kubelet_started_pods_errors_total", "Cumulative number of errors when starting pods.")?,
            started_containers: r.counters("kubelet_started_containers_total", "Cumulative number of containers started.", &["container_type"])?,
            started_containers_errors: r.counters("kubelet_started_containers_errors_total", "Cumulative number of errors when starting containers.", &["container_type", "code"])?,
            terminated_containers: r.counters("kubelet_terminated_containers_total", "Cumulative number of container terminations.", &["container_type", "exit_code", "reason"])?,
            image_volumes_requested: r.counter("kubelet_image_volume_requested_total", "Number of requested image volumes.")?,
            image_volumes_mounted: r.counter("kubelet_image_volume_mounted_succeed_total", "Number of successful image volume mounts.")?,
            image_volumes_failed: r.counter("kubelet_image_volume_mounted_errors_total", "Number of failed image volume mounts.")?,
            hook_http_fallbacks: r.counter("kubelet_lifecycle_handler_http_fallbacks_total", "Lifecycle hooks that succeeded over HTTP after HTTPS was answered in plain HTTP.")?,
            hook_sleeps_terminated: r.counter("kubelet_sleep_action_terminated_early_total", "Sleeps of lifecycle hooks that ended before their time.")?,
            admission_rejections: r.counters("kubelet_admission_rejections_total", "Cumulative number of pods that this node refused.", &["reason"])?,
            orphaned_runtime_pods: r.counter("kubelet_orphaned_runtime_pods_total", "Pods found running without a configuration.")?,
            orphan_pods_cleaned: r.gauge("kubelet_orphan_pod_cleaned_volumes", "Orphaned pods whose directories the last clean-up removed.")?,
            orphan_pods_not_cleaned: r.gauge("kubelet_orphan_pod_cleaned_volumes_errors", "Orphaned pods whose directories the last clean-up could not remove.")?,
            running_pods: r.gauge("kubelet_running_pods", "Pods that have a running sandbox.")?,
            running_containers: r.gauges("kubelet_running_containers", "Containers by state.", &["container_state"])?,
            desired_pods: r.gauges("kubelet_desired_pods", "Pods the agent is asked to run.", &["static"])?,
            working_pods: r.gauges("kubelet_working_pods", "Pods the agent works on, by lifecycle, presence in the configuration and kind.", &["lifecycle", "config", "static"])?,
            mirror_pods: r.gauge("kubelet_mirror_pods", "Mirror pods of this node that the API server has.")?,
            pod_status_sync_duration: r.histogram("kubelet_pod_status_sync_duration_seconds", "Seconds from a change of a pod's status to the API server having it.", vec![0.010, 0.050, 0.100, 0.500, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0])?,
            run_podsandbox_duration: r.histograms("kubelet_run_podsandbox_duration_seconds", "Duration in seconds of RunPodSandbox, by RuntimeClass handler.", default_buckets(), &["runtime_handler"])?,
            run_podsandbox_errors: r.counters("kubelet_run_podsandbox_errors_total", "Errors of RunPodSandbox, by RuntimeClass handler.", &["runtime_handler"])?,
            node_name: r.gauges("kubelet_node_name", "The node's name; always 1.", &["node"])?,
            active_pods: r.gauges("kubelet_active_pods", "Pods that count when another pod is admitted.", &["static"])?,
            restarted_pods: r.counters("kubelet_restarted_pods_total", "Pods removed and asked for again with the same UID while the agent ran.", &["static"])?,
            containers_per_pod: r.histogram("kubelet_containers_per_pod_count", "Containers per pod that is started.", exponential(1.0, 2.0, 5))?,
            graceful_shutdown_start: r.gauge("kubelet_graceful_shutdown_start_time_seconds", "Unix time at which the last graceful shutdown began.")?,
            graceful_shutdown_end: r.gauge("kubelet_graceful_shutdown_end_time_seconds", "Unix time at which the last graceful shutdown ended.")?,
            node_startup: r.gauge("kubelet_node_startup_duration_seconds", "Seconds from the machine's boot to the new node being ready.")?,
            node_startup_pre_kubelet: r.gauge("kubelet_node_startup_pre_kubelet_duration_seconds", "Seconds from the machine's boot to the agent's start.")?,
            node_startup_pre_registration: r.gauge("kubelet_node_startup_pre_registration_duration_seconds", "Seconds from the agent's start to its first attempt to register.")?,
            node_startup_registration: r.gauge("kubelet_node_startup_registration_duration_seconds", "Seconds from the first attempt to register to the new node object.")?,
            node_startup_post_registration: r.gauge("kubelet_node_startup_post_registration_duration_seconds", "Seconds from the new node object to the node being ready.")?,
            process_start_time: r.gauge("process_start_time_seconds", "Unix time at which the process started.")?,
            rest_client_requests: r.counters("rest_client_requests_total", "Number of HTTP requests to the API server, by status code, host and method.", &["code", "host", "method"])?,
            rest_client_request_duration: r.histograms("rest_client_request_duration_seconds", "Seconds until the API server answers a request, by verb and host.", vec![0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0], &["verb", "host"])?,
            mailbox_depth: r.gauges("windlass_mailbox_depth", "Messages waiting in an actor's mailbox.", &["actor"])?,
            mailbox_oldest: r.gauges("windlass_mailbox_oldest_seconds", "Age in seconds of the oldest message waiting in an actor's mailbox.", &["actor"])?,
            mailbox_dropped: r.counters("windlass_mailbox_dropped_total", "Hints an actor's mailbox refused because it was full; each is re-derived by a relist.", &["actor"])?,
            mailbox_messages: r.counters("windlass_mailbox_messages_total", "Messages an actor has taken from its mailbox.", &["actor"])?,
            source_rejected: r.gauges("windlass_source_rejected_manifests", "Manifests the last pass of a pod source refused.", &["source"])?,
            pod_watch_failing: r.gauge("windlass_pod_watch_failing_seconds", "Duration in seconds for which list and watch of the pods of this node have failed, 0 while they succeed.")?,
            sync_loop_events: r.counters("windlass_sync_loop_events_total", "Iterations of the SyncLoop by cause.", &["cause"])?,
            events_dropped: r.counter("windlass_events_dropped_total", "Events for the API server that made room for newer ones.")?,
            start_slots_in_use: r.gauge("windlass_start_slots_in_use", "Pods that hold a start slot.")?,
            probes: ProbeMetrics::new()?,
            slis: SliMetrics::new()?,
            requests: RequestMetrics::new(&r)?,
            about: AboutMetrics::new(&r)?,
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

    /// All families but those about probes in Prometheus' text format 0.0.4.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        render(&self.registry)
    }

    /// Records one finished CRI call.
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

/// Of families without labels that are absent until they have a value.
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
        self.add(Counter::new(name, shown_help(name, help))?)
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<CounterVec, prometheus::Error> {
        self.add(CounterVec::new(
            Opts::new(name, shown_help(name, help)),
            labels,
        )?)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<Gauge, prometheus::Error> {
        self.add(Gauge::new(name, shown_help(name, help))?)
    }

    fn gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<GaugeVec, prometheus::Error> {
        self.add(GaugeVec::new(
            Opts::new(name, shown_help(name, help)),
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
            HistogramOpts::new(name, shown_help(name, help)).buckets(buckets),
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
            HistogramOpts::new(name, shown_help(name, help)).buckets(buckets),
            labels,
        )?)
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn text_carries_upstream_names_without_suffixes_added() {
        let metrics = Metrics::new().expect("no two families share a name");
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
