//! Every setting by its path, and what this version does with it.
//!
//! One table with three uses: a user who sets a field that is accepted but not acted upon is
//! told once at start; zero values of the fields that upstream defaults on zero are treated as
//! absent; tests check that it lists each field of the structs exactly once.

/// What a field does in this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Acted upon.
    Yes,
    /// Acted upon but for what the text says.
    Partly(&'static str),
    /// Validated and kept, but nothing follows from it yet; the text names what is missing.
    NotYet(&'static str),
    /// Never acted upon, for the reason given.
    Ignored(&'static str),
}

/// One field of [`KubeletConfiguration`].
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Path of JSON names, joined by dots.
    pub path: &'static str,
    /// In a configuration file a zero value (`0`, `""`, `0s`) means the default, as upstream.
    pub zero_is_default: bool,
    /// What it does.
    pub support: Support,
}

use Support::{Ignored, NotYet, Partly, Yes};

const EVICTION: &str = "eviction and local storage limits";
const IMAGE_GC: &str = "image garbage collection";
const MANAGERS: &str = "the CPU, memory and topology managers";
const NODE: &str = "node-wide limits and reservations";
const QOS: &str = "reserved and throttled memory, and swap";
const STATISTICS: &str = "statistics tell of this cgroup, nothing is moved into it";
const VOLUMES: &str = "flexvolume drivers";

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

/// The table, in the order of the specification. Free-form maps and lists are one field.
pub static FIELDS: &[Field] = &[
    plain("enableServer", Yes),
    plain("staticPodPath", Yes),
    zero("podLogsDir", Yes),
    zero("syncFrequency", Yes),
    zero("fileCheckFrequency", Yes),
    zero("httpCheckFrequency", Yes),
    plain("staticPodURL", Yes),
    plain("staticPodURLHeader", Yes),
    zero("address", Yes),
    zero("port", Yes),
    plain("readOnlyPort", Yes),
    plain("tlsCertFile", Yes),
    plain("tlsPrivateKeyFile", Yes),
    plain("tlsCipherSuites", Yes),
    plain("tlsCurvePreferences", Yes),
    plain("tlsMinVersion", Yes),
    plain("rotateCertificates", Yes),
    plain("serverTLSBootstrap", Yes),
    // authentication: see its parts below
    // authorization: see its parts below
    plain("registryPullQPS", Yes),
    zero("registryBurst", Yes),
    zero("imagePullCredentialsVerificationPolicy", Yes),
    plain("preloadedImagesVerificationAllowlist", Yes),
    plain("eventRecordQPS", Yes),
    zero("eventBurst", Yes),
    plain("enableDebuggingHandlers", Yes),
    plain(
        "enableContentionProfiling",
        Ignored("Go's block profiler has no counterpart here"),
    ),
    plain("healthzPort", Yes),
    zero("healthzBindAddress", Yes),
    plain("oomScoreAdj", Yes),
    plain("clusterDomain", Yes),
    plain("clusterDNS", Yes),
    zero(
        "streamingConnectionIdleTimeout",
        Ignored("without effect upstream as well"),
    ),
    zero("nodeStatusUpdateFrequency", Yes),
    zero("nodeStatusReportFrequency", Yes),
    zero("nodeLeaseDurationSeconds", Yes),
    zero("imageMinimumGCAge", NotYet(IMAGE_GC)),
    plain("imageMaximumGCAge", NotYet(IMAGE_GC)),
    plain("imageGCHighThresholdPercent", NotYet(IMAGE_GC)),
    plain("imageGCLowThresholdPercent", NotYet(IMAGE_GC)),
    zero("volumeStatsAggPeriod", Yes),
    plain("kubeletCgroups", Partly(STATISTICS)),
    plain("systemCgroups", Partly(STATISTICS)),
    plain("cgroupRoot", Yes),
    plain("cgroupsPerQOS", Yes),
    zero("cgroupDriver", Yes),
    zero("cpuManagerPolicy", NotYet(MANAGERS)),
    plain("singleProcessOOMKill", Yes),
    plain("cpuManagerPolicyOptions", NotYet(MANAGERS)),
    zero("cpuManagerReconcilePeriod", NotYet(MANAGERS)),
    zero("memoryManagerPolicy", NotYet(MANAGERS)),
    zero("topologyManagerPolicy", NotYet(MANAGERS)),
    zero("topologyManagerScope", NotYet(MANAGERS)),
    plain("topologyManagerPolicyOptions", NotYet(MANAGERS)),
    plain("qosReserved", NotYet(QOS)),
    zero("runtimeRequestTimeout", Yes),
    zero("hairpinMode", Ignored("validated only, as upstream")),
    zero("maxPods", Yes),
    plain("podCIDR", Yes),
    plain("podPidsLimit", Yes),
    plain("resolvConf", Yes),
    plain("runOnce", Ignored("must stay false, as upstream")),
    plain("cpuCFSQuota", Yes),
    plain("cpuCFSQuotaPeriod", Yes),
    plain("nodeStatusMaxImages", Yes),
    zero("maxOpenFiles", Yes),
    zero(
        "contentType",
        Ignored("the API server is spoken to in JSON"),
    ),
    plain("kubeAPIQPS", Yes),
    zero("kubeAPIBurst", Yes),
    plain("serializeImagePulls", Yes),
    plain("maxParallelImagePulls", Yes),
    plain(
        "evictionHard",
        Partly("it counts for allocatable, nothing is evicted"),
    ),
    plain("evictionSoft", NotYet(EVICTION)),
    plain("evictionSoftGracePeriod", NotYet(EVICTION)),
    zero("evictionPressureTransitionPeriod", NotYet(EVICTION)),
    plain("evictionMaxPodGracePeriod", NotYet(EVICTION)),
    plain("evictionMinimumReclaim", NotYet(EVICTION)),
    plain("mergeDefaultEvictionSettings", Yes),
    plain("podsPerCore", Yes),
    plain("enableControllerAttachDetach", Yes),
    plain("protectKernelDefaults", NotYet(NODE)),
    plain("makeIPTablesUtilChains", NotYet(NODE)),
    plain(
        "iptablesMasqueradeBit",
        Ignored("without effect upstream as well"),
    ),
    plain(
        "iptablesDropBit",
        Ignored("without effect upstream as well"),
    ),
    plain("featureGates", Yes),
    plain("failSwapOn", Yes),
    // memorySwap: see its parts below
    zero("containerLogMaxSize", Yes),
    plain("containerLogMaxFiles", Yes),
    plain("containerLogMaxWorkers", Yes),
    plain("containerLogMonitorInterval", Yes),
    zero("configMapAndSecretChangeDetectionStrategy", Yes),
    plain("systemReserved", Yes),
    plain("kubeReserved", Yes),
    plain("reservedSystemCPUs", NotYet(NODE)),
    plain(
        "showHiddenMetricsForVersion",
        Ignored("there are no hidden metrics"),
    ),
    plain("systemReservedCgroup", NotYet(NODE)),
    plain("kubeReservedCgroup", NotYet(NODE)),
    plain("enforceNodeAllocatable", Yes),
    plain("allowedUnsafeSysctls", Yes),
    zero("volumePluginDir", NotYet(VOLUMES)),
    plain("providerID", Yes),
    plain("kernelMemcgNotification", NotYet(EVICTION)),
    // logging: see its parts below
    plain("enableSystemLogHandler", Yes),
    plain("enableSystemLogQuery", Yes),
    plain("shutdownGracePeriod", Yes),
    plain("shutdownGracePeriodCriticalPods", Yes),
    plain("shutdownGracePeriodByPodPriority", Yes),
    // crashLoopBackOff: see its parts below
    plain("reservedMemory", NotYet(MANAGERS)),
    plain("enableProfilingHandler", Yes),
    plain("enableDebugFlagsHandler", Yes),
    plain("seccompDefault", Yes),
    plain("memoryThrottlingFactor", NotYet(QOS)),
    zero("memoryReservationPolicy", NotYet(QOS)),
    plain("registerWithTaints", Yes),
    plain("registerNode", Yes),
    // tracing: see its parts below
    plain(
        "localStorageCapacityIsolation",
        Partly("it says whether the node has ephemeral-storage, nothing is evicted"),
    ),
    zero("containerRuntimeEndpoint", Yes),
    plain("imageServiceEndpoint", Yes),
    plain("failCgroupV1", Yes),
    // userNamespaces: see its parts below
    plain("authentication.x509.clientCAFile", Yes),
    plain("authentication.webhook.enabled", Yes),
    zero("authentication.webhook.cacheTTL", Yes),
    plain("authentication.anonymous.enabled", Yes),
    zero("authorization.mode", Yes),
    zero("authorization.webhook.cacheAuthorizedTTL", Yes),
    zero("authorization.webhook.cacheUnauthorizedTTL", Yes),
    plain("memorySwap.swapBehavior", NotYet(QOS)),
    plain("crashLoopBackOff.maxContainerRestartPeriod", Yes),
    plain("userNamespaces.idsPerPod", Yes),
    plain("tracing.endpoint", Yes),
    plain("tracing.samplingRatePerMillion", Yes),
    zero("logging.format", Yes),
    zero(
        "logging.flushFrequency",
        Ignored("lines are written as they come"),
    ),
    plain("logging.verbosity", Yes),
    plain(
        "logging.vmodule",
        Ignored("use RUST_LOG to set a level for a module"),
    ),
    plain(
        "logging.options.text.splitStream",
        Ignored("all lines go to stderr"),
    ),
    zero(
        "logging.options.text.infoBufferSize",
        Ignored("lines are written as they come"),
    ),
    plain(
        "logging.options.json.splitStream",
        Ignored("all lines go to stderr"),
    ),
    zero(
        "logging.options.json.infoBufferSize",
        Ignored("lines are written as they come"),
    ),
];

/// The table's row for a path.
pub fn find(path: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.path == path)
}

/// What users are told about a field they set that does nothing, or less than they may think.
pub fn notice(path: &str) -> Option<String> {
    match find(path)?.support {
        Yes => None,
        Partly(rest) => Some(format!("acted upon in part: {rest}")),
        NotYet(missing) => Some(format!(
            "accepted, but nothing follows from it in this version, which lacks {missing}"
        )),
        Ignored(reason) => Some(format!("accepted and ignored: {reason}")),
    }
}

/// Paths of all fields the structs have, for the check that the table is complete.
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
