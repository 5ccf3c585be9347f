//! `/stats/summary`: node and pods in the upstream format (`stats/v1alpha1`).

use serde::Serialize;
use windlass_types::{Timestamp, api_time};

use crate::usage::{
    CgroupUsage, ContainerUsage, FsUsage, InterfaceUsage, MemoryUsage, NetworkUsage, NodeUsage,
    PodUsage, Pressure, PressureLine, SystemUsage, VolumeUsage,
};

/// The response, as the upstream type `Summary`.
#[derive(Debug, Serialize)]
pub struct Summary {
    node: NodeStats,
    pods: Vec<PodStats>,
}

impl Summary {
    /// Creates the summary of a node.
    pub fn new(node_name: &str, node: NodeUsage, pods: Vec<PodUsage>) -> Self {
        Self {
            node: NodeStats::of(node_name, node),
            pods: pods.into_iter().map(PodStats::of).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeStats {
    node_name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system_containers: Vec<ContainerStats>,
    start_time: Time,
    #[serde(flatten)]
    cgroup: CgroupStats,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<NetworkStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fs: Option<FsStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime: Option<RuntimeStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rlimit: Option<RlimitStats>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodStats {
    pod_ref: PodReference,
    start_time: Time,
    containers: Vec<ContainerStats>,
    #[serde(flatten)]
    cgroup: CgroupStats,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<NetworkStats>,
    #[serde(rename = "volume", skip_serializing_if = "Vec::is_empty")]
    volumes: Vec<VolumeStats>,
    #[serde(rename = "ephemeral-storage", skip_serializing_if = "Option::is_none")]
    ephemeral_storage: Option<FsStats>,
    #[serde(rename = "process_stats", skip_serializing_if = "Option::is_none")]
    process_stats: Option<ProcessStats>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStats {
    name: String,
    start_time: Time,
    #[serde(flatten)]
    cgroup: CgroupStats,
    #[serde(skip_serializing_if = "Option::is_none")]
    rootfs: Option<FsStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logs: Option<FsStats>,
}

/// Common fields of node, pods and containers.
#[derive(Debug, Default, Serialize)]
struct CgroupStats {
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<CpuStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    io: Option<IoStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    swap: Option<SwapStats>,
}

#[derive(Debug, Serialize)]
struct PodReference {
    name: String,
    namespace: String,
    uid: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CpuStats {
    time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_nano_cores: Option<u64>,
    usage_core_nano_seconds: u64,
    psi: Psi,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MemoryStats {
    time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    available_bytes: Option<u64>,
    usage_bytes: u64,
    working_set_bytes: u64,
    rss_bytes: u64,
    page_faults: u64,
    major_page_faults: u64,
    psi: Psi,
}

#[derive(Debug, Serialize)]
struct IoStats {
    time: Time,
    psi: Psi,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SwapStats {
    time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    swap_available_bytes: Option<u64>,
    swap_usage_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Psi {
    full: PsiLine,
    some: PsiLine,
}

#[derive(Debug, Serialize)]
struct PsiLine {
    total: u64,
    avg10: f64,
    avg60: f64,
    avg300: f64,
}

#[derive(Debug, Serialize)]
struct NetworkStats {
    time: Time,
    #[serde(flatten)]
    default: InterfaceStats,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<InterfaceStats>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct InterfaceStats {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rx_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rx_errors: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tx_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tx_errors: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FsStats {
    time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    available_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inodes_free: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inodes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inodes_used: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RuntimeStats {
    #[serde(skip_serializing_if = "Option::is_none")]
    image_fs: Option<FsStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container_fs: Option<FsStats>,
}

#[derive(Debug, Serialize)]
struct RlimitStats {
    time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    maxpid: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    curproc: Option<u64>,
}

#[derive(Debug, Serialize)]
struct ProcessStats {
    process_count: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct VolumeStats {
    #[serde(flatten)]
    fs: FsStats,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pvc_ref: Option<ClaimReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    volume_health_stats: Option<VolumeHealth>,
}

#[derive(Debug, Serialize)]
struct ClaimReference {
    name: String,
    namespace: String,
}

#[derive(Debug, Serialize)]
struct VolumeHealth {
    abnormal: bool,
}

/// Formats a time as the API: whole seconds, UTC.
#[derive(Clone, Copy, Debug)]
struct Time(Timestamp);

impl Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&api_time(self.0))
    }
}

impl NodeStats {
    fn of(name: &str, node: NodeUsage) -> Self {
        let at = node.cgroup.at;
        let runtime = RuntimeStats {
            image_fs: node.image_fs.map(FsStats::of),
            container_fs: node.container_fs.map(FsStats::of),
        };
        let rlimit = RlimitStats {
            time: Time(at),
            maxpid: node.max_pid,
            curproc: node.running_processes,
        };
        Self {
            node_name: name.to_owned(),
            system_containers: node
                .system
                .into_iter()
                .map(ContainerStats::of_system)
                .collect(),
            start_time: Time(node.started_at),
            cgroup: CgroupStats::of(Some(node.cgroup)),
            network: node.network.map(NetworkStats::of),
            fs: node.fs.map(FsStats::of),
            runtime: (runtime.image_fs.is_some() || runtime.container_fs.is_some())
                .then_some(runtime),
            rlimit: (rlimit.maxpid.is_some() || rlimit.curproc.is_some()).then_some(rlimit),
        }
    }
}

impl PodStats {
    fn of(pod: PodUsage) -> Self {
        // not in the cgroup of the pod
        let of_containers = pod.containers.iter().filter_map(|container| {
            let processes = container.cgroup.as_ref()?.processes.as_ref()?;
            Some(processes.processes)
        });
        let processes = of_containers.reduce(u64::saturating_add);
        Self {
            process_stats: processes.map(|process_count| ProcessStats { process_count }),
            pod_ref: PodReference {
                name: pod.name,
                namespace: pod.namespace,
                uid: pod.uid.to_string(),
            },
            start_time: Time(pod.started_at),
            containers: pod.containers.into_iter().map(ContainerStats::of).collect(),
            cgroup: CgroupStats::of(pod.cgroup),
            network: pod.network.map(NetworkStats::of),
            volumes: pod.volumes.into_iter().map(VolumeStats::of).collect(),
            ephemeral_storage: pod.ephemeral.map(FsStats::of),
        }
    }
}

impl ContainerStats {
    fn of(container: ContainerUsage) -> Self {
        Self {
            name: container.name,
            start_time: Time(container.started_at),
            cgroup: CgroupStats::of(container.cgroup),
            rootfs: container.rootfs.map(FsStats::of),
            logs: container.logs.map(FsStats::of),
        }
    }

    fn of_system(system: SystemUsage) -> Self {
        Self {
            name: system.name.to_owned(),
            start_time: Time(system.started_at),
            cgroup: CgroupStats::of(Some(system.cgroup)),
            rootfs: None,
            logs: None,
        }
    }
}

impl CgroupStats {
    fn of(cgroup: Option<CgroupUsage>) -> Self {
        let Some(cgroup) = cgroup else {
            return Self::default();
        };
        let time = Time(cgroup.at);
        let memory = cgroup.memory.as_ref();
        Self {
            swap: memory.map(|memory| SwapStats {
                time,
                swap_available_bytes: swap_available(memory),
                swap_usage_bytes: memory.swap,
            }),
            memory: memory.map(|memory| MemoryStats {
                time,
                available_bytes: memory
                    .limit
                    .map(|limit| limit.saturating_sub(memory.working_set)),
                usage_bytes: memory.usage,
                working_set_bytes: memory.working_set,
                rss_bytes: memory.rss,
                page_faults: memory.page_faults,
                major_page_faults: memory.major_page_faults,
                psi: Psi::of(memory.pressure),
            }),
            cpu: cgroup.cpu.map(|cpu| CpuStats {
                time,
                usage_nano_cores: cpu.nano_cores,
                usage_core_nano_seconds: cpu.total_ns,
                psi: Psi::of(cpu.pressure),
            }),
            io: cgroup.io.map(|io| IoStats {
                time,
                psi: Psi::of(io.pressure),
            }),
        }
    }
}

/// Returns the available swap; `None` without a limit.
pub(crate) fn swap_available(memory: &MemoryUsage) -> Option<u64> {
    let limit = memory.swap_limit?;
    Some(limit.saturating_sub(memory.swap))
}

impl Psi {
    /// Returns zeros without kernel support, because the upstream conformance test expects PSI
    /// (`psiExpectation`).
    fn of(pressure: Option<Pressure>) -> Self {
        let pressure = pressure.unwrap_or_default();
        let line = |line: PressureLine| PsiLine {
            total: line.total_ns,
            avg10: line.avg10,
            avg60: line.avg60,
            avg300: line.avg300,
        };
        Self {
            full: line(pressure.full),
            some: line(pressure.some),
        }
    }
}

impl NetworkStats {
    fn of(network: NetworkUsage) -> Self {
        let interfaces: Vec<_> = network.interfaces.iter().map(InterfaceStats::of).collect();
        let default = interfaces
            .iter()
            .find(|it| Some(&it.name) == network.default.as_ref());
        Self {
            time: Time(network.at),
            default: default.cloned().unwrap_or_default(),
            interfaces,
        }
    }
}

impl InterfaceStats {
    fn of(interface: &InterfaceUsage) -> Self {
        Self {
            name: interface.name.clone(),
            rx_bytes: Some(interface.received.bytes),
            rx_errors: Some(interface.received.errors),
            tx_bytes: Some(interface.sent.bytes),
            tx_errors: Some(interface.sent.errors),
        }
    }
}

impl FsStats {
    fn of(fs: FsUsage) -> Self {
        Self {
            time: Time(fs.at),
            available_bytes: fs.available,
            capacity_bytes: fs.capacity,
            used_bytes: fs.used,
            inodes_free: fs.inodes_free,
            inodes: fs.inodes,
            inodes_used: fs.inodes_used,
        }
    }
}

impl VolumeStats {
    fn of(volume: VolumeUsage) -> Self {
        Self {
            fs: FsStats::of(volume.fs),
            name: volume.name,
            pvc_ref: volume
                .claim
                .map(|(namespace, name)| ClaimReference { name, namespace }),
            volume_health_stats: volume.abnormal.map(|abnormal| VolumeHealth { abnormal }),
        }
    }
}

#[cfg(test)]
mod tests;
