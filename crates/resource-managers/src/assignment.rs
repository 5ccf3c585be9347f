//! What the managers assign to a container.

use std::collections::BTreeMap;

use windlass_topology::{CpuSet, NumaSet};
use windlass_types::cri::{Device, Mount};

/// Assigned resources of one container, added to the configuration that its spec gives. The default
/// assigns nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerAssignment {
    /// CPUs that the container may use: its exclusive ones, or the shared pool. `None` leaves the
    /// choice to the kernel (policy `none`).
    pub cpus: Option<CpuSet>,
    /// The CPUs are exclusive: the container gets no CFS quota.
    pub exclusive_cpus: bool,
    /// NUMA nodes whose memory the container may use; `None` is any.
    pub memory_nodes: Option<NumaSet>,
    /// Device nodes.
    pub devices: Vec<Device>,
    /// Mounts.
    pub mounts: Vec<Mount>,
    /// Environment variables; those of the spec with the same name win.
    pub envs: BTreeMap<String, String>,
    /// Annotations of the container in the runtime.
    pub annotations: BTreeMap<String, String>,
    /// Fully qualified names of CDI devices, each once.
    pub cdi_devices: Vec<String>,
}
