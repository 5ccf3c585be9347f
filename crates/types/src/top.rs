//! What node, pods and containers use, as JSON: the node's own API answers with this, and
//! `windlassctl top` prints it.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

/// The node and its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTop {
    /// Name of the node.
    pub node: String,
    /// What it uses.
    pub usage: CpuMemoryUsage,
    /// Its pods.
    pub pods: Vec<PodTop>,
}

/// Figures; `null` for what is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuMemoryUsage {
    /// Billionths of a processor. A rate needs two looks.
    pub cpu_nano_cores: Option<u64>,
    /// The working set, bytes.
    pub memory_bytes: Option<u64>,
}

/// One pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodTop {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub pod: String,
    /// What it uses.
    pub usage: CpuMemoryUsage,
    /// Its containers that run.
    pub containers: Vec<ContainerTop>,
}

/// One container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerTop {
    /// Name in the pod's spec.
    pub name: String,
    /// What it uses.
    pub usage: CpuMemoryUsage,
}

impl NodeTop {
    /// Puts the busiest pods first, those of which it is not known last.
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
