//! Feature gates: their names, stages and defaults in Kubernetes 1.36.

use std::collections::BTreeMap;
use std::fmt;

/// Maturity of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Off unless asked for.
    Alpha,
    /// Usually on.
    Beta,
    /// Generally available.
    Ga,
    /// About to go.
    Deprecated,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Ga => "GA",
            Self::Deprecated => "DEPRECATED",
        })
    }
}

/// One gate.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// Name.
    pub name: &'static str,
    /// Stage.
    pub stage: Stage,
    /// State if nobody says otherwise.
    pub default: bool,
    /// The state cannot be changed.
    pub locked: bool,
}

/// Asks for a change that the gates do not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// No such gate.
    #[error("unknown feature gate {0}: remove it{hint}", hint = hint(.0))]
    Unknown(String),
    /// The gate is locked to its default.
    #[error("cannot set feature gate {name} to {asked}: it is locked to {default}, remove it")]
    Locked {
        /// Name.
        name: &'static str,
        /// State asked for.
        asked: bool,
        /// State it has.
        default: bool,
    },
}

impl GateError {
    /// The name asked for.
    pub fn gate(&self) -> &str {
        match self {
            Self::Unknown(name) => name,
            Self::Locked { name, .. } => name,
        }
    }
}

/// The state of every gate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    changed: BTreeMap<&'static str, bool>,
}

impl FeatureGates {
    /// Defaults with the asked changes. All faults are returned, not only the first.
    ///
    /// `AllAlpha` and `AllBeta` set all gates of a stage that are not named themselves.
    pub fn new(asked: &BTreeMap<String, bool>) -> Result<Self, Vec<GateError>> {
        match Self::possible(asked) {
            (gates, errors) if errors.is_empty() => Ok(gates),
            (_, errors) => Err(errors),
        }
    }

