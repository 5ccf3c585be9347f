//! Builds the parts of the agent from configuration and host.

mod cgroups;
mod container_manager;
mod eviction;
mod images;
mod kept;
mod memory;
pub mod node;
mod oom;
mod pressure;
mod users;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use windlass_checks::NetChecks;
use windlass_config::checks::{CgroupVersion, cgroup_version};
use windlass_config::node::{HostNetwork, NodeIdentity, identify};
use windlass_config::{Config, KubeletConfiguration, KubeletFlags};
use windlass_container_logs::LogRotation;
use windlass_credentials::image_access::VerificationPolicy;
use windlass_cri::{CriClient, CriOptions};
use windlass_csi::CsiDrivers;
use windlass_dra::{ClaimOwners, DraDrivers};
use windlass_metrics::Metrics;
use windlass_node::MachineRoots;
use windlass_node::shutdown::{LogindBus, ShutdownRecord};
use windlass_node_rules::node_object::{MachineFacts, NodeSettings, excessive_reservations};
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_inputs::object_polling::ChangeDetection;
use windlass_pod_inputs::paths::NodePaths;
use windlass_pod_lifecycle::backoff::BackoffPolicy;
use windlass_pod_lifecycle::container_gc::GcPolicy;
use windlass_pod_lifecycle::log_rotation::RotationPolicy;
use windlass_runtime::files::{HostFiles, HostFilesConfig};
use windlass_runtime::{ImageAccessOptions, PullOptions, RuntimeOptions};
use windlass_runtime_config::dns::check_host_resolv_conf;
use windlass_runtime_config::node_cgroups::reserve_cpus;
use windlass_stats::DiskSpace;
use windlass_store::{
    AdmittedPods, BackoffFile, EvictionFile, ImageUseFile, PodResourceFiles, ProbeResultFile, Store,
};
use windlass_topology::CpuSet;
use windlass_types::Clock;
use windlass_types::corev1::Node;
use windlass_units::quantity::{Quantity, lookup};
use windlass_volume_plan::selinux_mount::{SelinuxMounts, read_file_label};
use windlass_volumes::{
    CsiConfig, HostVolumes, HostVolumesConfig, make_shared, memory_swap_warning,
};

use crate::cluster;
use crate::cluster::ClusterParts;
use crate::wiring::{
    AgentParts, DraParts, NodeParts, ORPHAN_GRACE, ObjectParts, RuntimeParts, ShutdownParts,
    SourceParts, StateParts, VolumeParts, WorkerParts,
};

/// Max concurrent pod starts when `--start-concurrency` is 0. Four saturate two cores and the
/// runtime's metadata lock. More delay the median pod of a burst, from half of its time to nearly
/// all of it.
const DEFAULT_START_CONCURRENCY: usize = 4;
/// Directory of the state files, in `--root-dir`.
const STATE_DIR: &str = "windlass";
/// CPUs that the kernel uses.
const CPUS_ONLINE: &str = "/sys/devices/system/cpu/online";
/// Directory of logind's drop-in files.
const LOGIND_CONF: &str = "/etc/systemd/logind.conf.d";

/// Clients of the container runtime and the image service, which may be the same.
#[derive(Clone, Debug)]
pub struct RuntimeClients {
    /// `containerRuntimeEndpoint`.
    pub runtime: Arc<CriClient>,
    /// `imageServiceEndpoint`.
    pub images: Arc<CriClient>,
}

impl RuntimeClients {
    /// Creates clients of the configured endpoints, without opening a connection.
    ///
    /// # Errors
    /// An endpoint is not the address of a socket.
    pub fn connect(config: &Config, metrics: &Metrics) -> anyhow::Result<Self> {
        let kubelet = &config.kubelet;
        let options = CriOptions {
            timeout: kubelet.runtime_request_timeout.to_std(),
            stream_lists: config.gates.enabled("CRIListStreaming"),
            ..CriOptions::new(metrics.runtime_calls.clone())
        };
        let runtime = Arc::new(
            CriClient::connect(&kubelet.container_runtime_endpoint, options.clone())
                .context("containerRuntimeEndpoint")?,
        );
        let images = match kubelet.image_service_endpoint.as_str() {
            "" => Arc::clone(&runtime),
            endpoint => {
                Arc::new(CriClient::connect(endpoint, options).context("imageServiceEndpoint")?)
            }
        };
        Ok(Self { runtime, images })
    }
}

