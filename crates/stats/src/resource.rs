//! `/metrics/resource`: CPU time and memory of the node, its pods and containers, for
//! metrics-server. Each sample has the time at which it was read.
//!
//! *bound* the stats take 150 KiB for 250 pods with two containers each; the text is created family
//! by family, at most 80 KiB, while it is sent.

use windlass_types::Timestamp;

use crate::exposition::{Text, counter, gauge};
use crate::summary::swap_available;
use crate::usage::{CgroupUsage, NodeUsage, PodUsage};

/// Estimated bytes of a sample, so that the text of a family is allocated once.
const SAMPLE: usize = 160;

/// A value, with its time if it has one.
type Sample = Option<(f64, Option<Timestamp>)>;

/// Stats of node and pods.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceUsage {
    /// The node.
    pub node: ResourceFigures,
    /// Its pods, one for each full name.
    pub pods: Vec<PodFigures>,
}

/// Stats of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceFigures {
    at: Timestamp,
    cpu_ns: Option<u64>,
    working_set: Option<u64>,
    swap: Option<u64>,
    swap_limit: Option<u64>,
}

/// Stats of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodFigures {
    namespace: String,
    name: String,
    cgroup: Option<ResourceFigures>,
    containers: Vec<ContainerFigures>,
}

#[derive(Clone, Debug, PartialEq)]
struct ContainerFigures {
    name: String,
    started_at: Timestamp,
    cgroup: Option<ResourceFigures>,
}

impl ResourceUsage {
    /// Creates the stats from all usage.
    pub fn of(node: &NodeUsage, pods: Vec<PodUsage>) -> Self {
        Self {
            node: ResourceFigures::of(&node.cgroup),
            pods: pods.into_iter().filter_map(PodFigures::of).collect(),
        }
    }
}

impl ResourceFigures {
    /// Creates the stats of a cgroup.
    pub fn of(cgroup: &CgroupUsage) -> Self {
        let memory = cgroup.memory.as_ref();
        Self {
            at: cgroup.at,
            cpu_ns: cgroup.cpu.as_ref().map(|cpu| cpu.total_ns),
            working_set: memory.map(|memory| memory.working_set),
            swap: memory.map(|memory| memory.swap),
            swap_limit: memory.and_then(|memory| Some(swap_available(memory)? + memory.swap)),
        }
    }

    fn cpu(&self) -> Sample {
        Some((self.cpu_ns? as f64 / 1e9, Some(self.at)))
    }

    fn working_set(&self) -> Sample {
        self.dated(self.working_set)
    }

    fn swap(&self) -> Sample {
        self.dated(self.swap)
    }

    fn swap_limit(&self) -> Sample {
        self.dated(self.swap_limit)
    }

    fn dated(&self, bytes: Option<u64>) -> Sample {
        Some((bytes? as f64, Some(self.at)))
    }
}

impl PodFigures {
    /// Creates the stats of a pod; `None` if another pod has its series.
    pub fn of(pod: PodUsage) -> Option<Self> {
        let containers = pod.containers.into_iter().map(|it| ContainerFigures {
            name: it.name,
            started_at: it.started_at,
            cgroup: it.cgroup.as_ref().map(ResourceFigures::of),
        });
        pod.present.then(|| Self {
            namespace: pod.namespace,
            name: pod.name,
            cgroup: pod.cgroup.as_ref().map(ResourceFigures::of),
            // exact capacity
            containers: containers.collect::<Box<[_]>>().into_vec(),
        })
    }
}

impl ContainerFigures {
    fn started_at(&self) -> Sample {
        let seconds = self.started_at.as_nanosecond() as f64 / 1e9;
        (seconds > 0.0).then_some((seconds, None))
    }
}

/// Objects of a family, and how to get the value.
enum Of {
    Container(fn(&ContainerFigures) -> Sample),
    Node(fn(&ResourceFigures) -> Sample),
    Pod(fn(&ResourceFigures) -> Sample),
    /// 1 without stats.
    Scrape,
}

/// Name, value and help.
type ResourceFamily = (&'static str, Of, &'static str);

const FAMILIES: [ResourceFamily; 13] = rows! {
    "container_cpu_usage_seconds_total", Of::Container(|it| it.cgroup?.cpu()),
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds";
    "container_memory_working_set_bytes", Of::Container(|it| it.cgroup?.working_set()),
        "[STABLE] Current working set of the container in bytes";
    "container_start_time_seconds", Of::Container(ContainerFigures::started_at),
        "[STABLE] Start time of the container since unix epoch in seconds";
    "container_swap_limit_bytes", Of::Container(|it| it.cgroup?.swap_limit()),
        "[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems";
    "container_swap_usage_bytes", Of::Container(|it| it.cgroup?.swap()),
        "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems";
    "node_cpu_usage_seconds_total", Of::Node(ResourceFigures::cpu),
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds";
    "node_memory_working_set_bytes", Of::Node(ResourceFigures::working_set),
        "[STABLE] Current working set of the node in bytes";
    "node_swap_usage_bytes", Of::Node(ResourceFigures::swap),
        "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems";
    "pod_cpu_usage_seconds_total", Of::Pod(ResourceFigures::cpu),
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds";
    "pod_memory_working_set_bytes", Of::Pod(ResourceFigures::working_set),
        "[STABLE] Current working set of the pod in bytes";
    "pod_swap_usage_bytes", Of::Pod(ResourceFigures::swap),
        "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems";
    "resource_scrape_error", Of::Scrape,
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise";
    "scrape_error", Of::Scrape,
        "[ALPHA] (Deprecated since 1.29.0) 1 if there was an error while getting container metrics, 0 otherwise";
};

/// Returns the text family by family; without stats only the error metric.
pub fn resource_metrics(
    measured: Option<ResourceUsage>,
) -> impl Iterator<Item = String> + Send + 'static {
    let texts = FAMILIES
        .iter()
        .map(move |it| text_of(it, measured.as_ref()));
    texts.filter(|text| !text.is_empty())
}

fn text_of((name, of, help): &ResourceFamily, measured: Option<&ResourceUsage>) -> String {
    let pods = measured.map_or(&[][..], |measured| &measured.pods);
    let samples = match of {
        Of::Container(_) => pods.iter().map(|pod| pod.containers.len()).sum(),
        Of::Pod(_) => pods.len(),
        Of::Node(_) | Of::Scrape => 1,
    };
    let mut text = Text::with_capacity((samples + 2) * SAMPLE);
    text.family(match name.ends_with("_total") {
        true => counter(*name, *help),
        false => gauge(*name, *help),
    });
    let mut add = |labels: &[(&str, &str)], sample: Sample| {
        if let Some((value, at)) = sample {
            text.sample(&[labels], value, at);
        }
    };
    match of {
        Of::Container(value) => {
            for pod in pods {
                for container in &pod.containers {
                    let labels = [
                        ("container", container.name.as_str()),
                        ("namespace", &pod.namespace),
                        ("pod", &pod.name),
                    ];
                    add(&labels, value(container));
                }
            }
        }
        Of::Node(value) => add(&[], measured.and_then(|it| value(&it.node))),
        Of::Pod(value) => {
            for pod in pods {
                let labels = [("namespace", pod.namespace.as_str()), ("pod", &pod.name)];
                add(&labels, pod.cgroup.as_ref().and_then(*value));
            }
        }
        Of::Scrape => add(&[], Some((f64::from(u8::from(measured.is_none())), None))),
    }
    text.finish()
}
