//! Validation rules of `KubeletConfiguration`. All violations are reported together.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Component, Path};

use windlass_credentials::image_access::VerificationPolicy;
use windlass_node_rules::admission::SysctlAllowList;
use windlass_units::quantity::Quantity;

use crate::collector::CollectorAddress;
use crate::duration::GoDuration;
use crate::gates::FeatureGates;
use crate::kubelet::KubeletConfiguration;
use crate::tls;

mod managers;
mod node;

pub use node::percent;

/// A field that violates a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidField {
    /// File or flag that set the field, or `default`.
    pub origin: String,
    /// Path of the field.
    pub field: String,
    /// What is wrong and what to set instead.
    pub message: String,
}

impl std::fmt::Display for InvalidField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}: {}", self.origin, self.field, self.message)
    }
}

/// Formats one field per line.
pub(crate) fn list(invalid: &[InvalidField]) -> String {
    invalid.iter().map(|field| format!("\n  {field}")).collect()
}

/// Checks all rules. `origin_of` returns the layer that set a field.
pub fn validate(
    config: &KubeletConfiguration,
    gates: &FeatureGates,
    origin_of: &dyn Fn(&str) -> String,
) -> Vec<InvalidField> {
    let mut rules = Rules {
        invalid: Vec::new(),
        origin_of,
    };
    numbers(config, &mut rules);
    durations(config, gates, &mut rules);
    enums(config, gates, &mut rules);
    sources_and_addresses(config, &mut rules);
    server(config, &mut rules);
    images(config, &mut rules);
    logs(config, &mut rules);
    node::reservations(config, &mut rules);
    managers::managers(config, gates, &mut rules);
    node::eviction(config, &mut rules);
    sysctls(config, &mut rules);
    node::registration(config, &mut rules);
    node::shutdown(config, &mut rules);
    rules.invalid
}

struct Rules<'a> {
    invalid: Vec<InvalidField>,
    origin_of: &'a dyn Fn(&str) -> String,
}

impl Rules<'_> {
    fn reject(&mut self, field: &str, message: impl Into<String>) {
        self.invalid.push(InvalidField {
            origin: (self.origin_of)(field),
            field: field.to_owned(),
            message: message.into(),
        });
    }

    fn require(&mut self, holds: bool, field: &str, message: impl FnOnce() -> String) {
        if !holds {
            self.reject(field, message());
        }
    }

    fn range(&mut self, field: &str, value: i64, from: i64, to: i64) {
        self.require((from..=to).contains(&value), field, || match to {
            i64::MAX => format!("must be {from} or more, got {value}"),
            to => format!("must be between {from} and {to}, got {value}"),
        });
    }

    fn one_of(&mut self, field: &str, value: &str, allowed: &[&str]) {
        self.require(allowed.contains(&value), field, || {
            let allowed: Vec<_> = allowed
                .iter()
                .filter(|word| !word.is_empty())
                .copied()
                .collect();
            format!("must be one of {}, got {value:?}", allowed.join(", "))
        });
    }
}

