//! Facts about the node that are part of sandbox and container configurations.
//!
//! The agent sets them once, from the configuration and the host. `resolv.conf` and `/etc/hosts`
//! are not included, because the agent reads them for each sandbox.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::paths::NodePaths;

/// Facts about the node and its configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFacts {
    /// Name of the node object.
    pub node_name: String,
    /// Addresses of the node, primary family first.
    pub node_ips: Vec<IpAddr>,
    /// `clusterDNS`.
    pub cluster_dns: Vec<IpAddr>,
    /// `clusterDomain`; may be empty.
    pub cluster_domain: String,
    /// `resolvConf`; `None` if it is configured as the empty string.
    pub resolv_conf: Option<PathBuf>,
    /// Allocatable CPU, in thousandths.
    pub allocatable_cpu_milli: i64,
    /// Allocatable memory, in bytes.
    pub allocatable_memory: i64,
    /// Allocatable ephemeral storage, in bytes.
    pub allocatable_ephemeral_storage: i64,
    /// Memory capacity, in bytes.
    pub memory_capacity: i64,
    /// Directories of pods and logs.
    pub paths: NodePaths,
    /// `seccompDefault`: containers without a profile get `RuntimeDefault`.
    pub seccomp_default: bool,
    /// `cpuCFSQuota`: CPU limits are enforced.
    pub cpu_cfs_quota: bool,
    /// `cpuCFSQuotaPeriod`.
    pub cpu_cfs_quota_period: Duration,
    /// The node uses the unified cgroup hierarchy.
    pub cgroup_v2: bool,
    /// `singleProcessOOMKill`: the OOM killer kills one process, not the whole container.
    pub single_process_oom_kill: bool,
    /// Swap, memory protection and huge pages.
    pub memory: MemorySettings,
    /// Feature gate `ClusterTrustBundleProjection`.
    pub trust_bundles: bool,
    /// Feature gate `PodCertificateRequest`.
    pub pod_certificates: bool,
    /// Feature gate `ContainerStopSignals`.
    pub stop_signals: bool,
    /// Feature gate `InPlacePodVerticalScalingInitContainers`.
    pub resize_init_containers: bool,
    /// Feature gate `InPlacePodLevelResourcesVerticalScaling`.
    pub resize_pod_level: bool,
    /// SELinux is enabled on the node.
    pub selinux_enabled: bool,
    /// Existing `/sys/devices/system/cpu/cpuN/thermal_throttle`, which are masked.
    pub thermal_throttle_paths: Vec<String>,
    /// Feature gate `HostnameOverride`.
    pub hostname_override: bool,
    /// Feature gate `EnvFiles`.
    pub env_files: bool,
    /// `--root-dir` is on a shared mount.
    pub root_shared: bool,
}

/// Swap, memory protection and huge pages. The default is a node without any of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemorySettings {
    /// The kernel can limit the swap usage of a cgroup.
    pub swap_controller: bool,
    /// `memorySwap.swapBehavior` is `LimitedSwap`.
    pub limited_swap: bool,
    /// Swap capacity, in bytes.
    pub swap_capacity: i64,
    /// Feature gate `MemoryQoS`; `None` also on cgroup v1.
    pub qos: Option<MemoryQos>,
    /// Sizes of the huge pages of the host, in bytes.
    pub huge_page_sizes: Vec<u64>,
}

/// Settings of the feature gate `MemoryQoS`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryQos {
    /// `memoryReservationPolicy` is `TieredReservation`: requests are protected.
    pub protects_requests: bool,
    /// `memoryThrottlingFactor`.
    pub throttling_factor: f64,
    /// Memory for all pods, in bytes; 0 if unknown.
    pub allocatable: i64,
    /// Page size of the host, in bytes.
    pub page_size: i64,
}

/// The defaults of upstream, with unknown resources.
impl Default for NodeFacts {
    fn default() -> Self {
        Self {
            node_name: String::new(),
            node_ips: Vec::new(),
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            resolv_conf: Some(PathBuf::from("/etc/resolv.conf")),
            allocatable_cpu_milli: 0,
            allocatable_memory: 0,
            allocatable_ephemeral_storage: 0,
            memory_capacity: 0,
            paths: NodePaths::default(),
            seccomp_default: false,
            cpu_cfs_quota: true,
            cpu_cfs_quota_period: Duration::from_millis(100),
            cgroup_v2: true,
            single_process_oom_kill: false,
            memory: MemorySettings::default(),
            trust_bundles: false,
            pod_certificates: false,
            stop_signals: false,
            resize_init_containers: true,
            resize_pod_level: true,
            selinux_enabled: false,
            thermal_throttle_paths: Vec::new(),
            hostname_override: true,
            env_files: true,
            root_shared: true,
        }
    }
}

/// Returns the first IP of the node's primary family, then the first of the other (upstream
/// `sortPodIPs`).
pub fn by_family(ips: &[IpAddr], node: &[IpAddr]) -> Vec<IpAddr> {
    let primary_is_v4 = node.first().is_none_or(IpAddr::is_ipv4);
    [primary_is_v4, !primary_is_v4]
        .into_iter()
        .filter_map(|v4| ips.iter().find(|ip| ip.is_ipv4() == v4).copied())
        .collect()
}