/// Builds the parts of an agent on this host. Blocks on the disk.
pub fn agent_parts(
    config: &Config,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    clients: &RuntimeClients,
) -> anyhow::Result<AgentParts> {
    let mut config = config.clone();
    reserve_system_cpus(&mut config.kubelet, &read(CPUS_ONLINE))?;
    let config = &config;
    let kubelet = &config.kubelet;
    let identity = identify(&config.flags, &HostNetwork::read())?;
    tracing::info!(node = identity.name, ips = ?identity.ips, "node");
    let settings = Arc::new(node::node_settings(config, &identity));
    let roots = MachineRoots::for_host(config.flags.root_dir.clone());
    let machine = roots.read();
    ensure_enough_capacity(&machine, &settings)?;
    let initial = node::node_before_registration(&settings, &machine, clock.now());
    let handles = (&metrics, &clock);
    let kept = kept::kept_objects(config, &identity.name);
    let mut cluster = match &config.flags.kubeconfig {
        None => None,
        Some(path) => Some(cluster::connect(config, path, settings, roots, handles)?),
    };
    if let (Some(cluster), Some(kept)) = (&mut cluster, &kept) {
        cluster.csi = kept.csi_objects(Arc::clone(&cluster.csi), Arc::clone(&clock));
    }
    let node = node_parts(config, &identity, &machine, initial, handles)?;
    let container_manager = container_manager::container_manager_parts(config, machine.memory)?;
    let files = HostFiles::new(HostFilesConfig::new(node.facts.paths.clone()));
    let volumes = volume_parts(config, &node.facts, &files, cluster.as_ref());
    let pressure = pressure::pressure_parts(config, clients, &node.facts, &clock);
    let runtime = runtime_parts(config, clients, files, &node, cluster.as_ref(), handles)?;
    let change_detection = &kubelet.config_map_and_secret_change_detection_strategy;
    Ok(AgentParts {
        spans: None,
        sources: SourceParts {
            api: cluster.is_some(),
            ..source_parts(config, &identity)?
        },
        objects: ObjectParts {
            change_detection: ChangeDetection::parse(change_detection).unwrap_or_default(),
            credential_dirs: Some(node::credential_dirs(&config.flags.root_dir)),
            kept,
        },
        dra: DraParts {
            drivers: DraDrivers::default(),
            store: Some(Store::open(&config.flags.root_dir)?),
            extended: config.gates.enabled("DRAExtendedResource"),
            owners: match config.gates.enabled("DRAWorkloadResourceClaims") {
                true => ClaimOwners::PodOrPodGroup,
                false => ClaimOwners::Pod,
            },
            health: config.gates.enabled("ResourceHealthStatus"),
            health_messages: config.gates.enabled("ResourceHealthStatusMessage"),
        },
        state: state_parts(&config.flags.root_dir, cluster.is_some())?,
        workers: WorkerParts {
            sync_frequency: kubelet.sync_frequency.to_std(),
            orphan_grace: ORPHAN_GRACE,
            start_concurrency: match config.flags.start_concurrency {
                0 => DEFAULT_START_CONCURRENCY,
                limit => limit,
            },
        },
        cluster,
        pressure,
        node,
        volumes,
        container_manager,
        runtime,
        clock,
        metrics,
    })
}

/// Replaces the CPU reservations by `reservedSystemCPUs`, if it is set.
fn reserve_system_cpus(kubelet: &mut KubeletConfiguration, online: &str) -> anyhow::Result<()> {
    let reserved = kubelet.reserved_system_cpus.as_str();
    let cpus: CpuSet = reserved.parse()?;
    if cpus.is_empty() {
        return Ok(());
    }
    let online = online.trim();
    let are_online = online.is_empty() || cpus.is_subset(&online.parse()?);
    anyhow::ensure!(
        are_online,
        "reservedSystemCPUs: {reserved} is not a subset of the online CPUs {online}"
    );
    let (system, kube) = (&mut kubelet.system_reserved, &mut kubelet.kube_reserved);
    reserve_cpus(cpus.len(), system, kube);
    Ok(())
}

fn ensure_enough_capacity(machine: &MachineFacts, settings: &NodeSettings) -> anyhow::Result<()> {
    let too_much = excessive_reservations(machine, &settings.resources);
    anyhow::ensure!(
        too_much.is_empty(),
        "kubeReserved, systemReserved and evictionHard exceed the capacity, reserve less: {}",
        too_much.join("; ")
    );
    Ok(())
}