fn numbers(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    const ANY: i64 = i64::MAX;
    let ranges: [(&str, i64, i64, i64); 22] = rows! {
        "nodeLeaseDurationSeconds", c.node_lease_duration_seconds.into(), 1, ANY;
        "registryPullQPS", c.registry_pull_qps.into(), 0, ANY;
        "registryBurst", c.registry_burst.into(), 0, ANY;
        "eventRecordQPS", c.event_record_qps.into(), 0, ANY;
        "eventBurst", c.event_burst.into(), 0, ANY;
        "kubeAPIQPS", c.kube_api_qps.into(), 0, ANY;
        "kubeAPIBurst", c.kube_api_burst.into(), 0, ANY;
        "port", c.port.into(), 1, 65535;
        "readOnlyPort", c.read_only_port.into(), 0, 65535;
        "healthzPort", c.healthz_port.into(), 0, 65535;
        "imageGCHighThresholdPercent", c.image_gc_high_threshold_percent.into(), 0, 100;
        "imageGCLowThresholdPercent", c.image_gc_low_threshold_percent.into(), 0, 100;
        "iptablesMasqueradeBit", c.iptables_masquerade_bit.into(), 0, 31;
        "iptablesDropBit", c.iptables_drop_bit.into(), 0, 31;
        "nodeStatusMaxImages", c.node_status_max_images.into(), -1, ANY;
        "oomScoreAdj", c.oom_score_adj.into(), -1000, 1000;
        "maxOpenFiles", c.max_open_files, 0, ANY;
        "maxPods", c.max_pods.into(), 0, ANY;
        "podsPerCore", c.pods_per_core.into(), 0, ANY;
        "evictionMaxPodGracePeriod", c.eviction_max_pod_grace_period.into(), 0, ANY;
        "containerLogMaxFiles", c.container_log_max_files.into(), 2, ANY;
        "containerLogMaxWorkers", c.container_log_max_workers.into(), 1, ANY;
    };
    for (field, value, from, to) in ranges {
        rules.range(field, value, from, to);
    }
    let (low, high) = (
        c.image_gc_low_threshold_percent,
        c.image_gc_high_threshold_percent,
    );
    rules.require(low < high, "imageGCLowThresholdPercent", || {
        format!("must be less than imageGCHighThresholdPercent ({high}), got {low}")
    });
    let factor = c.memory_throttling_factor;
    rules.require(
        factor > 0.0 && factor <= 1.0,
        "memoryThrottlingFactor",
        || format!("must be more than 0 and at most 1, got {factor}"),
    );
    let ids = c.user_namespaces.ids_per_pod;
    rules.require(
        ids > 0 && ids % 65_536 == 0,
        "userNamespaces.idsPerPod",
        || format!("must be a positive multiple of 65536, got {ids}"),
    );
    if let Some(rate) = c.tracing.as_ref().and_then(|t| t.sampling_rate_per_million) {
        rules.range("tracing.samplingRatePerMillion", rate.into(), 0, 1_000_000);
    }
    let collector = c.tracing.as_ref().and_then(|it| it.endpoint.as_deref());
    if let Some(endpoint) = collector
        && let Err(error) = endpoint.parse::<CollectorAddress>()
    {
        rules.reject("tracing.endpoint", format!("{endpoint:?} {error}"));
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
            format!("must be more than 0s, got {value}")
        });
    }
    let (min, max) = (c.image_minimum_gc_age, c.image_maximum_gc_age);
    rules.require(max >= GoDuration::ZERO, "imageMaximumGCAge", || {
        format!("must not be negative, got {max}; set 0s to disable")
    });
    let off = max == GoDuration::ZERO;
    rules.require(off || max > min, "imageMaximumGCAge", || {
        format!("must be more than imageMinimumGCAge ({min}), got {max}")
    });
    between(rules, "cpuCFSQuotaPeriod", c.cpu_cfs_quota_period, 1, 1_000);
    if gates.enabled("KubeletCrashLoopBackOffMax")
        && let Some(max) = c.crash_loop_backoff.max_container_restart_period
    {
        let field = "crashLoopBackOff.maxContainerRestartPeriod";
        between(rules, field, max, 1_000, 300_000);
    }
    let interval = c.container_log_monitor_interval;
    rules.require(
        interval >= GoDuration::from_secs(3),
        "containerLogMonitorInterval",
        || format!("must be 3s or more, got {interval}"),
    );
}

/// Checks a duration against bounds in ms.
fn between(rules: &mut Rules<'_>, field: &str, value: GoDuration, from: i64, to: i64) {
    let (from, to) = (GoDuration::from_millis(from), GoDuration::from_millis(to));
    rules.require((from..=to).contains(&value), field, || {
        format!("must be between {from} and {to}, got {value}")
    });
}

fn enums(c: &KubeletConfiguration, gates: &FeatureGates, rules: &mut Rules<'_>) {
    let choices: [(&str, &str, &[&str]); 12] = rows! {
        "authorization.mode", &c.authorization.mode, &["AlwaysAllow", "Webhook"];
        "cgroupDriver", &c.cgroup_driver, &["cgroupfs", "systemd"];
        "cpuManagerPolicy", &c.cpu_manager_policy, &["none", "static"];
        "memoryManagerPolicy", &c.memory_manager_policy, &["None", "Static"];
        "topologyManagerPolicy", &c.topology_manager_policy,
            &["none", "best-effort", "restricted", "single-numa-node"];
        "topologyManagerScope", &c.topology_manager_scope, &["container", "pod"];
        "hairpinMode", &c.hairpin_mode, &["none", "hairpin-veth", "promiscuous-bridge"];
        "memorySwap.swapBehavior", &c.memory_swap.swap_behavior, &["", "NoSwap", "LimitedSwap"];
        "configMapAndSecretChangeDetectionStrategy",
            &c.config_map_and_secret_change_detection_strategy, &["Get", "Cache", "Watch"];
        "memoryReservationPolicy", &c.memory_reservation_policy, &["None", "TieredReservation"];
        "logging.format", &c.logging.format, &["text", "json"];
        "imagePullCredentialsVerificationPolicy", &c.image_pull_credentials_verification_policy,
            &["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages",
              "AlwaysVerify"];
    };
    for (field, value, allowed) in choices {
        rules.one_of(field, value, allowed);
    }
    let tiered = c.memory_reservation_policy == "TieredReservation";
    rules.require(
        !tiered || gates.enabled("MemoryQoS"),
        "memoryReservationPolicy",
        || "TieredReservation requires the feature gate MemoryQoS".to_owned(),
    );
    rules.require(!c.run_once, "runOnce", || {
        "run-once mode was removed; remove the field".to_owned()
    });
    let query = c.enable_system_log_query && !c.enable_system_log_handler;
    rules.require(!query, "enableSystemLogQuery", || {
        "requires enableSystemLogHandler: true".to_owned()
    });
}

