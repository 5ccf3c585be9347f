//! User-visible reasons, spelled as Kubernetes spells them.

use std::fmt;

macro_rules! reasons {
    ($( $(#[$doc:meta])* $name:ident = $text:literal ),* $(,)?) => {
        /// Why a container waits, a pod failed or an event was recorded.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $( $(#[$doc])* $name ),* }

        impl Reason {
            /// The text users see.
            pub fn as_str(self) -> &'static str {
                match self { $( Self::$name => $text ),* }
            }
        }
    };
}

reasons! {
    // container waiting reasons
    /// The container is about to be created.
    ContainerCreating = "ContainerCreating",
    /// Init containers are still to complete.
    PodInitializing = "PodInitializing",
    /// The last start failed or the container keeps exiting; the restart is delayed.
    CrashLoopBackOff = "CrashLoopBackOff",
    /// The last pull failed; the next one is delayed.
    ImagePullBackOff = "ImagePullBackOff",
    /// The pull just failed.
    ErrImagePull = "ErrImagePull",
    /// `imagePullPolicy: Never` and the image is not on the node.
    ErrImageNeverPull = "ErrImageNeverPull",
    /// The image reference cannot be parsed.
    InvalidImageName = "InvalidImageName",
    /// The runtime could not be asked about the image.
    ImageInspectError = "ImageInspectError",
    /// The registry cannot be reached.
    RegistryUnavailable = "RegistryUnavailable",
    /// A signature check refused the image.
    SignatureValidationFailed = "SignatureValidationFailed",
    /// The container's configuration could not be made (env, mounts, security).
    CreateContainerConfigError = "CreateContainerConfigError",
    /// The runtime refused to create the container.
    CreateContainerError = "CreateContainerError",
    /// The runtime refused to start the container.
    RunContainerError = "RunContainerError",
    /// The postStart hook failed and the container was killed.
    PostStartHookError = "PostStartHookError",
    /// All containers of the pod are restarted, because the exit of one asks for it.
    RestartingAllContainers = "RestartingAllContainers",
    /// The sandbox could not be created.
    CreatePodSandboxError = "CreatePodSandboxError",
    /// A sandbox or container could not be stopped.
    KillContainerError = "KillContainerError",

    // terminated reasons
    /// Exit code 0.
    Completed = "Completed",
    /// Non-zero exit code without a better reason.
    Error = "Error",
    /// Killed by the kernel's OOM killer.
    OomKilled = "OOMKilled",
    /// It ran, and the runtime no longer knows it.
    ContainerStatusUnknown = "ContainerStatusUnknown",
    /// `activeDeadlineSeconds` ran out.
    DeadlineExceeded = "DeadlineExceeded",

    // event reasons
    /// Image pull begins.
    Pulling = "Pulling",
    /// Image pulled, or already present.
    Pulled = "Pulled",
    /// A pull, creation or start failed.
    Failed = "Failed",
    /// A restart or pull back-off is active.
    BackOff = "BackOff",
    /// ImageStatus failed.
    InspectFailed = "InspectFailed",
    /// Container created.
    Created = "Created",
    /// Container started.
    Started = "Started",
    /// Stop requested.
    Killing = "Killing",
    /// A postStart hook failed; its container is killed.
    FailedPostStartHook = "FailedPostStartHook",
    /// A preStop hook failed; its container is stopped nevertheless.
    FailedPreStopHook = "FailedPreStopHook",
    /// A hook's HTTPS request was answered in plain HTTP and repeated so.
    LifecycleHttpFallback = "LifecycleHTTPFallback",
    /// The kill took longer than allowed.
    ExceededGracePeriod = "ExceededGracePeriod",
    /// The kill failed.
    FailedKillPod = "FailedKillPod",
    /// RunPodSandbox failed.
    FailedCreatePodSandBox = "FailedCreatePodSandBox",
    /// Event: the pod's cgroup could not be made or set.
    FailedCreatePodContainer = "FailedCreatePodContainer",
    /// PodSandboxStatus failed.
    FailedPodSandBoxStatus = "FailedPodSandBoxStatus",
    /// The sandbox will be replaced.
    SandboxChanged = "SandboxChanged",
    /// The runtime's network is not ready.
    NetworkNotReady = "NetworkNotReady",
    /// Event: the signer will not sign a certificate of the pod.
    Denied = "Denied",
    /// Event: a certificate of the pod should have been renewed by now.
    CertificateOverdueForRefresh = "CertificateOverdueForRefresh",
    /// Event: a certificate of the pod ran out.
    CertificateExpired = "CertificateExpired",
    /// A sync failed.
    FailedSync = "FailedSync",
    /// A source delivered a pod that cannot be accepted.
    FailedValidation = "FailedValidation",
    /// A volume could not be set up.
    FailedMount = "FailedMount",
    /// A volume's device is not attached to the node.
    FailedAttachVolume = "FailedAttachVolume",
    /// The driver of a volume says that this node has no room for it: the pod fails.
    VolumeAttachmentLimitExceeded = "VolumeAttachmentLimitExceeded",
    /// A block volume could not be mapped.
    FailedMapVolume = "FailedMapVolume",
    /// A volume's file system was grown.
    FileSystemResizeSuccessful = "FileSystemResizeSuccessful",
    /// A volume's file system is not grown: the pod may not write to it.
    FileSystemResizeFailed = "FileSystemResizeFailed",
    /// A volume's file system could not be grown.
    VolumeResizeFailed = "VolumeResizeFailed",
    /// Event: giving a volume's files to the pod's group takes long.
    VolumePermissionChangeInProgress = "VolumePermissionChangeInProgress",
    /// Event: a volume that pods share belongs to another group than this pod asks for.
    AlreadyMountedVolume = "AlreadyMountedVolume",
    /// A pull secret is missing or malformed; the pull goes on without it.
    FailedToRetrieveImagePullSecret = "FailedToRetrieveImagePullSecret",
    /// A probe failed, or could not be put.
    Unhealthy = "Unhealthy",
    /// A probe succeeded with a remark.
    ProbeWarning = "ProbeWarning",
    /// The pod's nameserver or search list was cut.
    DnsConfigForming = "DNSConfigForming",
    /// The node's `resolv.conf` leaves no room for the cluster's domains, or cannot be read.
    CheckLimitsForResolvConf = "CheckLimitsForResolvConf",
    /// What memory volumes hold may be swapped to the disk.
    PossibleMemoryBackedVolumesOnDisk = "PossibleMemoryBackedVolumesOnDisk",
    /// Event of the node: its pods cannot be listed and watched at the API server.
    FailedPodWatch = "FailedPodWatch",
    /// Event of the node: its pods are watched again.
    PodWatchRestored = "PodWatchRestored",
    /// ClusterFirst without a cluster DNS address.
    MissingClusterDns = "MissingClusterDNS",

    // admission: reasons of refused pods
    /// Too little CPU left.
    OutOfCpu = "OutOfcpu",
    /// Too little memory left.
    OutOfMemory = "OutOfmemory",
    /// Too little local storage left.
    OutOfEphemeralStorage = "OutOfephemeral-storage",
    /// The node has as many pods as it may have.
    OutOfPods = "OutOfpods",
    /// Too little left of another resource; its name is in the message.
    OutOfResource = "OutOfResource",
    /// Node selector or required node affinity.
    NodeAffinity = "NodeAffinity",
    /// `spec.nodeName` is another node.
    NodeName = "NodeName",
    /// A port of the host is taken.
    NodePorts = "NodePorts",
    /// A `NoExecute` taint is not tolerated.
    TaintToleration = "TaintToleration",
    /// `spec.os` is another system.
    PodOsNotSupported = "PodOSNotSupported",
    /// The pod's `kubernetes.io/os` label is another system.
    PodOsSelectorNodeLabelDoesNotMatch = "PodOSSelectorNodeLabelDoesNotMatch",
    /// `supplementalGroupsPolicy: Strict` needs a runtime that knows it.
    SupplementalGroupsPolicyNotSupported = "SupplementalGroupsPolicyNotSupported",
    /// The kernel does not enforce AppArmor.
    AppArmor = "AppArmor",
    /// A sysctl is not allowed.
    SysctlForbidden = "SysctlForbidden",
    /// The node is short of a resource.
    Evicted = "Evicted",
    /// The machine is about to shut down.
    NodeShutdown = "NodeShutdown",
    /// Pod-level resources are switched off.
    PodLevelResourcesNotSupported = "PodLevelResourcesNotSupported",
    /// The node does not declare a feature the pod needs.
    PodFeatureUnsupported = "PodFeatureUnsupported",

    // node events
    /// A shutdown of the machine began or was cancelled.
    Shutdown = "Shutdown",
    /// The agent starts.
    Starting = "Starting",
    /// The machine was booted since the last report.
    Rebooted = "Rebooted",
    /// The node can run pods.
    NodeReady = "NodeReady",
    /// The node cannot run pods.
    NodeNotReady = "NodeNotReady",
    /// The node was uncordoned.
    NodeSchedulable = "NodeSchedulable",
    /// The node was cordoned.
    NodeNotSchedulable = "NodeNotSchedulable",
    /// Memory is available.
    NodeHasSufficientMemory = "NodeHasSufficientMemory",
    /// Memory is short.
    NodeHasInsufficientMemory = "NodeHasInsufficientMemory",
    /// Disk space is available.
    NodeHasNoDiskPressure = "NodeHasNoDiskPressure",
    /// Disk space is short.
    NodeHasDiskPressure = "NodeHasDiskPressure",
    /// Process IDs are available.
    NodeHasSufficientPid = "NodeHasSufficientPID",
    /// Process IDs are short.
    NodeHasInsufficientPid = "NodeHasInsufficientPID",

    // Windlass' own blockers, used where upstream has no word
    /// Everything runs, but a probe or a readiness gate says no.
    ContainersNotReady = "ContainersNotReady",
    /// The container runtime does not answer.
    RuntimeNotReady = "RuntimeNotReady",
    /// The container runtime does not answer a call about the pod.
    RuntimeCallHung = "RuntimeCallHung",
    /// The pod waits for a start slot.
    WaitingForStartSlot = "WaitingForStartSlot",
    /// An earlier pod of the same name still terminates.
    WaitingForPodTermination = "WaitingForPodTermination",
    /// Nothing of the pod runs, and the API server has not said yet that it is still wanted.
    WaitingForApiServer = "WaitingForApiServer",
    /// The pod is being stopped.
    Terminating = "Terminating",
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Reason {
    /// The reasons a pod can be refused for.
    const REJECTIONS: [Self; 17] = [
        Self::OutOfCpu,
        Self::OutOfMemory,
        Self::OutOfEphemeralStorage,
        Self::OutOfPods,
        Self::NodeAffinity,
        Self::NodeName,
        Self::NodePorts,
        Self::TaintToleration,
        Self::PodOsNotSupported,
        Self::PodOsSelectorNodeLabelDoesNotMatch,
        Self::SupplementalGroupsPolicyNotSupported,
        Self::AppArmor,
        Self::SysctlForbidden,
        Self::Evicted,
        Self::NodeShutdown,
        Self::PodLevelResourcesNotSupported,
        Self::PodFeatureUnsupported,
    ];

    /// The reason for a text of a refused pod's status; [`Reason::OutOfResource`] for one that
    /// names a resource this list does not have.
    pub fn from_rejection(text: &str) -> Self {
        let known = Self::REJECTIONS.into_iter().find(|r| r.as_str() == text);
        known.unwrap_or(Self::OutOfResource)
    }
}