fn node_parts(
    config: &Config,
    identity: &NodeIdentity,
    machine: &MachineFacts,
    initial: Node,
    (metrics, clock): (&Metrics, &Arc<dyn Clock>),
) -> anyhow::Result<NodeParts> {
    let facts = NodeFacts {
        root_shared: root_is_shared(&config.flags.root_dir),
        memory: memory::memory_settings(&config.kubelet, &config.gates, machine, &initial),
        ..node_facts(config, identity, &initial)
    };
    // upstream records shutdown times only with this gate
    let records_times = config
        .gates
        .enabled("GracefulNodeShutdownBasedOnPodPriority");
    let record = records_times.then(|| ShutdownRecord {
        root_dir: config.flags.root_dir.clone(),
        clock: Arc::clone(clock),
        metrics: metrics.clone(),
    });
    Ok(NodeParts {
        admission_policy: node::admission_policy(config, machine)?,
        host_ips: identity.ips.clone(),
        pod_cidr: config.kubelet.pod_cidr.clone(),
        resolv_conf_warning: resolv_conf_warning(&facts),
        swap_warning: memory_swap_warning(&config.flags.root_dir),
        shutdown: Some(ShutdownParts {
            periods: node::shutdown_periods(config),
            bus: LogindBus::system(),
            logind_conf_dir: PathBuf::from(LOGIND_CONF),
            record,
        }),
        facts: Arc::new(facts),
        initial: Arc::new(initial),
    })
}

fn volume_parts(
    config: &Config,
    node: &NodeFacts,
    files: &HostFiles,
    cluster: Option<&ClusterParts>,
) -> VolumeParts {
    let csi_drivers = CsiDrivers::default();
    let volumes = HostVolumes::new(node.paths.clone(), files.io_queues());
    let volumes = volumes.with_config(HostVolumesConfig {
        allocatable_memory: u64::try_from(node.allocatable_memory).unwrap_or_default(),
        selinux: selinux_mounts(config, node),
        ..HostVolumesConfig::default()
    });
    let volumes = match cluster {
        Some(cluster) => volumes.with_csi(CsiConfig {
            node_name: node.node_name.clone(),
            drivers: csi_drivers.clone(),
            objects: Arc::clone(&cluster.csi),
        }),
        None => volumes,
    };
    VolumeParts {
        plugins: Arc::new(volumes),
        csi_drivers,
        registry: Some(config.flags.root_dir.join("plugins_registry")),
    }
}

fn runtime_parts(
    config: &Config,
    clients: &RuntimeClients,
    files: HostFiles,
    node: &NodeParts,
    cluster: Option<&ClusterParts>,
    (metrics, clock): (&Metrics, &Arc<dyn Clock>),
) -> anyhow::Result<RuntimeParts> {
    let kubelet = &config.kubelet;
    let providers = node::credential_providers(config, metrics)?;
    let max_period = kubelet.crash_loop_backoff.max_container_restart_period;
    Ok(RuntimeParts {
        runtime: Arc::clone(&clients.runtime) as _,
        images: Arc::clone(&clients.images) as _,
        checks: Arc::new(NetChecks::new()),
        files: Arc::new(files),
        cgroups: cgroups::cgroup_settings(kubelet, &config.gates, &node.initial, Path::new("/proc")),
        credentials: providers.map(|it| node::image_credentials(it, cluster, clock)),
        options: RuntimeOptions {
            user_namespaces: users::user_namespaces(kubelet).inspect_err(|error| {
                tracing::error!(%error, "determining user IDs failed; pods with hostUsers: false are rejected");
            }),
            restart_backoff: BackoffPolicy {
                max: max_period.map_or(BackoffPolicy::DEFAULT.max, |period| period.to_std()),
                ..BackoffPolicy::DEFAULT
            },
            pull: pull_options(kubelet),
            gc: gc_policy(&config.flags),
            cgroup_parent: kubelet.cgroup_root.clone(),
            image_access: image_access(config),
            booted: MachineRoots::for_host(config.flags.root_dir.clone()).booted(clock.now()),
            ..RuntimeOptions::default()
        },
        log_rotation: log_rotation(kubelet),
    })
}