fn sources_and_addresses(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    for (field, value) in [
        ("address", &c.address),
        ("healthzBindAddress", &c.healthz_bind_address),
    ] {
        rules.require(value.parse::<IpAddr>().is_ok(), field, || {
            format!("not an IP address: {value:?}")
        });
    }
    for (index, server) in c.cluster_dns.iter().enumerate() {
        rules.require(
            server.parse::<IpAddr>().is_ok(),
            &format!("clusterDNS[{index}]"),
            || format!("not an IP address: {server:?}"),
        );
    }
    let url = c.static_pod_url.as_str();
    let http = url.is_empty() || url.starts_with("http://") || url.starts_with("https://");
    rules.require(http, "staticPodURL", || {
        // not shown: it may contain a password
        "must be an http:// or https:// URL".to_owned()
    });
    let endpoints = [
        ("containerRuntimeEndpoint", &c.container_runtime_endpoint),
        ("imageServiceEndpoint", &c.image_service_endpoint),
    ];
    for (field, endpoint) in endpoints {
        // upstream accepts a bare path too
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        let usable = endpoint.is_empty() || path.starts_with('/');
        rules.require(usable, field, || {
            format!("must be a Unix socket (unix:///path/to/socket), got {endpoint:?}")
        });
    }
    rules.require(
        !c.container_runtime_endpoint.is_empty(),
        "containerRuntimeEndpoint",
        || "must not be empty; set for example unix:///run/containerd/containerd.sock".to_owned(),
    );
}

fn server(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    if let Some(message) = tls::version_error(&c.tls_min_version) {
        rules.reject("tlsMinVersion", message);
    }
    for message in tls::suite_errors(&c.tls_cipher_suites) {
        rules.reject("tlsCipherSuites", message);
    }
    let groups = &c.tls_curve_preferences;
    let errors = (0..groups.len()).filter_map(|index| tls::group_error(groups, index));
    for message in errors {
        rules.reject("tlsCurvePreferences", message);
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
            format!("must be set, required by {other:?}")
        });
    }
    rules.require(c.read_only_port != c.port, "readOnlyPort", || {
        format!("must differ from port ({}); set 0 to disable", c.port)
    });
}

fn sysctls(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    // the kernel version does not affect which patterns are valid
    if let Err(error) = SysctlAllowList::new((0, 0), &c.allowed_unsafe_sysctls) {
        let (text, field) = (error.to_string(), "allowedUnsafeSysctls");
        let message = text.strip_prefix("allowedUnsafeSysctls: ");
        rules.reject(field, message.unwrap_or(&text));
    }
}

fn images(c: &KubeletConfiguration, rules: &mut Rules<'_>) {
    if let Some(max) = c.max_parallel_image_pulls {
        rules.range("maxParallelImagePulls", max.into(), 1, i64::MAX);
        rules.require(
            max <= 1 || !c.serialize_image_pulls,
            "maxParallelImagePulls",
            || format!("{max} requires serializeImagePulls: false"),
        );
    }
    let by_list = c.image_pull_credentials_verification_policy == "NeverVerifyAllowlistedImages";
    let list = &c.preloaded_images_verification_allowlist;
    rules.require(
        by_list || list.is_empty(),
        "preloadedImagesVerificationAllowlist",
        || {
            "requires imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages"
                .to_owned()
        },
    );
    if by_list
        && let Err(error) = VerificationPolicy::from_config("NeverVerifyAllowlistedImages", list)
    {
        rules.reject("preloadedImagesVerificationAllowlist", error.to_string());
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
        Some("must not contain //, ., .. or a trailing /")
    } else {
        None
    };
    if let Some(message) = message {
        rules.reject("podLogsDir", format!("{text:?} {message}"));
    }
    let size = c.container_log_max_size.as_str();
    let whole = |size: Quantity| size.nanos() % 1_000_000_000 == 0;
    rules.require(size.parse().is_ok_and(whole), "containerLogMaxSize", || {
        format!("not a number of bytes: {size:?}; set for example 10Mi, or -1 for no limit")
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
