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
//! metrics.runtime_calls.observe("pull_image", 2.5, true);
//! metrics.sync_loop.running_pods.set(3.0);
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

#[macro_use]
mod families;

mod access;
mod build_info;
mod certificates;
mod containers;
mod dra;
mod mailboxes;
mod node;
mod pleg;
mod plugins;
mod pod_resources;
mod pod_status;
mod probes;
mod process;
mod requests;
mod resource_managers;
mod rest_client;
mod runtime_calls;
mod slis;
mod sources;
mod spans;
mod stability;
mod starts;
mod sync_loop;
mod volumes;
mod workers;

use std::cell::RefCell;

pub use access::AccessMetrics;
pub use build_info::BuildInfoMetrics;
pub use certificates::CertificateMetrics;
pub use containers::ContainerMetrics;
pub use dra::DraMetrics;
pub use mailboxes::MailboxMetrics;
pub use node::NodeMetrics;
pub use pleg::PlegMetrics;
pub use plugins::PluginMetrics;
pub use pod_resources::PodResourcesMetrics;
pub use pod_status::PodStatusMetrics;
pub use probes::{ProbeLabels, ProbeMetrics, ProbeResult, ProbeSeries};
use prometheus::core::Collector;
pub use prometheus::{Counter, Registry};
use prometheus::{
    CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, Opts, TextEncoder,
};
pub use requests::{InFlightRequest, RequestLabels, RequestMetrics};
pub use resource_managers::ResourceManagerMetrics;
pub use rest_client::RestClientMetrics;
pub use runtime_calls::RuntimeCallMetrics;
pub use slis::SliMetrics;
pub use sources::SourceMetrics;
pub use spans::SpanMetrics;
pub use stability::Stability;
use stability::help_with_stability;
pub use starts::StartMetrics;
pub use sync_loop::SyncLoopMetrics;
pub use volumes::{PvcStats, VolumeMetrics, VolumeWorld};
pub use workers::WorkerMetrics;

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
    /// Families of dynamic resource allocation.
    pub dra: DraMetrics,
    /// Families of plugins.
    pub plugins: PluginMetrics,
    /// Families of the CPU, memory and topology managers.
    pub resource_managers: ResourceManagerMetrics,
    /// Families of the PodResources and Pods services.
    pub pod_resources: PodResourcesMetrics,
    /// Families of trace spans.
    pub spans: SpanMetrics,
    /// Families of pod starts and image pulls.
    pub starts: StartMetrics,
    /// Families of volumes.
    pub volumes: VolumeMetrics,
    /// Families of calls to the container runtime.
    pub runtime_calls: RuntimeCallMetrics,
    /// Families of the PLEG.
    pub pleg: PlegMetrics,
    /// Families of pod workers.
    pub workers: WorkerMetrics,
    /// Families of container starts, hooks and image volumes.
    pub containers: ContainerMetrics,
    /// Families of the sync loop: admission, housekeeping and numbers of pods.
    pub sync_loop: SyncLoopMetrics,
    /// Families of status updates, mirror pods and events.
    pub pod_status: PodStatusMetrics,
    /// Families of the node and its start and shutdown.
    pub node: NodeMetrics,
    /// Families of requests to the API server.
    pub rest_client: RestClientMetrics,
    /// Families of mailboxes of actors.
    pub mailboxes: MailboxMetrics,
    /// Families of pod sources.
    pub sources: SourceMetrics,
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
        Self::in_registry(&Registrar::new(&registry), registry.clone())
    }

    fn in_registry(r: &Registrar<'_>, registry: Registry) -> Result<Self, prometheus::Error> {
        process::register(r)?;
        Ok(Self {
            probes: ProbeMetrics::new()?,
            slis: SliMetrics::new()?,
            requests: RequestMetrics::new(r)?,
            build_info: BuildInfoMetrics::new(r)?,
            access: AccessMetrics::new(r)?,
            certificates: CertificateMetrics::new(r)?,
            dra: DraMetrics::new(r)?,
            plugins: PluginMetrics::new(r)?,
            resource_managers: ResourceManagerMetrics::new(r)?,
            pod_resources: PodResourcesMetrics::new(r)?,
            spans: SpanMetrics::new(r)?,
            starts: StartMetrics::new(r)?,
            volumes: VolumeMetrics::new(r)?,
            runtime_calls: RuntimeCallMetrics::new(r)?,
            pleg: PlegMetrics::new(r)?,
            workers: WorkerMetrics::new(r)?,
            containers: ContainerMetrics::new(r)?,
            sync_loop: SyncLoopMetrics::new(r)?,
            pod_status: PodStatusMetrics::new(r)?,
            node: NodeMetrics::new(r)?,
            rest_client: RestClientMetrics::new(r)?,
            mailboxes: MailboxMetrics::new(r)?,
            sources: SourceMetrics::new(r)?,
            registry,
        })
    }

    /// Renders all families of `/metrics` in the Prometheus text format 0.0.4.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        render(&self.registry)
    }
}