/// Opens the state files below `<root-dir>/windlass`.
fn state_parts(root_dir: &Path, in_cluster: bool) -> anyhow::Result<StateParts> {
    let store = Store::open(root_dir.join(STATE_DIR)).context("state files under --root-dir")?;
    let backoff = BackoffFile::open(store.clone()).context("restart back-off")?;
    let (probe_result_file, probe_results) =
        ProbeResultFile::open(store.clone()).context("probe results")?;
    let image_uses = ImageUseFile::open(store.clone()).context("times of image use")?;
    let evictions = EvictionFile::open(store.clone()).context("evictions")?;
    let root_dir = Store::open(root_dir).context("--root-dir")?;
    let (resource_files, allocated) =
        PodResourceFiles::open(&root_dir).context("allocated and actuated resources")?;
    let (admitted, restored) = match in_cluster {
        true => {
            let (file, pods) = AdmittedPods::open(store).context("admitted pods")?;
            (Some(file), pods)
        }
        false => (None, Vec::new()),
    };
    Ok(StateParts {
        backoff: Some(backoff),
        probe_result_file: Some(probe_result_file),
        probe_results,
        image_uses: Some(image_uses),
        evictions: Some(evictions),
        admitted,
        restored,
        resource_files: Some(resource_files),
        allocated,
    })
}

/// Returns `None` without the feature gate: every pod may use every image on the node.
fn image_access(config: &Config) -> Option<ImageAccessOptions> {
    let enabled = config.gates.enabled("KubeletEnsureSecretPulledImages");
    let kubelet = &config.kubelet;
    let policy = VerificationPolicy::from_config(
        &kubelet.image_pull_credentials_verification_policy,
        &kubelet.preloaded_images_verification_allowlist,
    );
    enabled.then(|| ImageAccessOptions {
        // validation rejects a malformed list
        policy: policy.unwrap_or(VerificationPolicy::AlwaysVerify),
        root_dir: config.flags.root_dir.clone(),
    })
}

fn pull_options(kubelet: &KubeletConfiguration) -> PullOptions {
    PullOptions {
        serialize: kubelet.serialize_image_pulls,
        max_parallel: kubelet
            .max_parallel_image_pulls
            .and_then(|n| u32::try_from(n).ok()),
        qps: kubelet.registry_pull_qps as f32,
        burst: u32::try_from(kubelet.registry_burst).unwrap_or(0),
    }
}

/// Returns `None` for a negative `containerLogMaxSize`: no limit.
fn log_rotation(kubelet: &KubeletConfiguration) -> Option<LogRotation> {
    let size = kubelet.container_log_max_size.parse::<Quantity>().ok()?;
    Some(LogRotation {
        policy: RotationPolicy {
            max_size: u64::try_from(size.value()).ok()?,
            max_files: usize::try_from(kubelet.container_log_max_files).unwrap_or(0),
        },
        workers: usize::try_from(kubelet.container_log_max_workers).unwrap_or(0),
        interval: kubelet.container_log_monitor_interval.to_std(),
    })
}

/// Container garbage collection policy of the flags; a negative number means no limit.
fn gc_policy(flags: &KubeletFlags) -> GcPolicy {
    GcPolicy {
        max_per_container: usize::try_from(flags.maximum_dead_containers_per_container)
            .unwrap_or(usize::MAX),
        max_total: usize::try_from(flags.maximum_dead_containers).ok(),
        min_age: flags.minimum_container_ttl_duration.to_std(),
    }
}

fn source_parts(config: &Config, identity: &NodeIdentity) -> anyhow::Result<SourceParts> {
    let kubelet = &config.kubelet;
    let url = match kubelet.static_pod_url.as_str() {
        "" => None,
        // not logged: it may contain a password
        text => Some(text.parse::<Uri>().context("staticPodURL")?),
    };
    Ok(SourceParts {
        node_name: identity.name.clone(),
        file: (!kubelet.static_pod_path.is_empty())
            .then(|| PathBuf::from(&kubelet.static_pod_path)),
        file_period: kubelet.file_check_frequency.to_std(),
        url,
        url_headers: headers(&kubelet.static_pod_url_header)?,
        url_period: kubelet.http_check_frequency.to_std(),
        api: false,
        fed: BTreeSet::new(),
    })
}

