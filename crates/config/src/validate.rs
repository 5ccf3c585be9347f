//! The rules of `KubeletConfiguration`, all checked and reported together.
//!
//! A fault names who set the field, the field, and what to write instead.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Component, Path};

use windlass_node_rules::admission::SysctlAllowList;
use windlass_credentials::image_access::VerificationPolicy;
use windlass_units::quantity::Quantity;

use crate::collector::CollectorAddress;
use crate::duration::GoDuration;
use crate::gates::FeatureGates;
use crate::kubelet::KubeletConfiguration;
use crate::tls;

mod node;

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// File or flag that set the field, or `default`.
    pub origin: String,
    /// Path of the field.
    pub field: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}: {}", self.origin, self.field, self.message)
    }
}

/// Faults as lines of a list, each on a new line.
pub(crate) fn list(faults: &[Fault]) -> String {
    faults.iter().map(|fault| format!("\n  {fault}")).collect()
}

/// Checks every rule. `origin_of` tells who set a field.
pub fn validate(
    config: &KubeletConfiguration,
    gates: &FeatureGates,
    origin_of: &dyn Fn(&str) -> String,
) -> Vec<Fault> {
    let mut rules = Rules {
        faults: Vec::new(),
        origin_of,
    };
    numbers(config, &mut rules);
    durations(config, gates, &mut rules);
    words(config, gates, &mut rules);
    sources_and_addresses(config, &mut rules);
    server(config, &mut rules);
    images(config, &mut rules);
    logs(config, &mut rules);
    node::reservations(config, &mut rules);
    node::eviction(config, &mut rules);
    sysctls(config, &mut rules);
    node::registration(config, &mut rules);
    node::shutdown(config, &mut rules);
    rules.faults
}

/// Collects faults.
struct Rules<'a> {
    faults: Vec<Fault>,
    origin_of: &'a dyn Fn(&str) -> String,
}

impl Rules<'_> {
    fn fault(&mut self, field: &str, message: impl Into<String>) {
        self.faults.push(Fault {
            origin: (self.origin_of)(field),
            field: field.to_owned(),
            message: message.into(),
        });
    }

    fn require(&mut self, holds: bool, field: &str, message: impl FnOnce() -> String) {
        if !holds {
            self.fault(field, message());
        }
    }

    fn range(&mut self, field: &str, value: i64, from: i64, to: i64) {
        self.require((from..=to).contains(&value), field, || {
            let to = match to {
                i64::MAX => "or more".to_owned(),
                to => format!("to {to}"),
            };
            format!("{value} is out of range, write {from} {to}")
        });
    }

    fn one_of(&mut self, field: &str, value: &str, allowed: &[&str]) {
        self.require(allowed.contains(&value), field, || {
            let shown: Vec<_> = allowed
                .iter()
                .filter(|word| !word.is_empty())
                .copied()
                .collect();
            format!("{value:?} is not known, write one of {}", shown.join(", "))
        });
    }
}

