//! Table of all configuration fields and their support in this version.
//!
//! It drives the startup warnings and the defaulting of zero values. A test checks that it lists
//! every field of the structs exactly once.

/// Support of a field in this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Supported.
    Full,
    /// Supported with the given limitation.
    Partial(&'static str),
    /// Validated, but without effect until the given feature is implemented.
    NotImplemented(&'static str),
    /// Never used, for the given reason.
    Ignored(&'static str),
}

/// One field of [`KubeletConfiguration`](crate::KubeletConfiguration).
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// JSON names joined by dots.
    pub path: &'static str,
    /// A zero value (`0`, `""`, `0s`) in the configuration file means the default.
    pub zero_is_default: bool,
    /// Support in this version.
    pub support: Support,
}

use Support::{Full, Ignored, NotImplemented, Partial};

const IPTABLES: &str = "iptables chains";
const RECONCILE: &str = "time between retries; changed CPU sets are applied immediately";
const STATISTICS: &str = "used for statistics only; no process is moved into the cgroup";
const VOLUMES: &str = "flexvolume drivers";
const IMMEDIATE: Support = Ignored("lines are written immediately");
const NO_EFFECT: Support = Ignored("no effect in the Go kubelet either");
const STDERR: Support = Ignored("all lines are written to stderr");

const fn plain(path: &'static str, support: Support) -> Field {
    Field {
        path,
        zero_is_default: false,
        support,
    }
}

const fn zero(path: &'static str, support: Support) -> Field {
    Field {
        path,
        zero_is_default: true,
        support,
    }
}

/// All fields, in the order of the API type. Free-form maps and lists are one field.
pub static FIELDS: &[Field] = &[
    plain("enableServer", Full),
    plain("staticPodPath", Full),
    zero("podLogsDir", Full),
    zero("syncFrequency", Full),
    zero("fileCheckFrequency", Full),
    zero("httpCheckFrequency", Full),
    plain("staticPodURL", Full),
    plain("staticPodURLHeader", Full),
    zero("address", Full),
    zero("port", Full),
    plain("readOnlyPort", Full),
    plain("tlsCertFile", Full),
    plain("tlsPrivateKeyFile", Full),
    plain("tlsCipherSuites", Full),
    plain("tlsCurvePreferences", Full),
    plain("tlsMinVersion", Full),
    plain("rotateCertificates", Full),
    plain("serverTLSBootstrap", Full),
    plain("registryPullQPS", Full),
    zero("registryBurst", Full),
    zero("imagePullCredentialsVerificationPolicy", Full),
    plain("preloadedImagesVerificationAllowlist", Full),
    plain("eventRecordQPS", Full),
    zero("eventBurst", Full),
    plain("enableDebuggingHandlers", Full),
    plain(
        "enableContentionProfiling",
        Ignored("there is no equivalent of Go's block profiler"),
    ),
    plain("healthzPort", Full),
    zero("healthzBindAddress", Full),
    plain("oomScoreAdj", Full),
    plain("clusterDomain", Full),
    plain("clusterDNS", Full),
    zero("streamingConnectionIdleTimeout", NO_EFFECT),
    zero("nodeStatusUpdateFrequency", Full),
    zero("nodeStatusReportFrequency", Full),
    zero("nodeLeaseDurationSeconds", Full),
    zero("imageMinimumGCAge", Full),
    plain("imageMaximumGCAge", Full),
    plain("imageGCHighThresholdPercent", Full),
    plain("imageGCLowThresholdPercent", Full),
    zero("volumeStatsAggPeriod", Full),
    plain("kubeletCgroups", Partial(STATISTICS)),
    plain("systemCgroups", Partial(STATISTICS)),
    plain("cgroupRoot", Full),
    plain("cgroupsPerQOS", Full),
    zero("cgroupDriver", Full),
    zero("cpuManagerPolicy", Full),
    plain("singleProcessOOMKill", Full),
    plain("cpuManagerPolicyOptions", Full),
    zero("cpuManagerReconcilePeriod", Partial(RECONCILE)),
    zero("memoryManagerPolicy", Full),
    zero("topologyManagerPolicy", Full),
    zero("topologyManagerScope", Full),
    plain("topologyManagerPolicyOptions", Full),
    plain("qosReserved", Full),
    zero("runtimeRequestTimeout", Full),
    zero(
        "hairpinMode",
        Ignored("validated only, as in the Go kubelet"),
    ),
    zero("maxPods", Full),
    plain("podCIDR", Full),
    plain("podPidsLimit", Full),
    plain("resolvConf", Full),
    plain("runOnce", Ignored("must be false, as in the Go kubelet")),
    plain("cpuCFSQuota", Full),
    plain("cpuCFSQuotaPeriod", Full),
    plain("nodeStatusMaxImages", Full),
    zero("maxOpenFiles", Full),
    zero(
        "contentType",
        Ignored("requests to the API server use JSON"),
    ),
    plain("kubeAPIQPS", Full),
    zero("kubeAPIBurst", Full),
    plain("serializeImagePulls", Full),
    plain("maxParallelImagePulls", Full),
    plain("evictionHard", Full),
    plain("evictionSoft", Full),
    plain("evictionSoftGracePeriod", Full),
    zero("evictionPressureTransitionPeriod", Full),
    plain("evictionMaxPodGracePeriod", Full),
    plain("evictionMinimumReclaim", Full),
    plain("mergeDefaultEvictionSettings", Full),
    plain("podsPerCore", Full),
    plain("enableControllerAttachDetach", Full),
    plain("protectKernelDefaults", Full),
    plain("makeIPTablesUtilChains", NotImplemented(IPTABLES)),
    plain("iptablesMasqueradeBit", NO_EFFECT),
    plain("iptablesDropBit", NO_EFFECT),
    plain("featureGates", Full),
    plain("failSwapOn", Full),
    zero("containerLogMaxSize", Full),
    plain("containerLogMaxFiles", Full),
    plain("containerLogMaxWorkers", Full),
    plain("containerLogMonitorInterval", Full),
    zero("configMapAndSecretChangeDetectionStrategy", Full),
    plain("systemReserved", Full),
    plain("kubeReserved", Full),
    plain("reservedSystemCPUs", Full),
    plain(
        "showHiddenMetricsForVersion",
        Ignored("there are no hidden metrics"),
    ),
    plain("systemReservedCgroup", Full),
    plain("kubeReservedCgroup", Full),
    plain("enforceNodeAllocatable", Full),
    plain("allowedUnsafeSysctls", Full),
    zero("volumePluginDir", NotImplemented(VOLUMES)),
    plain("providerID", Full),
    plain(
        "kernelMemcgNotification",
        Ignored("kernel notifications are always used where the kernel has them"),
    ),
    plain("enableSystemLogHandler", Full),
    plain("enableSystemLogQuery", Full),
    plain("shutdownGracePeriod", Full),
    plain("shutdownGracePeriodCriticalPods", Full),
    plain("shutdownGracePeriodByPodPriority", Full),
    plain("reservedMemory", Full),
    plain("enableProfilingHandler", Full),
    plain("enableDebugFlagsHandler", Full),
    plain("seccompDefault", Full),
    plain("memoryThrottlingFactor", Full),
    zero("memoryReservationPolicy", Full),
    plain("registerWithTaints", Full),
    plain("registerNode", Full),
    plain("localStorageCapacityIsolation", Full),
    zero("containerRuntimeEndpoint", Full),
    plain("imageServiceEndpoint", Full),
    plain("failCgroupV1", Full),
    plain("authentication.x509.clientCAFile", Full),
    plain("authentication.webhook.enabled", Full),
    zero("authentication.webhook.cacheTTL", Full),
    plain("authentication.anonymous.enabled", Full),
    zero("authorization.mode", Full),
    zero("authorization.webhook.cacheAuthorizedTTL", Full),
    zero("authorization.webhook.cacheUnauthorizedTTL", Full),
    plain("memorySwap.swapBehavior", Full),
    plain("crashLoopBackOff.maxContainerRestartPeriod", Full),
    plain("userNamespaces.idsPerPod", Full),
    plain("tracing.endpoint", Full),
    plain("tracing.samplingRatePerMillion", Full),
    zero("logging.format", Full),
    zero("logging.flushFrequency", IMMEDIATE),
    plain("logging.verbosity", Full),
    plain(
        "logging.vmodule",
        Ignored("use RUST_LOG to set the level of a module"),
    ),
    plain("logging.options.text.splitStream", STDERR),
    zero("logging.options.text.infoBufferSize", IMMEDIATE),
    plain("logging.options.json.splitStream", STDERR),
    zero("logging.options.json.infoBufferSize", IMMEDIATE),
];

/// Returns the field with a path.
pub fn find(path: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.path == path)
}

/// Returns the warning for a field that is not fully supported.
pub(crate) fn support_message(path: &str) -> Option<String> {
    match find(path)?.support {
        Full => None,
        Partial(rest) => Some(format!("partially supported: {rest}")),
        NotImplemented(missing) => Some(format!("not implemented: requires {missing}")),
        Ignored(reason) => Some(format!("ignored: {reason}")),
    }
}

/// Returns the paths of all fields of the structs.
#[cfg(test)]
pub(crate) fn paths_of(
    config: &crate::KubeletConfiguration,
) -> Result<Vec<String>, serde_json::Error> {
    let mut paths = Vec::new();
    crate::layers::leaves(&serde_json::to_value(config)?, "", &mut |path, _| {
        paths.push(path.to_owned());
    });
    Ok(paths)
}