fn headers(configured: &BTreeMap<String, Vec<String>>) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, values) in configured {
        let header = HeaderName::try_from(name.as_str())
            .with_context(|| format!("staticPodURLHeader: {name:?} is not a valid header name"))?;
        for value in values {
            // not in the error: the value may be a secret
            let value = HeaderValue::try_from(value.as_str())
                .with_context(|| format!("staticPodURLHeader: a value of {name} is malformed"))?;
            headers.append(header.clone(), value);
        }
    }
    Ok(headers)
}

fn node_facts(config: &Config, identity: &NodeIdentity, initial: &Node) -> NodeFacts {
    let kubelet = &config.kubelet;
    let status = initial.status.as_ref();
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    // a malformed quantity defaults to the capacity of the host
    let amount = |name| lookup(allocatable, name).ok().flatten();
    let cgroup_v2 = cgroup_version().is_ok_and(|version| version == CgroupVersion::V2);
    let memory = memory_capacity(&read("/proc/meminfo"));
    NodeFacts {
        node_name: identity.name.clone(),
        node_ips: identity.ips.clone(),
        cluster_dns: kubelet
            .cluster_dns
            .iter()
            .filter_map(|ip| ip.parse::<IpAddr>().ok())
            .collect(),
        cluster_domain: kubelet.cluster_domain.clone(),
        resolv_conf: Some(PathBuf::from(&kubelet.resolv_conf))
            .filter(|path| !path.as_os_str().is_empty()),
        allocatable_cpu_milli: amount("cpu").map_or_else(
            || cpu_count(&read("/proc/stat")) * 1000,
            |q| q.milli_value(),
        ),
        allocatable_memory: amount("memory").map_or(memory, |q| q.value()),
        allocatable_ephemeral_storage: amount("ephemeral-storage")
            .map_or_else(|| storage_capacity(&config.flags.root_dir), |q| q.value()),
        memory_capacity: memory,
        paths: NodePaths {
            root_dir: config.flags.root_dir.clone(),
            pod_logs_dir: PathBuf::from(&kubelet.pod_logs_dir),
        },
        seccomp_default: kubelet.seccomp_default,
        cpu_cfs_quota: kubelet.cpu_cfs_quota,
        cpu_cfs_quota_period: nonzero(kubelet.cpu_cfs_quota_period.to_std()),
        cgroup_v2,
        single_process_oom_kill: kubelet.single_process_oom_kill.unwrap_or(!cgroup_v2),
        trust_bundles: config.gates.enabled("ClusterTrustBundleProjection"),
        pod_certificates: config.gates.enabled("PodCertificateRequest"),
        stop_signals: config.gates.enabled("ContainerStopSignals"),
        resize_init_containers: config
            .gates
            .enabled("InPlacePodVerticalScalingInitContainers"),
        resize_pod_level: config
            .gates
            .enabled("InPlacePodLevelResourcesVerticalScaling"),
        selinux_enabled: Path::new("/sys/fs/selinux/enforce").exists(),
        thermal_throttle_paths: thermal_throttle_paths(),
        hostname_override: config.gates.enabled("HostnameOverride"),
        env_files: config.gates.enabled("EnvFiles"),
        ..NodeFacts::default()
    }
}

/// Makes the mount of `--root-dir` shared. On failure upstream does not start; the agent rejects
/// pods with mount propagation.
fn root_is_shared(root_dir: &Path) -> bool {
    let shared = make_shared(root_dir);
    if let Err(error) = &shared {
        let root_dir = root_dir.display();
        tracing::warn!(%error, %root_dir, "making the mount shared failed, mountPropagation not available; run as root");
    }
    shared.is_ok()
}

/// SELinux settings of volumes; `None` without SELinux or a file label in its policy.
fn selinux_mounts(config: &Config, node: &NodeFacts) -> Option<SelinuxMounts> {
    if !node.selinux_enabled {
        return None;
    }
    let settings = read("/etc/selinux/config");
    let mut kinds = settings
        .lines()
        .filter_map(|line| line.strip_prefix("SELINUXTYPE="));
    let kind = kinds.next().unwrap_or("targeted").trim();
    let contexts = read(&format!("/etc/selinux/{kind}/contexts/lxc_contexts"));
    Some(SelinuxMounts {
        file_label: read_file_label(&contexts)?,
        every_access_mode: config.gates.enabled("SELinuxMount"),
    })
}