fn numbers(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    const ANY: i64 = i64::MAX;
    let ranges: [(&str, i64, i64, i64); 22] = [
        (
            "nodeLeaseDurationSeconds",
            c.node_lease_duration_seconds.into(),
            1,
            ANY,
        ),
        ("registryPullQPS", c.registry_pull_qps.into(), 0, ANY),
        ("registryBurst", c.registry_burst.into(), 0, ANY),
        ("eventRecordQPS", c.event_record_qps.into(), 0, ANY),
        ("eventBurst", c.event_burst.into(), 0, ANY),
        ("kubeAPIQPS", c.kube_api_qps.into(), 0, ANY),
        ("kubeAPIBurst", c.kube_api_burst.into(), 0, ANY),
        ("port", c.port.into(), 1, 65535),
        ("readOnlyPort", c.read_only_port.into(), 0, 65535),
        ("healthzPort", c.healthz_port.into(), 0, 65535),
        (
            "imageGCHighThresholdPercent",
            c.image_gc_high_threshold_percent.into(),
            0,
            100,
        ),
        (
            "imageGCLowThresholdPercent",
            c.image_gc_low_threshold_percent.into(),
            0,
            100,
        ),
        (
            "iptablesMasqueradeBit",
            c.iptables_masquerade_bit.into(),
            0,
            31,
        ),
        ("iptablesDropBit", c.iptables_drop_bit.into(), 0, 31),
        (
            "nodeStatusMaxImages",
            c.node_status_max_images.into(),
            -1,
            ANY,
        ),
        ("oomScoreAdj", c.oom_score_adj.into(), -1000, 1000),
        ("maxOpenFiles", c.max_open_files, 0, ANY),
        ("maxPods", c.max_pods.into(), 0, ANY),
        ("podsPerCore", c.pods_per_core.into(), 0, ANY),
        (
            "evictionMaxPodGracePeriod",
            c.eviction_max_pod_grace_period.into(),
            0,
            ANY,
        ),
        (
            "containerLogMaxFiles",
            c.container_log_max_files.into(),
            2,
            ANY,
        ),
        (
            "containerLogMaxWorkers",
            c.container_log_max_workers.into(),
            1,
            ANY,
        ),
    ];
    for (field, value, from, to) in ranges {
        rules.range(field, value, from, to);
    }
    let (low, high) = (
        c.image_gc_low_threshold_percent,
        c.image_gc_high_threshold_percent,
    );
    rules.require(low < high, "imageGCLowThresholdPercent", || {
        format!("{low} must be less than imageGCHighThresholdPercent, which is {high}")
    });
    let factor = c.memory_throttling_factor;
    rules.require(
        factor > 0.0 && factor <= 1.0,
        "memoryThrottlingFactor",
        || format!("{factor} is out of range, write more than 0 and at most 1"),
    );
    let ids = c.user_namespaces.ids_per_pod;
    rules.require(
        ids > 0 && ids % 65_536 == 0,
        "userNamespaces.idsPerPod",
        || format!("{ids} is not a positive multiple of 65536"),
    );
    if let Some(rate) = c.tracing.as_ref().and_then(|t| t.sampling_rate_per_million) {
        rules.range("tracing.samplingRatePerMillion", rate.into(), 0, 1_000_000);
    }
    let collector = c.tracing.as_ref().and_then(|it| it.endpoint.as_deref());
    if let Some(endpoint) = collector
        && let Err(fault) = endpoint.parse::<CollectorAddress>()
    {
        rules.fault("tracing.endpoint", format!("{endpoint:?} {fault}"));
    }
}

fn durations(c: &KubeletConfiguration, gates: &FeatureGates, rules: &mut Rules<'_>) {
    let positive = [
        ("syncFrequency", c.sync_frequency),
        ("fileCheckFrequency", c.file_check_frequency),
        ("httpCheckFrequency", c.http_check_frequency),
        ("runtimeRequestTimeout", c.runtime_request_timeout),
        ("nodeStatusUpdateFrequency", c.node_status_update_frequency),
        ("nodeStatusReportFrequency", c.node_status_report_frequency),
    ];
    for (field, value) in positive {
        rules.require(value > GoDuration::ZERO, field, || {
            format!("{value} is not a period, write more than 0s")
        });
    }
    let (least, most) = (c.image_minimum_gc_age, c.image_maximum_gc_age);
    rules.require(most >= GoDuration::ZERO, "imageMaximumGCAge", || {
        format!("{most} is negative, write 0s to turn it off")
    });
    let off = most == GoDuration::ZERO;
    rules.require(off || most > least, "imageMaximumGCAge", || {
        format!("{most} must be more than imageMinimumGCAge, which is {least}")
    });
    between(rules, "cpuCFSQuotaPeriod", c.cpu_cfs_quota_period, 1, 1_000);
    if gates.enabled("KubeletCrashLoopBackOffMax")
        && let Some(most) = c.crash_loop_backoff.max_container_restart_period
    {
        let field = "crashLoopBackOff.maxContainerRestartPeriod";
        between(rules, field, most, 1_000, 300_000);
    }
    let interval = c.container_log_monitor_interval;
    rules.require(
        interval >= GoDuration::from_secs(3),
        "containerLogMonitorInterval",
        || format!("{interval} is too short, write 3s or more"),
    );
}

