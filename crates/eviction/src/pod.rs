//! What a pod requests and uses, as far as eviction depends on it.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_pod_inputs::resources::{QosClass, is_critical, pod_request, qos_class};
use windlass_types::corev1::ResourceRequirements;
use windlass_types::{Pod, PodExt, PodUid};
use windlass_units::quantity::{Quantity, lookup};

use crate::layout::DiskParts;
use crate::signal::Resource;

/// One pod with something running on the node.
#[derive(Clone, Debug, PartialEq)]
pub struct PodFigures {
    /// UID.
    pub uid: PodUid,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `spec.priority`; 0 without one.
    pub priority: i32,
    /// QoS class.
    pub qos: QosClass,
    /// Static, a mirror pod, or of a critical priority: never evicted.
    pub is_critical: bool,
    /// Already evicted and not ended: not evicted twice.
    pub is_evicted: bool,
    /// `spec.terminationGracePeriodSeconds`.
    pub termination_grace: Option<Duration>,
    /// Request of memory with overhead.
    pub memory_request: Quantity,
    /// Request of ephemeral storage with overhead.
    pub storage_request: Quantity,
    /// Pod-level request of memory, if any.
    pub pod_level_memory_request: Option<Quantity>,
    /// Requests of app and init containers, by name.
    pub containers: BTreeMap<String, ContainerRequests>,
    /// What it uses; `None` if it was not measured.
    pub usage: Option<PodUsage>,
}

/// Requests of a container; zero without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainerRequests {
    /// Memory.
    pub memory: Quantity,
    /// Ephemeral storage.
    pub storage: Quantity,
}

/// What a pod uses. `None` means not measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodUsage {
    /// Working set in bytes.
    pub memory: Option<u64>,
    /// Processes.
    pub processes: Option<u64>,
    /// Containers in the order of the stats.
    pub containers: Vec<ContainerUsage>,
    /// Local volumes: emptyDir on disk, hostPath, and volumes of configuration.
    pub local_volumes: DiskUsage,
}

/// What a container uses. `None` means not measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerUsage {
    /// Name in the pod's spec.
    pub name: String,
    /// Working set in bytes.
    pub memory: Option<u64>,
    /// Writable layer.
    pub writable_layer: Option<DiskUsage>,
    /// Logs.
    pub logs: Option<DiskUsage>,
}

/// Space on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

impl PodFigures {
    /// Reads the spec of a pod; its usage is not measured yet.
    pub fn from_pod(pod: &Pod) -> Self {
        let spec = PodExt::spec(pod);
        let containers = pod.containers().iter().chain(pod.init_containers());
        Self {
            uid: pod.uid(),
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            priority: spec.priority.unwrap_or(0),
            qos: qos_class(pod),
            is_critical: is_critical(pod),
            is_evicted: false,
            termination_grace: spec
                .termination_grace_period_seconds
                .map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
            memory_request: request_with_overhead(pod, Resource::Memory),
            storage_request: request_with_overhead(pod, Resource::EphemeralStorage),
            pod_level_memory_request: explicit_request(spec.resources.as_ref(), Resource::Memory),
            containers: containers
                .map(|c| {
                    let request = |resource| {
                        explicit_request(c.resources.as_ref(), resource).unwrap_or(Quantity::ZERO)
                    };
                    let requests = ContainerRequests {
                        memory: request(Resource::Memory),
                        storage: request(Resource::EphemeralStorage),
                    };
                    (c.name.clone(), requests)
                })
                .collect(),
            usage: None,
        }
    }

    /// Returns the request that usage of a resource is compared with; 0 for inodes and processes.
    pub fn request(&self, resource: Resource) -> Quantity {
        match resource {
            Resource::Memory => self.memory_request,
            Resource::EphemeralStorage => self.storage_request,
            Resource::Inodes | Resource::Pids => Quantity::ZERO,
        }
    }
}

impl PodUsage {
    /// Returns what the pod uses of a resource; what was not measured counts as 0, as upstream.
    pub(crate) fn of(&self, resource: Resource, parts: DiskParts) -> u64 {
        match resource {
            Resource::Memory => self.memory.unwrap_or(0),
            Resource::Pids => self.processes.unwrap_or(0),
            Resource::EphemeralStorage => self.disk(parts).bytes,
            Resource::Inodes => self.disk(parts).inodes,
        }
    }

    fn disk(&self, parts: DiskParts) -> DiskUsage {
        let mut sum = DiskUsage::default();
        for container in &self.containers {
            if parts.writable_layers {
                sum.add(container.writable_layer.unwrap_or_default());
            }
            if parts.logs_and_volumes {
                sum.add(container.logs.unwrap_or_default());
            }
        }
        if parts.logs_and_volumes {
            sum.add(self.local_volumes);
        }
        sum
    }
}

impl ContainerRequests {
    pub(crate) fn of(&self, resource: Resource) -> Quantity {
        match resource {
            Resource::Memory => self.memory,
            Resource::EphemeralStorage => self.storage,
            Resource::Inodes | Resource::Pids => Quantity::ZERO,
        }
    }
}

impl ContainerUsage {
    /// Returns what messages compare with the request: memory, or writable layer and logs if both
    /// were measured.
    pub(crate) fn of(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::Memory => self.memory,
            Resource::EphemeralStorage => {
                let (layer, logs) = (self.writable_layer?, self.logs?);
                Some(layer.bytes.saturating_add(logs.bytes))
            }
            Resource::Inodes | Resource::Pids => None,
        }
    }
}

impl DiskUsage {
    /// Adds another usage.
    pub fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }
}

/// Returns the request of a pod. Overhead counts only with a request (upstream
/// `GetResourceRequestQuantity`).
fn request_with_overhead(pod: &Pod, resource: Resource) -> Quantity {
    let name = resource.as_str();
    let request = pod_request(pod, name).unwrap_or(Quantity::ZERO);
    let overhead = lookup(PodExt::spec(pod).overhead.as_ref(), name);
    match overhead.ok().flatten() {
        Some(overhead) if !request.is_zero() => request + overhead,
        _ => request,
    }
}

/// Returns a request; the default is the limit, as in the API server.
fn explicit_request(
    resources: Option<&ResourceRequirements>,
    resource: Resource,
) -> Option<Quantity> {
    let resources = resources?;
    let lists = [resources.requests.as_ref(), resources.limits.as_ref()];
    let of = |list| lookup(list, resource.as_str()).ok().flatten();
    lists.into_iter().find_map(of)
}
