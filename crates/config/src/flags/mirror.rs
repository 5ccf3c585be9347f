//! Flags that mirror a configuration field, and ignored flags.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::Value;

use super::value::{self, Kind};

/// A flag and the field it sets.
#[derive(Clone, Copy, Debug)]
pub struct Mirror {
    /// Name without dashes.
    pub flag: &'static str,
    /// Path of the field.
    pub path: &'static str,
    /// Syntax of the value.
    pub kind: Kind,
}

/// A field set on the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct FlagSetting {
    /// Name without dashes.
    pub flag: &'static str,
    /// Path of the field.
    pub path: &'static str,
    /// The new value.
    pub value: Value,
}

/// The fields set on the command line, in the order of the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigFlags(pub Vec<FlagSetting>);

/// Ignored flags that were set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredFlags(pub Vec<&'static str>);

use Kind::{
    Duration, Gates, Headers, Integer, List, Map, ReservedMemory, Switch, Taints, Text, Thresholds,
    VModule,
};

const fn mirror(flag: &'static str, path: &'static str, kind: Kind) -> Mirror {
    Mirror { flag, path, kind }
}

/// All mirrored flags.
pub static MIRRORS: &[Mirror] = &rows! { mirror:
    "address", "address", Text;
    "allowed-unsafe-sysctls", "allowedUnsafeSysctls", List;
    "anonymous-auth", "authentication.anonymous.enabled", Switch;
    "authentication-token-webhook", "authentication.webhook.enabled", Switch;
    "authentication-token-webhook-cache-ttl", "authentication.webhook.cacheTTL", Duration;
    "authorization-mode", "authorization.mode", Text;
    "authorization-webhook-cache-authorized-ttl",
        "authorization.webhook.cacheAuthorizedTTL", Duration;
    "authorization-webhook-cache-unauthorized-ttl",
        "authorization.webhook.cacheUnauthorizedTTL", Duration;
    "cgroup-driver", "cgroupDriver", Text;
    "cgroup-root", "cgroupRoot", Text;
    "cgroups-per-qos", "cgroupsPerQOS", Switch;
    "client-ca-file", "authentication.x509.clientCAFile", Text;
    "cluster-dns", "clusterDNS", List;
    "cluster-domain", "clusterDomain", Text;
    "container-log-max-files", "containerLogMaxFiles", Integer;
    "container-log-max-size", "containerLogMaxSize", Text;
    "container-runtime-endpoint", "containerRuntimeEndpoint", Text;
    "contention-profiling", "enableContentionProfiling", Switch;
    "cpu-cfs-quota", "cpuCFSQuota", Switch;
    "cpu-cfs-quota-period", "cpuCFSQuotaPeriod", Duration;
    "cpu-manager-policy", "cpuManagerPolicy", Text;
    "cpu-manager-policy-options", "cpuManagerPolicyOptions", Map;
    "cpu-manager-reconcile-period", "cpuManagerReconcilePeriod", Duration;
    "enable-controller-attach-detach", "enableControllerAttachDetach", Switch;
    "enable-debugging-handlers", "enableDebuggingHandlers", Switch;
    "enable-server", "enableServer", Switch;
    "enforce-node-allocatable", "enforceNodeAllocatable", List;
    "event-burst", "eventBurst", Integer;
    "event-qps", "eventRecordQPS", Integer;
    "eviction-hard", "evictionHard", Thresholds;
    "eviction-max-pod-grace-period", "evictionMaxPodGracePeriod", Integer;
    "eviction-minimum-reclaim", "evictionMinimumReclaim", Map;
    "eviction-pressure-transition-period", "evictionPressureTransitionPeriod", Duration;
    "eviction-soft", "evictionSoft", Thresholds;
    "eviction-soft-grace-period", "evictionSoftGracePeriod", Map;
    "fail-cgroupv1", "failCgroupV1", Switch;
    "fail-swap-on", "failSwapOn", Switch;
    "feature-gates", "featureGates", Gates;
    "file-check-frequency", "fileCheckFrequency", Duration;
    "hairpin-mode", "hairpinMode", Text;
    "healthz-bind-address", "healthzBindAddress", Text;
    "healthz-port", "healthzPort", Integer;
    "http-check-frequency", "httpCheckFrequency", Duration;
    "image-gc-high-threshold", "imageGCHighThresholdPercent", Integer;
    "image-gc-low-threshold", "imageGCLowThresholdPercent", Integer;
    "image-service-endpoint", "imageServiceEndpoint", Text;
    "iptables-drop-bit", "iptablesDropBit", Integer;
    "iptables-masquerade-bit", "iptablesMasqueradeBit", Integer;
    "kernel-memcg-notification", "kernelMemcgNotification", Switch;
    "kube-api-burst", "kubeAPIBurst", Integer;
    "kube-api-content-type", "contentType", Text;
    "kube-api-qps", "kubeAPIQPS", Integer;
    "kube-reserved", "kubeReserved", Map;
    "kube-reserved-cgroup", "kubeReservedCgroup", Text;
    "kubelet-cgroups", "kubeletCgroups", Text;
    "local-storage-capacity-isolation", "localStorageCapacityIsolation", Switch;
    "log-flush-frequency", "logging.flushFrequency", Duration;
    "log-json-info-buffer-size", "logging.options.json.infoBufferSize", Text;
    "log-json-split-stream", "logging.options.json.splitStream", Switch;
    "log-text-info-buffer-size", "logging.options.text.infoBufferSize", Text;
    "log-text-split-stream", "logging.options.text.splitStream", Switch;
    "logging-format", "logging.format", Text;
    "make-iptables-util-chains", "makeIPTablesUtilChains", Switch;
    "manifest-url", "staticPodURL", Text;
    "manifest-url-header", "staticPodURLHeader", Headers;
    "max-open-files", "maxOpenFiles", Integer;
    "max-pods", "maxPods", Integer;
    "memory-manager-policy", "memoryManagerPolicy", Text;
    "minimum-image-ttl-duration", "imageMinimumGCAge", Duration;
    "node-status-max-images", "nodeStatusMaxImages", Integer;
    "node-status-update-frequency", "nodeStatusUpdateFrequency", Duration;
    "oom-score-adj", "oomScoreAdj", Integer;
    "pod-cidr", "podCIDR", Text;
    "pod-manifest-path", "staticPodPath", Text;
    "pod-max-pids", "podPidsLimit", Integer;
    "pods-per-core", "podsPerCore", Integer;
    "port", "port", Integer;
    "protect-kernel-defaults", "protectKernelDefaults", Switch;
    "provider-id", "providerID", Text;
    "qos-reserved", "qosReserved", Map;
    "read-only-port", "readOnlyPort", Integer;
    "register-node", "registerNode", Switch;
    "register-with-taints", "registerWithTaints", Taints;
    "registry-burst", "registryBurst", Integer;
    "registry-qps", "registryPullQPS", Integer;
    "reserved-cpus", "reservedSystemCPUs", Text;
    "reserved-memory", "reservedMemory", ReservedMemory;
    "resolv-conf", "resolvConf", Text;
    "rotate-certificates", "rotateCertificates", Switch;
    "rotate-server-certificates", "serverTLSBootstrap", Switch;
    "runonce", "runOnce", Switch;
    "runtime-request-timeout", "runtimeRequestTimeout", Duration;
    "seccomp-default", "seccompDefault", Switch;
    "serialize-image-pulls", "serializeImagePulls", Switch;
    "streaming-connection-idle-timeout", "streamingConnectionIdleTimeout", Duration;
    "sync-frequency", "syncFrequency", Duration;
    "system-cgroups", "systemCgroups", Text;
    "system-reserved", "systemReserved", Map;
    "system-reserved-cgroup", "systemReservedCgroup", Text;
    "tls-cert-file", "tlsCertFile", Text;
    "tls-cipher-suites", "tlsCipherSuites", List;
    "tls-min-version", "tlsMinVersion", Text;
    "tls-private-key-file", "tlsPrivateKeyFile", Text;
    "topology-manager-policy", "topologyManagerPolicy", Text;
    "topology-manager-policy-options", "topologyManagerPolicyOptions", Map;
    "topology-manager-scope", "topologyManagerScope", Text;
    "v", "logging.verbosity", Integer;
    "vmodule", "logging.vmodule", VModule;
    "volume-plugin-dir", "volumePluginDir", Text;
    "volume-stats-agg-period", "volumeStatsAggPeriod", Duration;
};