/// Checks a duration against bounds in milliseconds.
fn between(rules: &mut Rules<'_>, field: &str, value: GoDuration, from: i64, to: i64) {
    let (from, to) = (GoDuration::from_millis(from), GoDuration::from_millis(to));
    rules.require((from..=to).contains(&value), field, || {
        format!("{value} is out of range, write {from} to {to}")
    });
}

fn words(c: &KubeletConfiguration, gates: &FeatureGates, rules: &mut Rules<'_>) {
    let choices: [(&str, &str, &[&str]); 12] = [
        (
            "authorization.mode",
            &c.authorization.mode,
            &["AlwaysAllow", "Webhook"],
        ),
        ("cgroupDriver", &c.cgroup_driver, &["cgroupfs", "systemd"]),
        (
            "cpuManagerPolicy",
            &c.cpu_manager_policy,
            &["none", "static"],
        ),
        (
            "memoryManagerPolicy",
            &c.memory_manager_policy,
            &["None", "Static"],
        ),
        (
            "topologyManagerPolicy",
            &c.topology_manager_policy,
            &["none", "best-effort", "restricted", "single-numa-node"],
        ),
        (
            "topologyManagerScope",
            &c.topology_manager_scope,
            &["container", "pod"],
        ),
        (
            "hairpinMode",
            &c.hairpin_mode,
            &["none", "hairpin-veth", "promiscuous-bridge"],
        ),
        (
            "memorySwap.swapBehavior",
            &c.memory_swap.swap_behavior,
            &["", "NoSwap", "LimitedSwap"],
        ),
        (
            "configMapAndSecretChangeDetectionStrategy",
            &c.config_map_and_secret_change_detection_strategy,
            &["Get", "Cache", "Watch"],
        ),
        (
            "memoryReservationPolicy",
            &c.memory_reservation_policy,
            &["None", "TieredReservation"],
        ),
        ("logging.format", &c.logging.format, &["text", "json"]),
        (
            "imagePullCredentialsVerificationPolicy",
            &c.image_pull_credentials_verification_policy,
            &[
                "NeverVerify",
                "NeverVerifyPreloadedImages",
                "NeverVerifyAllowlistedImages",
                "AlwaysVerify",
            ],
        ),
    ];
    for (field, value, allowed) in choices {
        rules.one_of(field, value, allowed);
    }
    let tiered = c.memory_reservation_policy == "TieredReservation";
    rules.require(
        !tiered || gates.enabled("MemoryQoS"),
        "memoryReservationPolicy",
        || "TieredReservation needs the feature gate MemoryQoS".to_owned(),
    );
    rules.require(!c.run_once, "runOnce", || {
        "run-once mode does not exist any more, remove the field".to_owned()
    });
    let query = c.enable_system_log_query && !c.enable_system_log_handler;
    rules.require(!query, "enableSystemLogQuery", || {
        "needs enableSystemLogHandler: true".to_owned()
    });
}

fn sources_and_addresses(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    for (field, value) in [
        ("address", &c.address),
        ("healthzBindAddress", &c.healthz_bind_address),
    ] {
        rules.require(value.parse::<IpAddr>().is_ok(), field, || {
            format!("{value:?} is no IP address")
        });
    }
    for (index, server) in c.cluster_dns.iter().enumerate() {
        rules.require(
            server.parse::<IpAddr>().is_ok(),
            &format!("clusterDNS[{index}]"),
            || format!("{server:?} is no IP address"),
        );
    }
    let url = c.static_pod_url.as_str();
    let http = url.is_empty() || url.starts_with("http://") || url.starts_with("https://");
    rules.require(http, "staticPodURL", || {
        // not shown: it may have a password in it
        "is no URL of these kinds, write http://… or https://…".to_owned()
    });
    let endpoints = [
        ("containerRuntimeEndpoint", &c.container_runtime_endpoint),
        ("imageServiceEndpoint", &c.image_service_endpoint),
    ];
    for (field, endpoint) in endpoints {
        // a bare path is what upstream accepts too, with a warning
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        let usable = endpoint.is_empty() || path.starts_with('/');
        rules.require(usable, field, || {
            format!("{endpoint:?} is not a Unix socket, write unix:///path/to/socket")
        });
    }
    rules.require(
        !c.container_runtime_endpoint.is_empty(),
        "containerRuntimeEndpoint",
        || "must not be empty, write for example unix:///run/containerd/containerd.sock".to_owned(),
    );
}

