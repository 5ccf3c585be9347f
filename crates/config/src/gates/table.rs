//! The feature gates that the kubelet of Kubernetes 1.36 accepts.
//!
//! Source: `pkg/features`, the `features` packages of apiserver, apiextensions-apiserver and
//! client-go, and those of component-base (logs, metrics, zpages).

use super::Gate;
use super::Stage::{self, Alpha, Beta, Deprecated, Ga};

const ON: bool = true;
const OFF: bool = false;
const LOCKED: bool = true;
const FREE: bool = false;

/// The Go kubelet or a library in it reads the gate.
const KUBELET: bool = true;
/// Only other components of Kubernetes read the gate.
const OTHER: bool = false;

const fn gate(
    in_kubelet: bool,
    name: &'static str,
    stage: Stage,
    default: bool,
    locked: bool,
) -> Gate {
    Gate {
        name,
        stage,
        default,
        locked,
        in_kubelet,
    }
}

/// All gates, by name.
pub(super) static GATES: &[Gate] = &rows! { gate:
    OTHER, "APIResponseCompression", Beta, ON, FREE;
    OTHER, "APIServerIdentity", Beta, ON, FREE;
    OTHER, "APIServerTracing", Ga, ON, LOCKED;
    OTHER, "APIServingWithRoutine", Alpha, OFF, FREE;
    OTHER, "AggregatedDiscoveryRemoveBetaType", Deprecated, ON, LOCKED;
    KUBELET, "AllowDNSOnlyNodeCSR", Deprecated, OFF, FREE;
    OTHER, "AllowInsecureKubeletCertificateSigningRequests", Deprecated, OFF, FREE;
    OTHER, "AllowOverwriteTerminationGracePeriodSeconds", Deprecated, OFF, LOCKED;
    OTHER, "AllowParsingUserUIDFromCertAuth", Beta, ON, FREE;
    OTHER, "AllowServiceExternalIPs", Ga, ON, FREE;
    OTHER, "AllowUnsafeMalformedObjectDeletion", Alpha, OFF, FREE;
    OTHER, "AnonymousAuthConfigurableEndpoints", Ga, ON, LOCKED;
    OTHER, "AnyVolumeDataSource", Ga, ON, LOCKED;
    KUBELET, "AtomicFIFO", Beta, ON, FREE;
    OTHER, "AuthorizeNodeWithSelectors", Ga, ON, LOCKED;
    OTHER, "AuthorizePodWebsocketUpgradeCreatePermission", Beta, ON, FREE;
    OTHER, "AuthorizeWithSelectors", Ga, ON, LOCKED;
    OTHER, "BtreeWatchCache", Ga, ON, LOCKED;
    OTHER, "CBORServingAndStorage", Alpha, OFF, FREE;
    KUBELET, "CPUManagerPolicyAlphaOptions", Alpha, OFF, FREE;
    KUBELET, "CPUManagerPolicyBetaOptions", Beta, ON, FREE;
    OTHER, "CPUManagerPolicyOptions", Ga, ON, LOCKED;
    OTHER, "CRDObservedGenerationTracking", Beta, ON, FREE;
    OTHER, "CRDValidationRatcheting", Ga, ON, LOCKED;
    KUBELET, "CRIListStreaming", Alpha, OFF, FREE;
    OTHER, "CSIServiceAccountTokenSecrets", Ga, ON, LOCKED;
    KUBELET, "CSIVolumeHealth", Alpha, OFF, FREE;
    KUBELET, "ChangeContainerStatusOnKubeletRestart", Deprecated, OFF, FREE;
    OTHER, "ClearingNominatedNodeNameAfterBinding", Beta, ON, FREE;
    KUBELET, "ClientsAllowCARotation", Beta, ON, FREE;
    KUBELET, "ClientsAllowCBOR", Alpha, OFF, FREE;
    KUBELET, "ClientsAllowTLSCacheGC", Beta, ON, FREE;
    KUBELET, "ClientsPreferCBOR", Alpha, OFF, FREE;
    OTHER, "CloudControllerManagerWatchBasedRoutesReconciliation", Alpha, OFF, FREE;
    OTHER, "CloudControllerManagerWebhook", Alpha, OFF, FREE;
    OTHER, "ClusterTrustBundle", Beta, OFF, FREE;
    KUBELET, "ClusterTrustBundleProjection", Beta, OFF, FREE;
    KUBELET, "ComponentFlagz", Beta, ON, FREE;
    KUBELET, "ComponentStatusz", Beta, ON, FREE;
    OTHER, "ConcurrentWatchObjectDecode", Beta, OFF, FREE;
    OTHER, "ConsistentListFromCache", Ga, ON, LOCKED;
    OTHER, "ConstrainedImpersonation", Beta, ON, FREE;
    KUBELET, "ContainerCheckpoint", Beta, ON, FREE;
    KUBELET, "ContainerRestartRules", Beta, ON, FREE;
    KUBELET, "ContainerStopSignals", Alpha, OFF, FREE;
    KUBELET, "ContextualLogging", Beta, ON, FREE;
    OTHER, "CoordinatedLeaderElection", Beta, OFF, FREE;
    OTHER, "CrossNamespaceVolumeDataSource", Alpha, OFF, FREE;
    KUBELET, "CustomCPUCFSQuotaPeriod", Ga, ON, FREE;
    OTHER, "CustomResourceFieldSelectors", Ga, ON, LOCKED;
    OTHER, "DRAAdminAccess", Ga, ON, LOCKED;
    OTHER, "DRAConsumableCapacity", Beta, ON, FREE;
    OTHER, "DRADeviceBindingConditions", Beta, ON, FREE;
    OTHER, "DRADeviceTaintRules", Beta, OFF, FREE;
    OTHER, "DRADeviceTaints", Beta, ON, FREE;
    KUBELET, "DRAExtendedResource", Beta, ON, FREE;
    OTHER, "DRAListTypeAttributes", Alpha, OFF, FREE;
    OTHER, "DRANodeAllocatableResources", Alpha, OFF, FREE;
    OTHER, "DRAPartitionableDevices", Beta, ON, FREE;
    OTHER, "DRAPrioritizedList", Ga, ON, FREE;
    OTHER, "DRAResourceClaimDeviceStatus", Beta, ON, FREE;
    OTHER, "DRAResourceClaimGranularStatusAuthorization", Beta, ON, FREE;
    OTHER, "DRAResourcePoolStatus", Alpha, OFF, FREE;
    OTHER, "DRASchedulerFilterTimeout", Beta, ON, FREE;
    KUBELET, "DRAWorkloadResourceClaims", Alpha, OFF, FREE;
    OTHER, "DeclarativeValidation", Ga, ON, LOCKED;
    OTHER, "DeclarativeValidationBeta", Beta, ON, FREE;
    OTHER, "DeclarativeValidationTakeover", Deprecated, OFF, FREE;
    OTHER, "DeploymentReplicaSetTerminatingReplicas", Beta, ON, FREE;
    OTHER, "DetectCacheInconsistency", Beta, ON, FREE;
    OTHER, "DisableAllocatorDualWrite", Ga, ON, LOCKED;
    KUBELET, "DisableCPUQuotaWithExclusiveCPUs", Deprecated, ON, FREE;
    KUBELET, "DisableNodeKubeProxyVersion", Deprecated, ON, LOCKED;
    KUBELET, "DynamicResourceAllocation", Ga, ON, LOCKED;
    KUBELET, "EnvFiles", Beta, ON, FREE;
    KUBELET, "EventedPLEG", Alpha, OFF, FREE;
    OTHER, "ExecProbeTimeout", Ga, ON, LOCKED;
    KUBELET, "ExtendWebSocketsToKubelet", Beta, ON, FREE;
    OTHER, "ExternalServiceAccountTokenSigner", Ga, ON, LOCKED;
    OTHER, "GangScheduling", Alpha, OFF, FREE;
    KUBELET, "GenericWorkload", Alpha, OFF, FREE;
    KUBELET, "GitRepoVolumeDriver", Deprecated, OFF, LOCKED;
    KUBELET, "GracefulNodeShutdown", Beta, ON, FREE;
    KUBELET, "GracefulNodeShutdownBasedOnPodPriority", Beta, ON, FREE;
    OTHER, "HPAConfigurableTolerance", Beta, ON, FREE;
    OTHER, "HPAScaleToZero", Alpha, OFF, FREE;
    KUBELET, "HostnameOverride", Beta, ON, FREE;
    KUBELET, "ImageMaximumGCAge", Ga, ON, LOCKED;
    KUBELET, "ImageVolume", Ga, ON, LOCKED;
    KUBELET, "ImageVolumeWithDigest", Alpha, OFF, FREE;
    KUBELET, "InOrderInformers", Ga, ON, LOCKED;
    KUBELET, "InOrderInformersBatchProcess", Beta, ON, FREE;
    KUBELET, "InPlacePodLevelResourcesVerticalScaling", Beta, ON, FREE;
    KUBELET, "InPlacePodVerticalScaling", Ga, ON, LOCKED;
    KUBELET, "InPlacePodVerticalScalingExclusiveCPUs", Alpha, OFF, FREE;
    KUBELET, "InPlacePodVerticalScalingExclusiveMemory", Alpha, OFF, FREE;
    KUBELET, "InPlacePodVerticalScalingInitContainers", Beta, ON, FREE;
    KUBELET, "InformerResourceVersion", Ga, ON, FREE;
    OTHER, "JobBackoffLimitPerIndex", Ga, ON, LOCKED;
    OTHER, "JobManagedBy", Ga, ON, LOCKED;
    OTHER, "JobPodReplacementPolicy", Ga, ON, LOCKED;
    OTHER, "JobSuccessPolicy", Ga, ON, LOCKED;
    OTHER, "KMSv1", Deprecated, OFF, FREE;
    OTHER, "KubeletCgroupDriverFromCRI", Ga, ON, LOCKED;
    KUBELET, "KubeletCrashLoopBackOffMax", Beta, ON, FREE;
    KUBELET, "KubeletEnsureSecretPulledImages", Beta, ON, FREE;
    KUBELET, "KubeletFineGrainedAuthz", Ga, ON, LOCKED;
    KUBELET, "KubeletInUserNamespace", Alpha, OFF, FREE;
    KUBELET, "KubeletPSI", Ga, ON, LOCKED;
    OTHER, "KubeletPodResourcesDynamicResources", Ga, ON, LOCKED;
    KUBELET, "KubeletPodResourcesGet", Ga, ON, LOCKED;
    KUBELET, "KubeletPodResourcesListUseActivePods", Deprecated, ON, FREE;
    KUBELET, "KubeletRegistrationGetOnExistsOnly", Deprecated, OFF, FREE;
    KUBELET, "KubeletSeparateDiskGC", Beta, ON, FREE;
    KUBELET, "KubeletServiceAccountTokenForCredentialProviders", Beta, ON, FREE;
    OTHER, "KubeletTracing", Ga, ON, LOCKED;
    OTHER, "ListFromCacheSnapshot", Beta, ON, FREE;
    KUBELET, "LocalStorageCapacityIsolationFSQuotaMonitoring", Beta, OFF, FREE;
    OTHER, "LogarithmicScaleDown", Ga, ON, LOCKED;
    KUBELET, "LoggingAlphaOptions", Alpha, OFF, FREE;
    KUBELET, "LoggingBetaOptions", Beta, ON, FREE;
    OTHER, "ManifestBasedAdmissionControlConfig", Alpha, OFF, FREE;
    OTHER, "MatchLabelKeysInPodAffinity", Ga, ON, LOCKED;
    OTHER, "MatchLabelKeysInPodTopologySpread", Beta, ON, FREE;
    OTHER, "MatchLabelKeysInPodTopologySpreadSelectorMerge", Beta, ON, FREE;
    OTHER, "MaxUnavailableStatefulSet", Beta, OFF, FREE;
    KUBELET, "MemoryQoS", Alpha, OFF, FREE;
    OTHER, "MultiCIDRServiceAllocator", Ga, ON, LOCKED;
    KUBELET, "MutableCSINodeAllocatableCount", Ga, ON, LOCKED;
    OTHER, "MutablePVNodeAffinity", Alpha, OFF, FREE;
    OTHER, "MutablePodResourcesForSuspendedJobs", Beta, ON, FREE;
    OTHER, "MutableSchedulingDirectivesForSuspendedJobs", Beta, ON, FREE;
    OTHER, "MutatingAdmissionPolicy", Ga, ON, FREE;
    OTHER, "NFTablesProxyMode", Ga, ON, LOCKED;
    KUBELET, "NativeHistograms", Alpha, OFF, FREE;
    KUBELET, "NodeDeclaredFeatures", Beta, ON, FREE;
    OTHER, "NodeInclusionPolicyInPodTopologySpread", Ga, ON, LOCKED;
    KUBELET, "NodeLogQuery", Ga, ON, LOCKED;
    KUBELET, "NodeSwap", Ga, ON, LOCKED;
    OTHER, "NominatedNodeNameForExpectation", Beta, ON, FREE;
    OTHER, "OpenAPIEnums", Beta, ON, FREE;
    OTHER, "OpportunisticBatching", Beta, ON, FREE;
    OTHER, "OrderedNamespaceDeletion", Ga, ON, LOCKED;
    KUBELET, "PLEGOnDemandRelist", Beta, ON, FREE;
    OTHER, "PersistentVolumeClaimUnusedSinceTime", Alpha, OFF, FREE;
    KUBELET, "PodAndContainerStatsFromCRI", Alpha, OFF, FREE;
    KUBELET, "PodCertificateRequest", Beta, OFF, FREE;
    OTHER, "PodDeletionCost", Beta, ON, FREE;
    KUBELET, "PodLevelResourceManagers", Alpha, OFF, FREE;
    KUBELET, "PodLevelResources", Beta, ON, FREE;
    KUBELET, "PodLifecycleSleepAction", Ga, ON, LOCKED;
    OTHER, "PodLifecycleSleepActionAllowZero", Ga, ON, LOCKED;
    KUBELET, "PodLogsQuerySplitStreams", Alpha, OFF, FREE;
    KUBELET, "PodObservedGenerationTracking", Ga, ON, LOCKED;
    KUBELET, "PodReadyToStartContainersCondition", Beta, ON, FREE;
    OTHER, "PodSchedulingReadiness", Ga, ON, LOCKED;
    OTHER, "PodTopologyLabelsAdmission", Beta, ON, FREE;
    KUBELET, "PodsAPI", Alpha, OFF, FREE;
    OTHER, "PortForwardWebsockets", Beta, ON, FREE;
    OTHER, "PreferSameTrafficDistribution", Ga, ON, LOCKED;
    KUBELET, "PreventStaticPodAPIReferences", Beta, ON, FREE;
    OTHER, "ProcMountType", Ga, ON, LOCKED;
    KUBELET, "QOSReserved", Alpha, OFF, FREE;
    KUBELET, "RecoverVolumeExpansionFailure", Ga, ON, LOCKED;
    KUBELET, "RecursiveReadOnlyMounts", Ga, ON, LOCKED;
    KUBELET, "ReduceDefaultCrashLoopBackOffDecay", Alpha, OFF, FREE;
    OTHER, "RelaxedDNSSearchValidation", Ga, ON, LOCKED;
    OTHER, "RelaxedEnvironmentVariableValidation", Ga, ON, LOCKED;
    OTHER, "RelaxedServiceNameValidation", Beta, ON, FREE;
    KUBELET, "ReloadKubeletClientCAFile", Beta, ON, FREE;
    KUBELET, "ReloadKubeletServerCertificateFile", Beta, ON, FREE;
    OTHER, "RemoteRequestHeaderUID", Beta, ON, FREE;
    OTHER, "ResilientWatchCacheInitialization", Ga, ON, LOCKED;
    KUBELET, "ResourceHealthStatus", Beta, ON, FREE;
    KUBELET, "ResourceHealthStatusMessage", Beta, ON, FREE;
    KUBELET, "RestartAllContainersOnContainerExits", Beta, ON, FREE;
    OTHER, "RetryGenerateName", Ga, ON, LOCKED;
    KUBELET, "RotateKubeletServerCertificate", Beta, ON, FREE;
    KUBELET, "RuntimeClassInImageCriApi", Alpha, OFF, FREE;
    KUBELET, "SELinuxChangePolicy", Ga, ON, LOCKED;
    KUBELET, "SELinuxMount", Beta, OFF, FREE;
    KUBELET, "SELinuxMountReadWriteOncePod", Ga, ON, LOCKED;
    OTHER, "SchedulerAsyncAPICalls", Beta, OFF, FREE;
    OTHER, "SchedulerAsyncPreemption", Beta, ON, FREE;
    OTHER, "SchedulerPopFromBackoffQ", Beta, ON, FREE;
    OTHER, "SchedulerQueueingHints", Ga, ON, LOCKED;
    OTHER, "SeparateCacheWatchRPC", Deprecated, OFF, LOCKED;
    OTHER, "SeparateTaintEvictionController", Ga, ON, LOCKED;
    OTHER, "ServiceAccountNodeAudienceRestriction", Beta, ON, FREE;
    OTHER, "ServiceAccountTokenJTI", Ga, ON, LOCKED;
    OTHER, "ServiceAccountTokenNodeBinding", Ga, ON, LOCKED;
    OTHER, "ServiceAccountTokenNodeBindingValidation", Ga, ON, LOCKED;
    OTHER, "ServiceAccountTokenPodNodeInfo", Ga, ON, LOCKED;
    OTHER, "ServiceCIDRStatusFieldWiping", Deprecated, ON, FREE;
    OTHER, "ShardedListAndWatch", Alpha, OFF, FREE;
    OTHER, "SidecarContainers", Ga, ON, LOCKED;
    OTHER, "SizeBasedListCostEstimate", Beta, ON, FREE;
    OTHER, "StaleControllerConsistencyDaemonSet", Beta, ON, FREE;
    OTHER, "StaleControllerConsistencyJob", Beta, ON, FREE;
    OTHER, "StaleControllerConsistencyReplicaSet", Beta, ON, FREE;
    OTHER, "StaleControllerConsistencyStatefulSet", Beta, ON, FREE;
    OTHER, "StatefulSetSemanticRevisionComparison", Beta, ON, FREE;
    OTHER, "StorageCapacityScoring", Alpha, OFF, FREE;
    OTHER, "StorageNamespaceIndex", Deprecated, ON, FREE;
    OTHER, "StorageVersionAPI", Alpha, OFF, FREE;
    OTHER, "StorageVersionHash", Beta, ON, FREE;
    OTHER, "StorageVersionMigrator", Beta, OFF, FREE;
    OTHER, "StreamingCollectionEncodingToJSON", Ga, ON, LOCKED;
    OTHER, "StreamingCollectionEncodingToProtobuf", Ga, ON, LOCKED;
    OTHER, "StrictIPCIDRValidation", Beta, ON, FREE;
    OTHER, "StructuredAuthenticationConfiguration", Ga, ON, LOCKED;
    OTHER, "StructuredAuthenticationConfigurationEgressSelector", Beta, ON, FREE;
    OTHER, "StructuredAuthenticationConfigurationJWKSMetrics", Beta, ON, FREE;
    KUBELET, "SupplementalGroupsPolicy", Ga, ON, LOCKED;
    KUBELET, "SystemdWatchdog", Ga, ON, LOCKED;
    KUBELET, "TaintTolerationComparisonOperators", Alpha, OFF, FREE;
    OTHER, "TokenRequestServiceAccountUIDValidation", Beta, ON, FREE;
    OTHER, "TopologyAwareWorkloadScheduling", Alpha, OFF, FREE;
    KUBELET, "TopologyManagerPolicyAlphaOptions", Alpha, OFF, FREE;
    KUBELET, "TopologyManagerPolicyBetaOptions", Beta, ON, FREE;
    KUBELET, "TopologyManagerPolicyOptions", Ga, ON, LOCKED;
    OTHER, "TranslateStreamCloseWebsocketRequests", Beta, ON, FREE;
    OTHER, "UnauthenticatedHTTP2DOSMitigation", Beta, ON, FREE;
    OTHER, "UnknownVersionInteroperabilityProxy", Beta, ON, FREE;
    KUBELET, "UnlockWhileProcessingFIFO", Beta, ON, FREE;
    OTHER, "UserNamespacesHostNetworkSupport", Alpha, OFF, FREE;
    KUBELET, "UserNamespacesSupport", Ga, ON, LOCKED;
    OTHER, "VolumeAttributesClass", Ga, ON, LOCKED;
    OTHER, "VolumeLimitScaling", Alpha, OFF, FREE;
    OTHER, "WatchCacheInitializationPostStartHook", Beta, ON, FREE;
    OTHER, "WatchList", Beta, ON, FREE;
    KUBELET, "WatchListClient", Beta, ON, FREE;
    OTHER, "WinDSR", Ga, ON, LOCKED;
    OTHER, "WinOverlay", Ga, ON, LOCKED;
    KUBELET, "WindowsCPUAndMemoryAffinity", Alpha, OFF, FREE;
    KUBELET, "WindowsGracefulNodeShutdown", Beta, ON, FREE;
    KUBELET, "WindowsHostNetwork", Deprecated, OFF, FREE;
    OTHER, "WorkloadAwarePreemption", Alpha, OFF, FREE;
    OTHER, "WorkloadWithJob", Alpha, OFF, FREE;
};

