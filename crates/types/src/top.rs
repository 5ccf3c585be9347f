//! CPU and memory usage of node, pods and containers, as JSON for the node API and
//! `windlassctl top`.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

/// Usage of the node and its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTop {
    /// Name of the node.
    pub node: String,
    /// CPU and memory usage.
    pub usage: CpuMemoryUsage,
    /// Usage of its pods.
    pub pods: Vec<PodTop>,
}

/// CPU and memory usage; `null` for an unknown value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuMemoryUsage {
    /// Nanocores; needs two samples.
    pub cpu_nano_cores: Option<u64>,
    /// Working set in bytes.
    pub memory_bytes: Option<u64>,
}

/// Usage of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodTop {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub pod: String,
    /// CPU and memory usage.
    pub usage: CpuMemoryUsage,
    /// Usage of its running containers.
    pub containers: Vec<ContainerTop>,
}

/// Usage of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerTop {
    /// Name in the pod's spec.
    pub name: String,
    /// CPU and memory usage.
    pub usage: CpuMemoryUsage,
}

impl NodeTop {
    /// Sorts pods by CPU usage, highest first, unknown last.
    #[must_use]
    pub fn busiest_first(mut self) -> Self {
        self.pods.sort_by(|a, b| {
            let key = |pod: &PodTop| Reverse(pod.usage.cpu_nano_cores);
            let names = || (&a.namespace, &a.pod).cmp(&(&b.namespace, &b.pod));
            key(a).cmp(&key(b)).then_with(names)
        });
        self
    }
}