fn render(registry: &Registry) -> Result<String, prometheus::Error> {
    let mut text = String::with_capacity(16 * 1024);
    TextEncoder::new().encode_utf8(&registry.gather(), &mut text)?;
    Ok(text)
}

/// No labels: the family is absent until it has a value.
const NO_LABELS: [&str; 0] = [];

/// A registered family, for reference pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// Name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Names of the labels.
    pub labels: Vec<String>,
    /// HELP, with the stability level.
    pub help: String,
}

/// Lists all families, with or without series, by endpoint.
///
/// # Errors
/// Two families have the same name.
pub fn families() -> Result<[(&'static str, Vec<Family>); 3], prometheus::Error> {
    let [main, probes, slis] = [const { RefCell::new(Vec::new()) }; 3];
    let registry = Registry::new();
    Metrics::in_registry(&Registrar::recording(&registry, &main), registry.clone())?;
    ProbeMetrics::in_registry(&Registrar::recording(&registry, &probes), registry.clone())?;
    SliMetrics::in_registry(&Registrar::recording(&registry, &slis), registry.clone())?;
    Ok([
        ("/metrics", main.into_inner()),
        ("/metrics/probes", probes.into_inner()),
        ("/metrics/slis", slis.into_inner()),
    ])
}

/// Creates families in a registry. A program that uses one crate of Windlass makes the sets of this
/// crate only.
#[derive(Clone, Copy, Debug)]
pub struct Registrar<'a> {
    registry: &'a Registry,
    recorded: Option<&'a RefCell<Vec<Family>>>,
}

type Registered<T> = Result<T, prometheus::Error>;

impl<'a> Registrar<'a> {
    /// Creates families in this registry.
    pub fn new(registry: &'a Registry) -> Self {
        Self {
            registry,
            recorded: None,
        }
    }

    fn recording(registry: &'a Registry, families: &'a RefCell<Vec<Family>>) -> Self {
        Self {
            registry,
            recorded: Some(families),
        }
    }

    fn add<C: Collector + Clone + 'static>(&self, kind: &'static str, family: C) -> Registered<C> {
        if let Some(recorded) = self.recorded {
            recorded
                .borrow_mut()
                .extend(family.desc().iter().map(|desc| Family {
                    name: desc.fq_name.clone(),
                    // the one collector with families of two types is that of the process
                    kind: if desc.fq_name.ends_with("_total") {
                        "counter"
                    } else {
                        kind
                    },
                    labels: desc.variable_labels.clone(),
                    help: desc.help.clone(),
                }));
        }
        self.registry.register(Box::new(family.clone()))?;
        Ok(family)
    }

    fn counter(&self, name: &str, help: &str) -> Registered<Counter> {
        self.add("counter", Counter::with_opts(options(name, help))?)
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Registered<CounterVec> {
        self.add("counter", CounterVec::new(options(name, help), labels)?)
    }

    fn gauge(&self, name: &str, help: &str) -> Registered<Gauge> {
        self.add("gauge", Gauge::with_opts(options(name, help))?)
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Registered<GaugeVec> {
        self.add("gauge", GaugeVec::new(options(name, help), labels)?)
    }

    fn histogram(&self, name: &str, help: &str, buckets: Vec<f64>) -> Registered<Histogram> {
        let options = HistogramOpts::from(options(name, help)).buckets(buckets);
        self.add("histogram", Histogram::with_opts(options)?)
    }

    fn histograms(
        &self,
        name: &str,
        help: &str,
        buckets: Vec<f64>,
        labels: &[&str],
    ) -> Registered<HistogramVec> {
        let options = HistogramOpts::from(options(name, help)).buckets(buckets);
        self.add("histogram", HistogramVec::new(options, labels)?)
    }
}

fn options(name: &str, help: &str) -> Opts {
    Opts::new(name, help_with_stability(name, help))
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn rendered_names_have_no_added_suffixes() {
        let metrics = Metrics::new().expect("unique names");
        metrics.pleg.discarded_events.inc_by(0.0);
        metrics.runtime_calls.observe("run_podsandbox", 0.1, true);
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