/// Gates with the gates that must be on while they are, without those that are locked on.
pub(super) static DEPENDENCIES: &[(&str, &[&str])] = &rows! {
    "ClusterTrustBundleProjection", &["ClusterTrustBundle"];
    "DRADeviceBindingConditions", &["DRAResourceClaimDeviceStatus"];
    "DRADeviceTaintRules", &["DRADeviceTaints"];
    "DRAResourceClaimGranularStatusAuthorization", &["DRAResourceClaimDeviceStatus"];
    "DRAWorkloadResourceClaims", &["GenericWorkload"];
    "ExtendWebSocketsToKubelet", &["NodeDeclaredFeatures"];
    "GangScheduling", &["GenericWorkload"];
    "GracefulNodeShutdownBasedOnPodPriority", &["GracefulNodeShutdown"];
    "InPlacePodLevelResourcesVerticalScaling", &["NodeDeclaredFeatures", "PodLevelResources"];
    "InPlacePodVerticalScalingInitContainers", &["NodeDeclaredFeatures"];
    "MatchLabelKeysInPodTopologySpreadSelectorMerge", &["MatchLabelKeysInPodTopologySpread"];
    "PodLevelResourceManagers", &["PodLevelResources"];
    "ResourceHealthStatusMessage", &["ResourceHealthStatus"];
    "RestartAllContainersOnContainerExits", &["ContainerRestartRules", "NodeDeclaredFeatures"];
    "StaleControllerConsistencyDaemonSet", &["AtomicFIFO"];
    "StaleControllerConsistencyJob", &["AtomicFIFO"];
    "StaleControllerConsistencyReplicaSet", &["AtomicFIFO"];
    "StaleControllerConsistencyStatefulSet", &["AtomicFIFO"];
    "StorageVersionAPI", &["APIServerIdentity"];
    "TopologyAwareWorkloadScheduling", &["GenericWorkload"];
    "UnknownVersionInteroperabilityProxy", &["APIServerIdentity"];
    "UserNamespacesHostNetworkSupport", &["NodeDeclaredFeatures"];
    "WindowsGracefulNodeShutdown", &["GracefulNodeShutdown"];
    "WorkloadAwarePreemption", &["GangScheduling"];
    "WorkloadWithJob", &["GenericWorkload"];
};