fn server(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    if let Some(message) = tls::version_fault(&c.tls_min_version) {
        rules.fault("tlsMinVersion", message);
    }
    for message in tls::suite_faults(&c.tls_cipher_suites) {
        rules.fault("tlsCipherSuites", message);
    }
    let groups = &c.tls_curve_preferences;
    let faults = (0..groups.len()).filter_map(|index| tls::group_fault(groups, index));
    for message in faults {
        rules.fault("tlsCurvePreferences", message);
    }
    for (field, value, other) in [
        ("tlsCertFile", &c.tls_cert_file, &c.tls_private_key_file),
        (
            "tlsPrivateKeyFile",
            &c.tls_private_key_file,
            &c.tls_cert_file,
        ),
    ] {
        rules.require(!value.is_empty() || other.is_empty(), field, || {
            format!("must be set, since {other:?} is of no use without it")
        });
    }
    rules.require(c.read_only_port != c.port, "readOnlyPort", || {
        format!(
            "{} is the port of the HTTPS server, write 0 or another",
            c.port
        )
    });
}

fn sysctls(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    // which sysctls are safe depends on the kernel, what a pattern may be does not
    if let Err(error) = SysctlAllowList::new((0, 0), &c.allowed_unsafe_sysctls) {
        let (text, field) = (error.to_string(), "allowedUnsafeSysctls");
        let message = text.strip_prefix("allowedUnsafeSysctls: ");
        rules.fault(field, message.unwrap_or(&text));
    }
}

fn images(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    if let Some(most) = c.max_parallel_image_pulls {
        rules.range("maxParallelImagePulls", most.into(), 1, i64::MAX);
        rules.require(
            most <= 1 || !c.serialize_image_pulls,
            "maxParallelImagePulls",
            || format!("{most} needs serializeImagePulls: false"),
        );
    }
    let by_list = c.image_pull_credentials_verification_policy == "NeverVerifyAllowlistedImages";
    let list = &c.preloaded_images_verification_allowlist;
    rules.require(
        by_list || list.is_empty(),
        "preloadedImagesVerificationAllowlist",
        || "needs imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages".to_owned(),
    );
    if by_list && let Err(error) = VerificationPolicy::of("NeverVerifyAllowlistedImages", list) {
        rules.fault("preloadedImagesVerificationAllowlist", error.to_string());
    }
}

fn logs(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    let text = c.pod_logs_dir.as_str();
    let path = Path::new(text);
    let message = if !text.is_ascii() {
        Some("must be ASCII")
    } else if !path.is_absolute() {
        Some("must be an absolute path")
    } else if !is_clean(text) {
        Some("must not contain //, ., .. or a / at the end")
    } else {
        None
    };
    if let Some(message) = message {
        rules.fault("podLogsDir", format!("{text:?} {message}"));
    }
    let size = c.container_log_max_size.as_str();
    let whole = |size: Quantity| size.nanos() % 1_000_000_000 == 0;
    rules.require(size.parse().is_ok_and(whole), "containerLogMaxSize", || {
        format!("{size:?} is no number of bytes, write for example 10Mi, or -1 for no limit")
    });
}

fn is_clean(path: &str) -> bool {
    let parts: BTreeSet<_> = Path::new(path)
        .components()
        .filter(|part| matches!(part, Component::ParentDir | Component::CurDir))
        .collect();
    let rebuilt: std::path::PathBuf = Path::new(path).components().collect();
    parts.is_empty() && rebuilt.as_os_str() == path
}
