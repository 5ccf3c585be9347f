//! Counters of the managers as metrics.

use windlass_metrics::ResourceManagerMetrics;
use windlass_resource_managers::cpu::CpuCounters;
use windlass_resource_managers::topology::TopologyPolicy;
use windlass_types::PodExt;

use crate::allocation::Allocation;
use crate::managers::{Managers, MemoryCounters};

/// What the metrics have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    cpus: CpuCounters,
    memory: MemoryCounters,
}

impl Measured {
    /// Adds what the managers counted since the last call.
    pub(crate) fn publish(&mut self, managers: &Managers, metrics: &ResourceManagerMetrics) {
        let (new, old) = (managers.cpus.counters(), self.cpus);
        let by = |new: u64, old: u64| new.saturating_sub(old) as f64;
        metrics.cpu_requests.inc_by(by(new.requests, old.requests));
        let errors = |counters: CpuCounters| counters.container_errors + counters.pod_errors;
        metrics.cpu_errors.inc_by(by(errors(new), errors(old)));
        for (boundary, new, old) in [
            ("physical_cpu", new.aligned_cores, old.aligned_cores),
            ("uncore_cache", new.aligned_uncore, old.aligned_uncore),
        ] {
            if new > old {
                let labels = ["container", boundary];
                metrics
                    .aligned
                    .with_label_values(&labels)
                    .inc_by(by(new, old));
            }
        }
        if new.misaligned_cores > old.misaligned_cores {
            let failures = metrics
                .misaligned
                .with_label_values(&["container", "physical_cpu"]);
            failures.inc_by(by(new.misaligned_cores, old.misaligned_cores));
        }
        self.cpus = new;
        let (new, old) = (managers.memory_counters, self.memory);
        metrics
            .memory_requests
            .inc_by(by(new.requests, old.requests));
        metrics.memory_errors.inc_by(by(new.errors, old.errors));
        self.memory = new;
        let figures = managers.cpus.figures();
        metrics.shared_pool.set(figures.shared_milli as f64);
        metrics.exclusive_cpus.set(figures.exclusive as f64);
        let nodes = managers
            .machine
            .nodes
            .keys()
            .filter(|_| managers.cpus.is_static());
        for node in nodes {
            let count = figures.exclusive_by_node.get(node).copied().unwrap_or(0);
            let gauge = metrics.cpus_per_node.with_label_values(&[node.to_string()]);
            gauge.set(count as f64);
        }
    }
}

/// Creates the label values of the configured policies with the value 0, as upstream.
pub(crate) fn create_alignments(managers: &Managers, metrics: &ResourceManagerMetrics) {
    let (aligned, misaligned) = (&metrics.aligned, &metrics.misaligned);
    if managers.topology.config().policy != TopologyPolicy::None {
        for scope in ["container", "pod"] {
            aligned.with_label_values(&[scope, "numa_node"]);
            misaligned.with_label_values(&[scope, "numa_node"]);
        }
    }
    if managers.cpus.is_static() {
        aligned.with_label_values(&["container", "physical_cpu"]);
        aligned.with_label_values(&["container", "uncore_cache"]);
        misaligned.with_label_values(&["container", "physical_cpu"]);
    }
}

/// Counts the end of an allocation. Only the policy `single-numa-node` guarantees an alignment.
pub(crate) fn count_alignment(
    managers: &Managers,
    allocation: &Allocation,
    is_done: bool,
    metrics: &ResourceManagerMetrics,
) {
    if !is_done {
        metrics.admission_errors.inc();
    }
    if managers.topology.config().policy != TopologyPolicy::SingleNumaNode {
        return;
    }
    let (scope, count) = match managers.places_pods() {
        true => ("pod", 1),
        false => {
            let pod = &allocation.pod;
            (
                "container",
                pod.init_containers().len() + pod.containers().len(),
            )
        }
    };
    let labels = [scope, "numa_node"];
    match is_done {
        true => metrics
            .aligned
            .with_label_values(&labels)
            .inc_by(count as f64),
        false => metrics.misaligned.with_label_values(&labels).inc(),
    }
}