/// Flags of cAdvisor and of earlier releases.
static IGNORED: &[&str] = &[
    "application-metrics-count-limit",
    "boot-id-file",
    "container-hints",
    "container-runtime",
    "containerd",
    "containerd-namespace",
    "enable-load-reader",
    "event-storage-age-limit",
    "event-storage-event-limit",
    "experimental-allocatable-ignore-eviction",
    "experimental-mounter-path",
    "global-housekeeping-interval",
    "housekeeping-interval",
    "keep-terminated-pod-volumes",
    "log-cadvisor-usage",
    "machine-id-file",
    "max-housekeeping-interval",
    "node-status-report-frequency",
    "pod-infra-container-image",
    "storage-driver-buffer-duration",
    "storage-driver-db",
    "storage-driver-host",
    "storage-driver-password",
    "storage-driver-secure",
    "storage-driver-table",
    "storage-driver-user",
];

/// Ignored flags that take no value from the next word.
static IGNORED_SWITCHES: &[&str] = &[
    "enable-load-reader",
    "experimental-allocatable-ignore-eviction",
    "keep-terminated-pod-volumes",
    "log-cadvisor-usage",
    "storage-driver-secure",
];

fn as_switch(arg: Arg) -> Arg {
    arg.num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
}

fn argument(mirror: &'static Mirror) -> Arg {
    let kind = mirror.kind;
    let arg = Arg::new(mirror.flag)
        .long(mirror.flag)
        .value_name(kind.placeholder())
        .value_parser(move |text: &str| kind.parse(text))
        .help(format!("Field {}.", mirror.path))
        .help_heading("Configuration fields (prefer the configuration file)")
        .action(ArgAction::Append);
    let arg = if mirror.flag == "v" {
        arg.short('v')
    } else {
        arg
    };
    match kind {
        Switch => as_switch(arg),
        _ => arg.num_args(1).allow_hyphen_values(true),
    }
}

impl Args for ConfigFlags {
    fn augment_args(command: Command) -> Command {
        command.args(MIRRORS.iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ConfigFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut settings = Vec::new();
        for mirror in MIRRORS {
            let Some(values) = matches.get_many::<Value>(mirror.flag) else {
                continue;
            };
            if let Some(value) = value::join(values.cloned()) {
                settings.push(FlagSetting {
                    flag: mirror.flag,
                    path: mirror.path,
                    value,
                });
            }
        }
        Ok(Self(settings))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for IgnoredFlags {
    fn augment_args(command: Command) -> Command {
        command.args(IGNORED.iter().map(|flag| {
            let arg = Arg::new(*flag)
                .long(*flag)
                .hide(true)
                .action(ArgAction::Append);
            if IGNORED_SWITCHES.contains(flag) {
                as_switch(arg)
            } else {
                arg.num_args(1).allow_hyphen_values(true)
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for IgnoredFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = IGNORED.iter().filter(|flag| matches.contains_id(flag));
        Ok(Self(given.copied().collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
