//! `KubeletConfiguration` of `kubelet.config.k8s.io/v1beta1`: every field, with its default.
//!
//! The structs hold values after defaulting; a field is optional only if absence has a meaning.
//! [`crate::fields`] lists which fields are supported, [`crate::validate`] the rules.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::duration::GoDuration;

/// Defines structs with `Default`: a field without `= value` has the default of its type.
macro_rules! with_defaults {
    (@value) => { Default::default() };
    (@value $value:expr) => { $value };
    ($(
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $($(#[$field_attribute:meta])* pub $field:ident: $type:ty $(= $value:expr)?,)*
        }
    )*) => {$(
        $(#[$attribute])*
        pub struct $name {
            $($(#[$field_attribute])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: with_defaults!(@value $($value)?),)* }
            }
        }
    )*};
}

mod parts;

pub use parts::{
    Anonymous, Authentication, Authorization, AuthorizationWebhook, CrashLoopBackOff,
    FormatOptions, JsonOptions, Logging, MemoryReservation, MemorySwap, ShutdownByPriority, Taint,
    TextOptions, Tracing, UserNamespaces, VModule, Webhook, X509,
};

/// `apiVersion` of a configuration file.
pub(crate) const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// `kind` of a configuration file.
pub(crate) const KIND: &str = "KubeletConfiguration";

with_defaults! {
    /// The kubelet configuration.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    pub struct KubeletConfiguration {
        /// Enables the HTTPS server on `port`.
        pub enable_server: bool = true,
        /// Manifest file or directory of static pods; empty disables the source.
        pub static_pod_path: String,
        /// Root of container logs: absolute, clean, ASCII.
        pub pod_logs_dir: String = "/var/log/pods".to_owned(),
        /// Maximum time between two syncs of an unchanged pod.
        pub sync_frequency: GoDuration = GoDuration::from_secs(60),
        /// Period of full scans of `staticPodPath`, in addition to file events.
        pub file_check_frequency: GoDuration = GoDuration::from_secs(20),
        /// Poll period of `staticPodURL`.
        pub http_check_frequency: GoDuration = GoDuration::from_secs(20),
        /// HTTP(S) location of a Pod or PodList.
        #[serde(rename = "staticPodURL")]
        pub static_pod_url: String,
        /// HTTP headers of that request; `/configz` masks the values.
        #[serde(rename = "staticPodURLHeader")]
        pub static_pod_url_header: BTreeMap<String, Vec<String>>,
        /// Listen address of `port` and `readOnlyPort`.
        pub address: String = "0.0.0.0".to_owned(),
        /// Port of the authenticated HTTPS server.
        pub port: i32 = 10250,
        /// Port of the unauthenticated HTTP server; 0 disables it.
        pub read_only_port: i32,
        /// Serving certificate chain.
        pub tls_cert_file: String,
        /// Key of `tlsCertFile`.
        pub tls_private_key_file: String,
        /// IANA names of cipher suites; not for TLS 1.3.
        pub tls_cipher_suites: Vec<String>,
        /// TLS group IDs for key exchange.
        pub tls_curve_preferences: Vec<i32>,
        /// `VersionTLS12` or `VersionTLS13`.
        pub tls_min_version: String,
        /// Rotate the client certificate with CSRs.
        pub rotate_certificates: bool,
        /// Obtain the serving certificate with a CSR.
        #[serde(rename = "serverTLSBootstrap")]
        pub server_tls_bootstrap: bool,
        /// Authentication of callers.
        pub authentication: Authentication,
        /// Authorization of callers.
        pub authorization: Authorization,
        /// Image pulls per second; 0 is unlimited.
        #[serde(rename = "registryPullQPS")]
        pub registry_pull_qps: i32 = 5,
        /// Burst of `registryPullQPS`.
        pub registry_burst: i32 = 10,
        /// Whether a pod must have the credentials with which a present image was pulled.
        pub image_pull_credentials_verification_policy: String = "NeverVerifyPreloadedImages".to_owned(),
        /// Repository patterns exempt from that verification.
        pub preloaded_images_verification_allowlist: Vec<String>,
        /// Events sent per second.
        #[serde(rename = "eventRecordQPS")]
        pub event_record_qps: i32 = 50,
        /// Burst of `eventRecordQPS`.
        pub event_burst: i32 = 100,
        /// Enables exec, attach, logs and the other debugging endpoints.
        pub enable_debugging_handlers: bool = true,
        /// Block profiling.
        pub enable_contention_profiling: bool,
        /// Port of the local health endpoint; 0 disables it.
        pub healthz_port: i32 = 10248,
        /// Address of the local health endpoint.
        pub healthz_bind_address: String = "127.0.0.1".to_owned(),
        /// `oom_score_adj` of the agent.
        pub oom_score_adj: i32 = -999,
        /// DNS suffix of the cluster.
        pub cluster_domain: String,
        /// Name servers of ClusterFirst pods.
        #[serde(rename = "clusterDNS")]
        pub cluster_dns: Vec<String>,
        /// Idle timeout of streaming connections.
        pub streaming_connection_idle_timeout: GoDuration = GoDuration::from_secs(14400),
        /// Period of node status computation.
        pub node_status_update_frequency: GoDuration = GoDuration::from_secs(10),
        /// Period of sending an unchanged node status.
        pub node_status_report_frequency: GoDuration = GoDuration::from_secs(300),
        /// Duration of the node lease.
        pub node_lease_duration_seconds: i32 = 40,
        /// Minimum unused time of an image before GC.
        #[serde(rename = "imageMinimumGCAge")]
        pub image_minimum_gc_age: GoDuration = GoDuration::from_secs(120),
        /// Unused time of an image after which it is removed; 0 disables this.
        #[serde(rename = "imageMaximumGCAge")]
        pub image_maximum_gc_age: GoDuration,
        /// Disk usage at which image GC starts.
        #[serde(rename = "imageGCHighThresholdPercent")]
        pub image_gc_high_threshold_percent: i32 = 85,
        /// Disk usage at which image GC stops.
        #[serde(rename = "imageGCLowThresholdPercent")]
        pub image_gc_low_threshold_percent: i32 = 80,
        /// Period of volume usage measurement; negative disables it.
        pub volume_stats_agg_period: GoDuration = GoDuration::from_secs(60),
        /// Cgroup of the kubelet, for statistics; the Go kubelet also moves itself into it.
        pub kubelet_cgroups: String,
        /// Cgroup of system processes, for statistics; the Go kubelet also moves processes into it.
        pub system_cgroups: String,
        /// Parent of the pods' cgroups.
        pub cgroup_root: String,
        /// Create a cgroup for each QoS class and pod.
        #[serde(rename = "cgroupsPerQOS")]
        pub cgroups_per_qos: bool = true,
        /// `cgroupfs` or `systemd`; the value reported by the runtime takes precedence.
        pub cgroup_driver: String = "cgroupfs".to_owned(),
        /// `none` or `static`.
        pub cpu_manager_policy: String = "none".to_owned(),
        /// Whether the OOM killer kills single processes; the default depends on the cgroup version.
        #[serde(rename = "singleProcessOOMKill")]
        pub single_process_oom_kill: Option<bool>,
        /// Options of the static CPU policy.
        pub cpu_manager_policy_options: BTreeMap<String, String>,
        /// Period of CPU set reconciliation.
        pub cpu_manager_reconcile_period: GoDuration = GoDuration::from_secs(10),
        /// `None` or `Static`.
        pub memory_manager_policy: String = "None".to_owned(),
        /// `none`, `best-effort`, `restricted` or `single-numa-node`.
        pub topology_manager_policy: String = "none".to_owned(),
        /// `container` or `pod`.
        pub topology_manager_scope: String = "container".to_owned(),
        /// Options of the topology policy.
        pub topology_manager_policy_options: BTreeMap<String, String>,
        /// Share of a resource reserved for higher QoS classes.
        pub qos_reserved: BTreeMap<String, String>,
        /// Timeout of ordinary runtime calls.
        pub runtime_request_timeout: GoDuration = GoDuration::from_secs(120),
        /// Hairpin mode.
        pub hairpin_mode: String = "promiscuous-bridge".to_owned(),
        /// Maximum number of pods on the node.
        pub max_pods: i32 = 110,
        /// Address range of pods, in standalone mode only.
        #[serde(rename = "podCIDR")]
        pub pod_cidr: String,
        /// `pids.max` of a pod; -1 means the limit of the node.
        pub pod_pids_limit: i64 = -1,
        /// The node's resolver file; empty means none.
        pub resolv_conf: String = "/etc/resolv.conf".to_owned(),
        /// Run pods once and exit.
        pub run_once: bool,
        /// Enforce CPU limits by quota.
        #[serde(rename = "cpuCFSQuota")]
        pub cpu_cfs_quota: bool = true,
        /// Period of the CPU quota, 1 ms to 1 s.
        #[serde(rename = "cpuCFSQuotaPeriod")]
        pub cpu_cfs_quota_period: GoDuration = GoDuration::from_millis(100),
        /// Maximum number of images in the node status; -1 means no limit.
        pub node_status_max_images: i32 = 50,
        /// Open file limit of the agent.
        pub max_open_files: i64 = 1000000,
        /// Wire format for the API server.
        pub content_type: String = "application/vnd.kubernetes.protobuf".to_owned(),
        /// Requests per second to the API server.
        #[serde(rename = "kubeAPIQPS")]
        pub kube_api_qps: i32 = 50,
        /// Burst of `kubeAPIQPS`.
        #[serde(rename = "kubeAPIBurst")]
        pub kube_api_burst: i32 = 100,
        /// Pull one image at a time.
        pub serialize_image_pulls: bool = true,
        /// Maximum number of concurrent image pulls; no limit if not set.
        pub max_parallel_image_pulls: Option<i32>,
        /// Thresholds of immediate eviction.
        pub eviction_hard: BTreeMap<String, String> = eviction_hard_defaults(),
        /// Thresholds of eviction after a grace period.
        pub eviction_soft: BTreeMap<String, String>,
        /// Grace period of each soft threshold.
        pub eviction_soft_grace_period: BTreeMap<String, String>,
        /// Minimum duration of a pressure condition.
        pub eviction_pressure_transition_period: GoDuration = GoDuration::from_secs(300),
        /// Maximum pod grace period of a soft eviction, in seconds.
        pub eviction_max_pod_grace_period: i32,
        /// Minimum amount that an eviction reclaims.
        pub eviction_minimum_reclaim: BTreeMap<String, String>,
        /// Merge `evictionHard` into the defaults instead of replacing them.
        pub merge_default_eviction_settings: bool,
        /// Maximum number of pods per core; 0 means no limit.
        pub pods_per_core: i32,
        /// Let the controller attach and detach volumes.
        pub enable_controller_attach_detach: bool = true,
        /// Fail instead of setting kernel parameters.
        pub protect_kernel_defaults: bool,
        /// Keep the KUBE-IPTABLES-HINT chain.
        #[serde(rename = "makeIPTablesUtilChains")]
        pub make_iptables_util_chains: bool = true,
        /// Firewall mark bit.
        pub iptables_masquerade_bit: i32 = 14,
        /// Firewall mark bit.
        pub iptables_drop_bit: i32 = 15,
        /// Feature gates by name.
        pub feature_gates: BTreeMap<String, bool>,
        /// Refuse to start while swap is on.
        pub fail_swap_on: bool = true,
        /// Swap settings of pods.
        pub memory_swap: MemorySwap,
        /// Size at which a container log is rotated.
        pub container_log_max_size: String = "10Mi".to_owned(),
        /// Maximum number of log files per container, including the current one.
        pub container_log_max_files: i32 = 5,
        /// Maximum number of concurrent log rotations, and of compressions.
        pub container_log_max_workers: i32 = 1,
        /// Maximum interval of the size checks of a log.
        pub container_log_monitor_interval: GoDuration = GoDuration::from_secs(10),
        /// `Get`, `Cache` or `Watch`.
        pub config_map_and_secret_change_detection_strategy: String = "Watch".to_owned(),
        /// Resources reserved for the system.
        pub system_reserved: BTreeMap<String, String>,
        /// Resources reserved for Kubernetes daemons.
        pub kube_reserved: BTreeMap<String, String>,
        /// CPUs reserved for the system.
        #[serde(rename = "reservedSystemCPUs")]
        pub reserved_system_cpus: String,
        /// Version whose hidden metrics are exposed.
        pub show_hidden_metrics_for_version: String,
        /// Cgroup of system daemons.
        pub system_reserved_cgroup: String,
        /// Cgroup of Kubernetes daemons.
        pub kube_reserved_cgroup: String,
        /// Levels at which node allocatable is enforced.
        pub enforce_node_allocatable: Vec<String> = vec!["pods".to_owned()],
        /// Unsafe kernel parameters that pods may set.
        pub allowed_unsafe_sysctls: Vec<String>,
        /// Directory of flexvolume drivers.
        pub volume_plugin_dir: String = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/".to_owned(),
        /// `spec.providerID` of the node.
        #[serde(rename = "providerID")]
        pub provider_id: String,
        /// Use kernel notifications for memory thresholds.
        pub kernel_memcg_notification: bool,
        /// Logging.
        pub logging: Logging,
        /// Serve /var/log.
        pub enable_system_log_handler: bool = true,
        /// Serve the journal.
        pub enable_system_log_query: bool,
        /// Total delay of a graceful node shutdown.
        pub shutdown_grace_period: GoDuration,
        /// Part of `shutdownGracePeriod` reserved for critical pods.
        pub shutdown_grace_period_critical_pods: GoDuration,
        /// Shutdown periods by pod priority.
        pub shutdown_grace_period_by_pod_priority: Vec<ShutdownByPriority>,
        /// Restart back-off.
        #[serde(rename = "crashLoopBackOff")]
        pub crash_loop_backoff: CrashLoopBackOff,
        /// Memory reserved on NUMA nodes.
        pub reserved_memory: Vec<MemoryReservation>,
        /// Serve profiles.
        pub enable_profiling_handler: bool = true,
        /// Allow changing the log verbosity over HTTP.
        pub enable_debug_flags_handler: bool = true,
        /// Use the RuntimeDefault seccomp profile by default.
        pub seccomp_default: bool,
        /// Fraction of the memory limit at which memory is throttled.
        pub memory_throttling_factor: f64 = 0.9,
        /// `None` or `TieredReservation`.
        pub memory_reservation_policy: String = "None".to_owned(),
        /// Taints of a new Node object.
        pub register_with_taints: Vec<Taint>,
        /// Create the Node object.
        pub register_node: bool = true,
        /// OpenTelemetry tracing.
        pub tracing: Option<Tracing>,
        /// Track ephemeral storage.
        pub local_storage_capacity_isolation: bool = true,
        /// Socket of the container runtime.
        pub container_runtime_endpoint: String = "unix:///run/containerd/containerd.sock".to_owned(),
        /// Socket of the image service; empty means the container runtime.
        pub image_service_endpoint: String,
        /// Refuse to start on cgroup v1.
        pub fail_cgroup_v1: bool = true,
        /// User namespaces of pods.
        pub user_namespaces: UserNamespaces,
    }
}

/// Default thresholds of `evictionHard`.
pub(crate) fn eviction_hard_defaults() -> BTreeMap<String, String> {
    [
        ("memory.available", "100Mi"),
        ("nodefs.available", "10%"),
        ("nodefs.inodesFree", "5%"),
        ("imagefs.available", "15%"),
        ("imagefs.inodesFree", "5%"),
    ]
    .map(|(signal, value)| (signal.to_owned(), value.to_owned()))
    .into()
}
