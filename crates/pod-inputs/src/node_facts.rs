//! What the node contributes to a sandbox' or container's configuration.
//!
//! Filled in once from the configuration and the machine and passed by reference: decisions
//! never look at the node themselves. The texts of `resolv.conf` and `/etc/hosts` are not here,
//! because they are read again for every sandbox.

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
    /// CPU that pods may use, in thousandths.
    pub allocatable_cpu_milli: i64,
    /// Memory that pods may use, in bytes.
    pub allocatable_memory: i64,
    /// Local storage that pods may use, in bytes.
    pub allocatable_ephemeral_storage: i64,
    /// All memory of the node, in bytes.
    pub memory_capacity: i64,
    /// Where files of pods and logs lie.
    pub paths: NodePaths,
    /// `seccompDefault`: containers without a profile get the runtime's.
    pub seccomp_default: bool,
    /// `cpuCFSQuota`: CPU limits are enforced.
    pub cpu_cfs_quota: bool,
    /// `cpuCFSQuotaPeriod`.
    pub cpu_cfs_quota_period: Duration,
    /// The node uses the unified cgroup hierarchy.
    pub cgroup_v2: bool,
    /// `singleProcessOOMKill`: the kernel kills one process, not the whole container.
    pub single_process_oom_kill: bool,
    /// Feature gate `ClusterTrustBundleProjection`: volumes may show trust anchors.
    pub trust_bundles: bool,
    /// Feature gate `PodCertificateRequest`: volumes may show certificates made for the pod.
    pub pod_certificates: bool,
    /// Feature gate `ContainerStopSignals`: `lifecycle.stopSignal` counts.
    pub stop_signals: bool,
    /// SELinux is enabled on the node.
    pub selinux_enabled: bool,
    /// `/sys/devices/system/cpu/cpuN/thermal_throttle` of every CPU that has one; masked.
    pub thermal_throttle_paths: Vec<String>,
    /// Feature gate `HostnameOverride`.
    pub hostname_override: bool,
    /// Feature gate `EnvFiles`.
    pub env_files: bool,
    /// `--root-dir` is on a shared mount: what is mounted below it can be seen elsewhere.
    pub root_shared: bool,
}

/// Upstream's configuration defaults on a machine of unknown size.
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
            trust_bundles: false,
            pod_certificates: false,
            stop_signals: false,
            selinux_enabled: false,
            thermal_throttle_paths: Vec::new(),
            hostname_override: true,
            env_files: true,
            root_shared: true,
        }
    }
}

/// The first IP of the node's primary family, then the first of the other (upstream `sortPodIPs`).
pub fn by_family(ips: &[IpAddr], node: &[IpAddr]) -> Vec<IpAddr> {
    let primary_is_v4 = node.first().is_none_or(IpAddr::is_ipv4);
    [primary_is_v4, !primary_is_v4]
        .into_iter()
        .filter_map(|v4| ips.iter().find(|ip| ip.is_ipv4() == v4).copied())
        .collect()
}
