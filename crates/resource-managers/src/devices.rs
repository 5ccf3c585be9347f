//! Devices of plugins: which exist, which containers have them, and which a container gets (upstream
//! device manager).
//!
//! [`Devices`] is the state of one owner. It changes only through its methods; its questions are
//! pure. A device is in use from [`Devices::reserve`], before its plugin's Allocate, until the pod
//! has terminated.

mod affinity;
mod checkpoint;
mod choice;
mod container;
mod hints;
mod inventory;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use windlass_topology::NumaSet;
use windlass_types::PodUid;

use crate::hints::NotAdmitted;

pub use checkpoint::{Checkpoint, CheckpointEntry, CheckpointError};
pub use choice::{Choice, DeviceRequest, PreferredQuestion};
pub use container::{
    CdiDevice, DeviceConflict, DeviceMount, DeviceNode, DeviceResponse, add_devices,
};
pub use hints::PodContainer;
pub use inventory::{NodeDevices, Registration};

/// Time a resource stays in the capacity of the node after its plugin ended (upstream
/// `endpointStopGracePeriod`).
pub(crate) const STOP_GRACE_PERIOD: Duration = Duration::from_secs(5 * 60);

/// File name of the checkpoint, in `device-plugins`.
pub const CHECKPOINT_FILE: &str = "kubelet_internal_checkpoint";

/// A device that a plugin offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginDevice {
    /// The plugin reports `Healthy`.
    pub healthy: bool,
    /// NUMA nodes; empty without topology.
    pub nodes: NumaSet,
}

/// Options of a plugin (`GetDevicePluginOptions`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginOptions {
    /// `PreStartContainer` is required before each start of a container.
    pub pre_start_required: bool,
    /// `GetPreferredAllocation` is available.
    pub preferred_allocation: bool,
}

/// Device IDs by NUMA node, `-1` for those without topology, as in the checkpoint (upstream
/// `DevicesPerNUMA`). A device of several nodes is in each.
pub type DevicesPerNuma = BTreeMap<i64, Vec<String>>;

/// Devices of one resource that a container has.
#[derive(Clone, Debug, PartialEq)]
pub struct Assigned {
    /// The devices.
    pub devices: DevicesPerNuma,
    /// Response of the plugin; `None` while Allocate is in progress.
    pub response: Option<DeviceResponse>,
}

/// Assigned devices of a container, by resource.
pub type ContainerDevices = BTreeMap<String, Assigned>;

/// Assigned devices of a pod, by container.
type PodDevices = BTreeMap<String, ContainerDevices>;

/// All plugin resources of a node and the assignments of its pods. Copies share what does not
/// change, so that one for readers after each change is cheap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Devices {
    resources: BTreeMap<String, Resource>,
    pods: BTreeMap<PodUid, Arc<PodDevices>>,
}

/// One resource.
#[derive(Clone, Debug, Default, PartialEq)]
struct Resource {
    /// Number of the current registration; `None` if only the checkpoint knows the resource.
    registration: Option<u64>,
    options: PluginOptions,
    /// The last list of a plugin; kept after its end.
    devices: Arc<BTreeMap<String, PluginDevice>>,
    /// Whether devices can be assigned: from a list until the end of its plugin.
    available: bool,
    /// Monotonic time at which the plugin ended, or of the agent's start.
    stopped_at: Option<Duration>,
}

/// Why a container does not get its devices; the texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The spec asks for another number than before.
    #[error(
        "pod {pod:?} container {container:?} changed request for resource {resource:?} from {old} to {new}"
    )]
    ChangedRequest {
        /// UID of the pod.
        pod: String,
        /// Container.
        container: String,
        /// Resource.
        resource: String,
        /// Assigned devices.
        old: usize,
        /// Requested devices.
        new: usize,
    },
    /// No plugin of the resource is known.
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    /// The plugin has no healthy device or ended.
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoHealthyDevices(String),
    /// A device that the container had before is gone or unhealthy, and its pod does not run.
    #[error(
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}"
    )]
    NoLongerHealthy(String),
    /// The remaining devices do not suffice.
    #[error(
        "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
    )]
    Unavailable {
        /// Resource.
        resource: String,
        /// Devices that are missing.
        requested: usize,
        /// Devices that are free.
        available: usize,
    },
    /// The plugin failed, or its response is invalid.
    #[error("{0}")]
    Plugin(String),
}

impl From<DeviceError> for NotAdmitted {
    fn from(error: DeviceError) -> Self {
        Self {
            reason: "UnexpectedAdmissionError".to_owned(),
            message: format!("Allocate failed due to {error}, which is unexpected"),
        }
    }
}

impl Devices {
    /// Devices of one resource that a container has.
    pub fn assigned(&self, pod: &PodUid, container: &str, resource: &str) -> Option<&Assigned> {
        self.container(pod, container)?.get(resource)
    }

    /// Devices of all resources that a container has.
    pub fn container(&self, pod: &PodUid, container: &str) -> Option<&ContainerDevices> {
        self.pods.get(pod)?.get(container)
    }

    /// Pods with devices, with their containers.
    pub fn pods(&self) -> impl Iterator<Item = (&PodUid, &BTreeMap<String, ContainerDevices>)> {
        self.pods
            .iter()
            .map(|(pod, containers)| (pod, &**containers))
    }

    /// Marks devices as used by a container before the plugin's Allocate.
    pub fn reserve(
        &mut self,
        pod: &PodUid,
        container: &str,
        resource: &str,
        ids: &BTreeSet<String>,
    ) {
        let assigned = Assigned {
            devices: self.per_numa(resource, ids),
            response: None,
        };
        let containers = Arc::make_mut(self.pods.entry(pod.clone()).or_default());
        let resources = containers.entry(container.to_owned()).or_default();
        resources.insert(resource.to_owned(), assigned);
    }

    /// Completes a reservation with the plugin's response. Returns false if the reservation has been
    /// released.
    pub fn assign(
        &mut self,
        pod: &PodUid,
        container: &str,
        resource: &str,
        response: DeviceResponse,
    ) -> bool {
        let containers = self.pods.get_mut(pod).map(Arc::make_mut);
        let resources = containers.and_then(|it| it.get_mut(container));
        let Some(assigned) = resources.and_then(|it| it.get_mut(resource)) else {
            return false;
        };
        assigned.response = Some(response);
        true
    }

    /// Frees all devices of a pod. Returns whether it had any.
    pub fn release(&mut self, pod: &PodUid) -> bool {
        self.pods.remove(pod).is_some()
    }

    /// Devices of a resource that are used by any pod.
    pub fn in_use(&self, resource: &str) -> BTreeSet<&str> {
        let containers = self.pods.values().flat_map(|it| it.values());
        let assigned = containers.filter_map(|it| it.get(resource));
        assigned.flat_map(Assigned::ids).collect()
    }

    fn per_numa(&self, resource: &str, ids: &BTreeSet<String>) -> DevicesPerNuma {
        let devices = self.resources.get(resource).map(|it| &it.devices);
        let mut found = DevicesPerNuma::new();
        for id in ids {
            let device = devices.and_then(|it| it.get(id));
            let nodes = device.map_or(NumaSet::default(), |it| it.nodes);
            if nodes.is_empty() {
                found.entry(-1).or_default().push(id.clone());
            }
            for node in nodes.iter() {
                found.entry(i64::from(node)).or_default().push(id.clone());
            }
        }
        found
    }
}

impl Assigned {
    /// IDs of the devices, each once.
    pub fn ids(&self) -> BTreeSet<&str> {
        let ids = self.devices.values().flatten();
        ids.map(String::as_str).collect()
    }
}