/// Returns a problem of the node's resolver file, for an event at startup as upstream.
fn resolv_conf_warning(node: &NodeFacts) -> Option<String> {
    let path = node.resolv_conf.as_ref()?;
    match std::fs::read_to_string(path) {
        Ok(text) => {
            check_host_resolv_conf(&path.display().to_string(), &text, &node.cluster_domain)
        }
        Err(error) => Some(format!("open {}: {error}", path.display())),
    }
}

fn nonzero(period: Duration) -> Duration {
    if period.is_zero() {
        Duration::from_millis(100)
    } else {
        period
    }
}

/// Returns an empty text for an unreadable file.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn memory_capacity(meminfo: &str) -> i64 {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<i64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Online CPUs, from the per-CPU lines of `/proc/stat`.
fn cpu_count(stat: &str) -> i64 {
    let is_cpu = |line: &&str| {
        line.strip_prefix("cpu")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    (stat.lines().filter(is_cpu).count() as i64).max(1)
}

/// Size in bytes of the file system of the nearest existing parent.
fn storage_capacity(root_dir: &Path) -> i64 {
    let space = DiskSpace::read_nearest(root_dir);
    space.map_or(0, |space| i64::try_from(space.capacity).unwrap_or(0))
}

fn thermal_throttle_paths() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/sys/devices/system/cpu") else {
        return Vec::new();
    };
    let mut paths: Vec<_> = entries
        .flatten()
        .filter(|e| {
            let name = e.file_name();
            let digits = name.to_str().and_then(|name| name.strip_prefix("cpu"));
            digits.is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
        })
        .map(|e| e.path().join("thermal_throttle"))
        .filter(|path| path.exists())
        .filter_map(|path| path.to_str().map(str::to_owned))
        .collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::time::Duration;

    use windlass_config::{KubeletConfiguration, KubeletFlags};
    use windlass_pod_lifecycle::container_gc::GcPolicy;

    use super::{cpu_count, gc_policy, memory_capacity, reserve_system_cpus};

    #[test]
    fn reserved_cpus_must_be_online_and_replace_reservations() {
        fn check(cpus: &str, online: &str, expected: &str) {
            let mut kubelet = KubeletConfiguration {
                reserved_system_cpus: cpus.to_owned(),
                ..KubeletConfiguration::default()
            };
            for list in [&mut kubelet.system_reserved, &mut kubelet.kube_reserved] {
                list.insert("cpu".to_owned(), "100m".to_owned());
            }
            let reserved = reserve_system_cpus(&mut kubelet, online);
            let line = match reserved {
                Err(error) => error.to_string(),
                Ok(()) => format!("{:?} {:?}", kubelet.system_reserved, kubelet.kube_reserved),
            };
            assert_eq!(line, expected, "{cpus}");
        }
        check("", "0-7\n", "{\"cpu\": \"100m\"} {\"cpu\": \"100m\"}");
        check("0-1,4", "0-7\n", "{\"cpu\": \"3\"} {}");
        check("0-1", "", "{\"cpu\": \"2\"} {}");
        let why = "reservedSystemCPUs: 0,8 is not a subset of the online CPUs 0-7";
        check("0,8", "0-7\n", why);
    }

    #[test]
    fn gc_policy_follows_flags() {
        fn check(args: &[&str], expected: GcPolicy) {
            let args = std::iter::once("windlass").chain(args.iter().copied());
            let flags = KubeletFlags::from_args(args.map(OsString::from)).expect("valid");
            assert_eq!(gc_policy(&flags), expected);
        }
        check(&[], GcPolicy::DEFAULT);
        check(
            &[
                "--maximum-dead-containers-per-container=-1",
                "--maximum-dead-containers=7",
                "--minimum-container-ttl-duration=1m",
            ],
            GcPolicy {
                max_per_container: usize::MAX,
                max_total: Some(7),
                min_age: Duration::from_secs(60),
            },
        );
    }

    #[test]
    fn host_capacity_is_parsed_from_proc_files() {
        assert_eq!(
            memory_capacity("MemFree: 1 kB\nMemTotal:       24606344 kB\n"),
            25196896256
        );
        assert_eq!(memory_capacity("garbage"), 0);
        assert_eq!(cpu_count("cpu  1 2\ncpu0 1 2\ncpu1 1 2\nintr 5\n"), 2);
        assert_eq!(cpu_count(""), 1);
    }
}
