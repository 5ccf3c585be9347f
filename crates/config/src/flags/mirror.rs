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
pub static MIRRORS: &[Mirror] = &[
    mirror("address", "address", Text),
    mirror("allowed-unsafe-sysctls", "allowedUnsafeSysctls", List),
    mirror("anonymous-auth", "authentication.anonymous.enabled", Switch),
    mirror(
        "authentication-token-webhook",
        "authentication.webhook.enabled",
        Switch,
    ),
    mirror(
        "authentication-token-webhook-cache-ttl",
        "authentication.webhook.cacheTTL",
        Duration,
    ),
    mirror("authorization-mode", "authorization.mode", Text),
    mirror(
        "authorization-webhook-cache-authorized-ttl",
        "authorization.webhook.cacheAuthorizedTTL",
        Duration,
    ),
    mirror(
        "authorization-webhook-cache-unauthorized-ttl",
        "authorization.webhook.cacheUnauthorizedTTL",
        Duration,
    ),
    mirror("cgroup-driver", "cgroupDriver", Text),
    mirror("cgroup-root", "cgroupRoot", Text),
    mirror("cgroups-per-qos", "cgroupsPerQOS", Switch),
    mirror("client-ca-file", "authentication.x509.clientCAFile", Text),
    mirror("cluster-dns", "clusterDNS", List),
    mirror("cluster-domain", "clusterDomain", Text),
    mirror("container-log-max-files", "containerLogMaxFiles", Integer),
    mirror("container-log-max-size", "containerLogMaxSize", Text),
    mirror(
        "container-runtime-endpoint",
        "containerRuntimeEndpoint",
        Text,
    ),
    mirror("contention-profiling", "enableContentionProfiling", Switch),
    mirror("cpu-cfs-quota", "cpuCFSQuota", Switch),
    mirror("cpu-cfs-quota-period", "cpuCFSQuotaPeriod", Duration),
    mirror("cpu-manager-policy", "cpuManagerPolicy", Text),
    mirror("cpu-manager-policy-options", "cpuManagerPolicyOptions", Map),
    mirror(
        "cpu-manager-reconcile-period",
        "cpuManagerReconcilePeriod",
        Duration,
    ),
    mirror(
        "enable-controller-attach-detach",
        "enableControllerAttachDetach",
        Switch,
    ),
    mirror(
        "enable-debugging-handlers",
        "enableDebuggingHandlers",
        Switch,
    ),
    mirror("enable-server", "enableServer", Switch),
    mirror("enforce-node-allocatable", "enforceNodeAllocatable", List),
    mirror("event-burst", "eventBurst", Integer),
    mirror("event-qps", "eventRecordQPS", Integer),
    mirror("eviction-hard", "evictionHard", Thresholds),
    mirror(
        "eviction-max-pod-grace-period",
        "evictionMaxPodGracePeriod",
        Integer,
    ),
    mirror("eviction-minimum-reclaim", "evictionMinimumReclaim", Map),
    mirror(
        "eviction-pressure-transition-period",
        "evictionPressureTransitionPeriod",
        Duration,
    ),
    mirror("eviction-soft", "evictionSoft", Thresholds),
    mirror("eviction-soft-grace-period", "evictionSoftGracePeriod", Map),
    mirror("fail-cgroupv1", "failCgroupV1", Switch),
    mirror("fail-swap-on", "failSwapOn", Switch),
    mirror("feature-gates", "featureGates", Gates),
    mirror("file-check-frequency", "fileCheckFrequency", Duration),
    mirror("hairpin-mode", "hairpinMode", Text),
    mirror("healthz-bind-address", "healthzBindAddress", Text),
    mirror("healthz-port", "healthzPort", Integer),
    mirror("http-check-frequency", "httpCheckFrequency", Duration),
    mirror(
        "image-gc-high-threshold",
        "imageGCHighThresholdPercent",
        Integer,
    ),
    mirror(
        "image-gc-low-threshold",
        "imageGCLowThresholdPercent",
        Integer,
    ),
    mirror("image-service-endpoint", "imageServiceEndpoint", Text),
    mirror("iptables-drop-bit", "iptablesDropBit", Integer),
    mirror("iptables-masquerade-bit", "iptablesMasqueradeBit", Integer),
    mirror(
        "kernel-memcg-notification",
        "kernelMemcgNotification",
        Switch,
    ),
    mirror("kube-api-burst", "kubeAPIBurst", Integer),
    mirror("kube-api-content-type", "contentType", Text),
    mirror("kube-api-qps", "kubeAPIQPS", Integer),
    mirror("kube-reserved", "kubeReserved", Map),
    mirror("kube-reserved-cgroup", "kubeReservedCgroup", Text),
    mirror("kubelet-cgroups", "kubeletCgroups", Text),
    mirror(
        "local-storage-capacity-isolation",
        "localStorageCapacityIsolation",
        Switch,
    ),
    mirror("log-flush-frequency", "logging.flushFrequency", Duration),
    mirror(
        "log-json-info-buffer-size",
        "logging.options.json.infoBufferSize",
        Text,
    ),
    mirror(
        "log-json-split-stream",
        "logging.options.json.splitStream",
        Switch,
    ),
    mirror(
        "log-text-info-buffer-size",
        "logging.options.text.infoBufferSize",
        Text,
    ),
    mirror(
        "log-text-split-stream",
        "logging.options.text.splitStream",
        Switch,
    ),
    mirror("logging-format", "logging.format", Text),
    mirror(
        "make-iptables-util-chains",
        "makeIPTablesUtilChains",
        Switch,
    ),
    mirror("manifest-url", "staticPodURL", Text),
    mirror("manifest-url-header", "staticPodURLHeader", Headers),
    mirror("max-open-files", "maxOpenFiles", Integer),
    mirror("max-pods", "maxPods", Integer),
    mirror("memory-manager-policy", "memoryManagerPolicy", Text),
    mirror("minimum-image-ttl-duration", "imageMinimumGCAge", Duration),
    mirror("node-status-max-images", "nodeStatusMaxImages", Integer),
    mirror(
        "node-status-update-frequency",
        "nodeStatusUpdateFrequency",
        Duration,
    ),
    mirror("oom-score-adj", "oomScoreAdj", Integer),
    mirror("pod-cidr", "podCIDR", Text),
    mirror("pod-manifest-path", "staticPodPath", Text),
    mirror("pod-max-pids", "podPidsLimit", Integer),
    mirror("pods-per-core", "podsPerCore", Integer),
    mirror("port", "port", Integer),
    mirror("protect-kernel-defaults", "protectKernelDefaults", Switch),
    mirror("provider-id", "providerID", Text),
    mirror("qos-reserved", "qosReserved", Map),
    mirror("read-only-port", "readOnlyPort", Integer),
    mirror("register-node", "registerNode", Switch),
    mirror("register-with-taints", "registerWithTaints", Taints),
    mirror("registry-burst", "registryBurst", Integer),
    mirror("registry-qps", "registryPullQPS", Integer),
    mirror("reserved-cpus", "reservedSystemCPUs", Text),
    mirror("reserved-memory", "reservedMemory", ReservedMemory),
    mirror("resolv-conf", "resolvConf", Text),
    mirror("rotate-certificates", "rotateCertificates", Switch),
    mirror("rotate-server-certificates", "serverTLSBootstrap", Switch),
    mirror("runonce", "runOnce", Switch),
    mirror("runtime-request-timeout", "runtimeRequestTimeout", Duration),
    mirror("seccomp-default", "seccompDefault", Switch),
    mirror("serialize-image-pulls", "serializeImagePulls", Switch),
    mirror(
        "streaming-connection-idle-timeout",
        "streamingConnectionIdleTimeout",
        Duration,
    ),
    mirror("sync-frequency", "syncFrequency", Duration),
    mirror("system-cgroups", "systemCgroups", Text),
    mirror("system-reserved", "systemReserved", Map),
    mirror("system-reserved-cgroup", "systemReservedCgroup", Text),
    mirror("tls-cert-file", "tlsCertFile", Text),
    mirror("tls-cipher-suites", "tlsCipherSuites", List),
    mirror("tls-min-version", "tlsMinVersion", Text),
    mirror("tls-private-key-file", "tlsPrivateKeyFile", Text),
    mirror("topology-manager-policy", "topologyManagerPolicy", Text),
    mirror(
        "topology-manager-policy-options",
        "topologyManagerPolicyOptions",
        Map,
    ),
    mirror("topology-manager-scope", "topologyManagerScope", Text),
    mirror("v", "logging.verbosity", Integer),
    mirror("vmodule", "logging.vmodule", VModule),
    mirror("volume-plugin-dir", "volumePluginDir", Text),
    mirror("volume-stats-agg-period", "volumeStatsAggPeriod", Duration),
];

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