    /// Defaults with those of the asked changes that are possible, and the faults of the others.
    pub(crate) fn possible(asked: &BTreeMap<String, bool>) -> (Self, Vec<GateError>) {
        let mut changed = BTreeMap::new();
        let mut errors = Vec::new();
        for (group, stage) in [("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)] {
            if let Some(&on) = asked.get(group) {
                let of_stage = GATES.iter().filter(|g| g.stage == stage && !g.locked);
                changed.extend(of_stage.map(|g| (g.name, on)));
            }
        }
        for (name, &on) in asked {
            if matches!(name.as_str(), "AllAlpha" | "AllBeta") {
                continue;
            }
            match find(name) {
                None => errors.push(GateError::Unknown(name.clone())),
                Some(gate) if gate.locked && gate.default != on => {
                    errors.push(GateError::Locked {
                        name: gate.name,
                        asked: on,
                        default: gate.default,
                    });
                }
                Some(gate) => {
                    changed.insert(gate.name, on);
                }
            }
        }
        (Self { changed }, errors)
    }

    /// Whether a gate is on. A name that is no gate is off.
    pub fn enabled(&self, name: &str) -> bool {
        match self.changed.get(name) {
            Some(&on) => on,
            None => find(name).is_some_and(|gate| gate.default),
        }
    }

    /// All gates.
    pub fn all(&self) -> impl Iterator<Item = (&'static Gate, bool)> + '_ {
        GATES.iter().map(|gate| (gate, self.enabled(gate.name)))
    }

    /// Gates that differ from their default.
    pub fn changed(&self) -> impl Iterator<Item = (&'static Gate, bool)> + '_ {
        self.changed
            .iter()
            .filter_map(|(name, &on)| find(name).map(|gate| (gate, on)))
            .filter(|(gate, on)| gate.default != *on)
    }
}

/// A gate by name.
pub fn find(name: &str) -> Option<&'static Gate> {
    GATES.iter().find(|gate| gate.name == name)
}

/// A gate whose name differs in case only is what a typing error looks like.
fn hint(name: &str) -> String {
    GATES
        .iter()
        .find(|gate| gate.name.eq_ignore_ascii_case(name))
        .map(|gate| format!(" or write {}", gate.name))
        .unwrap_or_default()
}

const ON: bool = true;
const OFF: bool = false;
const LOCKED: bool = true;
const FREE: bool = false;

const fn gate(name: &'static str, stage: Stage, default: bool, locked: bool) -> Gate {
    Gate {
        name,
        stage,
        default,
        locked,
    }
}

use Stage::{Alpha, Beta, Deprecated, Ga};

/// Gates that the node agent reads, by name.
pub(crate) static GATES: &[Gate] = &[
    gate("AllowDNSOnlyNodeCSR", Deprecated, OFF, FREE),
    gate("CPUManagerPolicyAlphaOptions", Alpha, OFF, FREE),
    gate("CPUManagerPolicyBetaOptions", Beta, ON, FREE),
    gate("CRIListStreaming", Alpha, OFF, FREE),
    gate("CSIVolumeHealth", Alpha, OFF, FREE),
    gate(
        "ChangeContainerStatusOnKubeletRestart",
        Deprecated,
        OFF,
        FREE,
    ),
    gate("ClusterTrustBundleProjection", Beta, OFF, FREE),
    gate("ComponentFlagz", Beta, ON, FREE),
    gate("ComponentStatusz", Beta, ON, FREE),
    gate("ContainerCheckpoint", Beta, ON, FREE),
    gate("ContainerRestartRules", Beta, ON, FREE),
    gate("ContainerStopSignals", Alpha, OFF, FREE),
    gate("CustomCPUCFSQuotaPeriod", Ga, ON, FREE),
    gate("DRAConsumableCapacity", Beta, ON, FREE),
    gate("DRAExtendedResource", Beta, ON, FREE),
    gate("DRAWorkloadResourceClaims", Alpha, OFF, FREE),
    gate("DisableCPUQuotaWithExclusiveCPUs", Deprecated, ON, FREE),
    gate("DisableNodeKubeProxyVersion", Deprecated, ON, LOCKED),
    gate("DynamicResourceAllocation", Ga, ON, LOCKED),
    gate("EnvFiles", Beta, ON, FREE),
    gate("EventedPLEG", Alpha, OFF, FREE),
    gate("ExtendWebSocketsToKubelet", Beta, ON, FREE),
    gate("GenericWorkload", Alpha, OFF, FREE),
    gate("GitRepoVolumeDriver", Deprecated, OFF, LOCKED),
    gate("GracefulNodeShutdown", Beta, ON, FREE),
    gate("GracefulNodeShutdownBasedOnPodPriority", Beta, ON, FREE),
    gate("HostnameOverride", Beta, ON, FREE),
    gate("ImageMaximumGCAge", Ga, ON, LOCKED),
    gate("ImageVolume", Ga, ON, LOCKED),
    gate("ImageVolumeWithDigest", Alpha, OFF, FREE),
    gate("InPlacePodLevelResourcesVerticalScaling", Beta, ON, FREE),
    gate("InPlacePodVerticalScaling", Ga, ON, LOCKED),
    gate("InPlacePodVerticalScalingExclusiveCPUs", Alpha, OFF, FREE),
    gate("InPlacePodVerticalScalingExclusiveMemory", Alpha, OFF, FREE),
    gate("InPlacePodVerticalScalingInitContainers", Beta, ON, FREE),
    gate("KubeletCrashLoopBackOffMax", Beta, ON, FREE),
    gate("KubeletEnsureSecretPulledImages", Beta, ON, FREE),
    gate("KubeletFineGrainedAuthz", Ga, ON, LOCKED),
    gate("KubeletInUserNamespace", Alpha, OFF, FREE),
    gate("KubeletPSI", Ga, ON, LOCKED),
    gate("KubeletPodResourcesGet", Ga, ON, LOCKED),
    gate("KubeletPodResourcesListUseActivePods", Deprecated, ON, FREE),
    gate("KubeletRegistrationGetOnExistsOnly", Deprecated, OFF, FREE),
    gate("KubeletSeparateDiskGC", Beta, ON, FREE),
    gate(
        "KubeletServiceAccountTokenForCredentialProviders",
        Beta,
        ON,
        FREE,
    ),
    gate(
        "LocalStorageCapacityIsolationFSQuotaMonitoring",
        Beta,
        OFF,
        FREE,
    ),
    gate("MemoryQoS", Alpha, OFF, FREE),
    gate("MutableCSINodeAllocatableCount", Ga, ON, LOCKED),
    gate("NodeDeclaredFeatures", Beta, ON, FREE),
    gate("NodeLogQuery", Ga, ON, LOCKED),
    gate("NodeSwap", Ga, ON, LOCKED),
    gate("PLEGOnDemandRelist", Beta, ON, FREE),
    gate("PodAndContainerStatsFromCRI", Alpha, OFF, FREE),
    gate("PodCertificateRequest", Beta, OFF, FREE),
    gate("PodLevelResourceManagers", Alpha, OFF, FREE),
    gate("PodLevelResources", Beta, ON, FREE),
    gate("PodLifecycleSleepAction", Ga, ON, LOCKED),
    gate("PodLogsQuerySplitStreams", Alpha, OFF, FREE),
    gate("PodReadyToStartContainersCondition", Beta, ON, FREE),
    gate("PodsAPI", Alpha, OFF, FREE),
    gate("PreventStaticPodAPIReferences", Beta, ON, FREE),
    gate("QOSReserved", Alpha, OFF, FREE),
    gate("RecoverVolumeExpansionFailure", Ga, ON, LOCKED),
    gate("RecursiveReadOnlyMounts", Ga, ON, LOCKED),
    gate("ReduceDefaultCrashLoopBackOffDecay", Alpha, OFF, FREE),
    gate("ReloadKubeletClientCAFile", Beta, ON, FREE),
    gate("ReloadKubeletServerCertificateFile", Beta, ON, FREE),
    gate("ResourceHealthStatus", Beta, ON, FREE),
    gate("ResourceHealthStatusMessage", Beta, ON, FREE),
    gate("RestartAllContainersOnContainerExits", Beta, ON, FREE),
    gate("RotateKubeletServerCertificate", Beta, ON, FREE),
    gate("RuntimeClassInImageCriApi", Alpha, OFF, FREE),
    gate("SELinuxChangePolicy", Ga, ON, LOCKED),
    gate("SELinuxMount", Beta, OFF, FREE),
    gate("SELinuxMountReadWriteOncePod", Ga, ON, LOCKED),
    gate("SupplementalGroupsPolicy", Ga, ON, LOCKED),
    gate("SystemdWatchdog", Ga, ON, LOCKED),
    gate("TaintTolerationComparisonOperators", Alpha, OFF, FREE),
    gate("TopologyManagerPolicyAlphaOptions", Alpha, OFF, FREE),
    gate("TopologyManagerPolicyBetaOptions", Beta, ON, FREE),
    gate("TopologyManagerPolicyOptions", Ga, ON, LOCKED),
    gate("UserNamespacesSupport", Ga, ON, LOCKED),
    gate("WindowsCPUAndMemoryAffinity", Alpha, OFF, FREE),
    gate("WindowsGracefulNodeShutdown", Beta, ON, FREE),
    gate("WindowsHostNetwork", Deprecated, OFF, FREE),
];

#[cfg(test)]
mod tests {
    use super::{FeatureGates, GATES};

    fn check(asked: &[(&str, bool)], gate: &str, expected: &str) {
        let asked = asked.iter().map(|(n, on)| ((*n).to_owned(), *on)).collect();
        let line = match FeatureGates::new(&asked) {
            Ok(gates) => gates.enabled(gate).to_string(),
            Err(errors) => errors
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
        };
        assert_eq!(line, expected);
    }

    #[test]
    fn gates_follow_defaults_changes_and_locks() {
        check(&[], "EventedPLEG", "false");
        check(&[], "ContainerCheckpoint", "true");
        check(&[("EventedPLEG", true)], "EventedPLEG", "true");
        check(&[("NodeSwap", true)], "NodeSwap", "true");
        check(
            &[
                ("NodeSwap", false),
                ("eventedpleg", true),
                ("Nonsense", true),
            ],
            "NodeSwap",
            "cannot set feature gate NodeSwap to false: it is locked to true, remove it; \
             unknown feature gate Nonsense: remove it; \
             unknown feature gate eventedpleg: remove it or write EventedPLEG",
        );
        check(&[("AllAlpha", true)], "EventedPLEG", "true");
        check(
            &[("AllAlpha", true), ("EventedPLEG", false)],
            "EventedPLEG",
            "false",
        );
        check(&[("AllAlpha", true)], "NoSuchGate", "false");
    }

    #[test]
    fn the_table_is_sorted_and_has_no_duplicates() {
        let names: Vec<_> = GATES.iter().map(|g| g.name.to_lowercase()).collect();
        let mut unique = names.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(names.len(), unique.len());
        assert_eq!(GATES.len(), 85);
    }
}
