//! `/metrics/resource`: processor time and memory of the node, its pods and containers, for
//! metrics-server. Each figure carries the time at which it was read.

use windlass_types::Timestamp;

use crate::exposition::{Family, Text, counter, gauge};
use crate::summary::swap_available;
use crate::usage::{CgroupUsage, ContainerUsage, NodeUsage, PodUsage};

/// Bytes of a container's lines and of a pod's: enough that the text is allocated once.
const PER_CONTAINER: usize = 900;
const PER_POD: usize = 400;

/// A figure, and when it was read if it carries that.
type Sample = Option<(f64, Option<Timestamp>)>;

/// The text; without figures it says so and nothing else.
pub fn resource_metrics(measured: Option<(&NodeUsage, &[PodUsage])>) -> String {
    let (node, pods) = measured.unzip();
    let pods = pods.unwrap_or_default();
    let containers: usize = pods.iter().map(|pod| pod.containers.len()).sum();
    let capacity = 4096 + containers * PER_CONTAINER + pods.len() * PER_POD;
    let mut text = Text::with_capacity(capacity);
    of_containers(&mut text, pods);
    if let Some(node) = node {
        of_node(&mut text, &node.cgroup);
    }
    of_pods(&mut text, pods);
    for name in ["resource_scrape_error", "scrape_error"] {
        let help = "1 if there was an error while getting container metrics, 0 otherwise";
        text.family(gauge(name, help));
        text.sample(&[], f64::from(u8::from(node.is_none())), None);
    }
    text.finish()
}

fn of_containers(text: &mut Text, pods: &[PodUsage]) {
    let mut each = |family: Family, value: &dyn Fn(&ContainerUsage) -> Sample| {
        text.family(family);
        for pod in pods {
            for container in &pod.containers {
                if let Some((value, at)) = value(container) {
                    let labels = [
                        ("container", container.name.as_str()),
                        ("namespace", &pod.namespace),
                        ("pod", &pod.name),
                    ];
                    text.sample(&[&labels], value, at);
                }
            }
        }
    };
    each(
        counter(
            "container_cpu_usage_seconds_total",
            "Cumulative cpu time consumed by the container in core-seconds",
        ),
        &|it| cpu(it.cgroup.as_ref()?),
    );
    each(
        gauge(
            "container_memory_working_set_bytes",
            "Current working set of the container in bytes",
        ),
        &|it| working_set(it.cgroup.as_ref()?),
    );
    each(
        gauge(
            "container_start_time_seconds",
            "Start time of the container since unix epoch in seconds",
        ),
        &|it| {
            let seconds = it.started_at.as_nanosecond() as f64 / 1e9;
            (seconds > 0.0).then_some((seconds, None))
        },
    );
    each(
        gauge(
            "container_swap_limit_bytes",
            "Current amount of the container swap limit in bytes. Reported only on non-windows systems",
        ),
        &|it| {
            let cgroup = it.cgroup.as_ref()?;
            let memory = cgroup.memory.as_ref()?;
            let limit = swap_available(memory)? + memory.swap?;
            Some((limit as f64, Some(cgroup.at)))
        },
    );
    each(
        gauge(
            "container_swap_usage_bytes",
            "Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        ),
        &|it| swap(it.cgroup.as_ref()?),
    );
}

fn of_node(text: &mut Text, cgroup: &CgroupUsage) {
    let mut one = |family, value: Sample| {
        text.family(family);
        if let Some((value, at)) = value {
            text.sample(&[], value, at);
        }
    };
    one(
        counter(
            "node_cpu_usage_seconds_total",
            "Cumulative cpu time consumed by the node in core-seconds",
        ),
        cpu(cgroup),
    );
    one(
        gauge(
            "node_memory_working_set_bytes",
            "Current working set of the node in bytes",
        ),
        working_set(cgroup),
    );
    one(
        gauge(
            "node_swap_usage_bytes",
            "Current swap usage of the node in bytes. Reported only on non-windows systems",
        ),
        swap(cgroup),
    );
}

fn of_pods(text: &mut Text, pods: &[PodUsage]) {
    let mut each = |family, value: fn(&CgroupUsage) -> Sample| {
        text.family(family);
        for pod in pods {
            if let Some((value, at)) = pod.cgroup.as_ref().and_then(value) {
                let labels = [("namespace", pod.namespace.as_str()), ("pod", &pod.name)];
                text.sample(&[&labels], value, at);
            }
        }
    };
    each(
        counter(
            "pod_cpu_usage_seconds_total",
            "Cumulative cpu time consumed by the pod in core-seconds",
        ),
        cpu,
    );
    each(
        gauge(
            "pod_memory_working_set_bytes",
            "Current working set of the pod in bytes",
        ),
        working_set,
    );
    each(
        gauge(
            "pod_swap_usage_bytes",
            "Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        ),
        swap,
    );
}

fn cpu(cgroup: &CgroupUsage) -> Sample {
    let seconds = cgroup.cpu.as_ref()?.total_ns as f64 / 1e9;
    Some((seconds, Some(cgroup.at)))
}

fn working_set(cgroup: &CgroupUsage) -> Sample {
    let bytes = cgroup.memory.as_ref()?.working_set;
    Some((bytes as f64, Some(cgroup.at)))
}

fn swap(cgroup: &CgroupUsage) -> Sample {
    let bytes = cgroup.memory.as_ref()?.swap?;
    Some((bytes as f64, Some(cgroup.at)))
}
