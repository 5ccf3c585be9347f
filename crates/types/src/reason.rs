//! User-visible reasons, spelled as in Kubernetes.

crate::text_enum! {
    /// Reason of a waiting container, a failed pod, an event or a blocker.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Reason {
        // container waiting reasons
        /// The container is about to be created.
        ContainerCreating = "ContainerCreating",
        /// Init containers have not completed.
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
        /// The image status call failed.
        ImageInspectError = "ImageInspectError",
        /// The registry cannot be reached.
        RegistryUnavailable = "RegistryUnavailable",
        /// The signature of the image is invalid.
        SignatureValidationFailed = "SignatureValidationFailed",
        /// The container configuration is invalid (env, mounts, security).
        CreateContainerConfigError = "CreateContainerConfigError",
        /// CreateContainer failed.
        CreateContainerError = "CreateContainerError",
        /// StartContainer failed.
        RunContainerError = "RunContainerError",
        /// The postStart hook failed and the container was killed.
        PostStartHookError = "PostStartHookError",
        /// The exit of one container restarts all containers of the pod.
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
        /// The runtime has removed the container.
        ContainerStatusUnknown = "ContainerStatusUnknown",
        /// `activeDeadlineSeconds` expired.
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
        /// A changed pod requires features that the node does not declare.
        FailedNodeDeclaredFeaturesCheck = "FailedNodeDeclaredFeaturesCheck",
        /// A resize waits until the node admits it.
        ResizeDeferred = "ResizeDeferred",
        /// The node cannot do a resize.
        ResizeInfeasible = "ResizeInfeasible",
        /// New sizes of the pod are allocated.
        ResizeStarted = "ResizeStarted",
        /// The running containers have their allocated sizes.
        ResizeCompleted = "ResizeCompleted",
        /// The running containers could not be resized.
        ResizeError = "ResizeError",
        /// Stop requested.
        Killing = "Killing",
        /// A postStart hook failed; its container is killed.
        FailedPostStartHook = "FailedPostStartHook",
        /// A preStop hook failed; its container is stopped nevertheless.
        FailedPreStopHook = "FailedPreStopHook",
        /// The server of an HTTPS hook uses plain HTTP; the request is repeated over HTTP.
        LifecycleHttpFallback = "LifecycleHTTPFallback",
        /// The termination exceeded its grace period.
        ExceededGracePeriod = "ExceededGracePeriod",
        /// The kill failed.
        FailedKillPod = "FailedKillPod",
        /// RunPodSandbox failed.
        FailedCreatePodSandBox = "FailedCreatePodSandBox",
        /// The cgroup of the pod could not be created or updated.
        FailedCreatePodContainer = "FailedCreatePodContainer",
        /// PodSandboxStatus failed.
        FailedPodSandBoxStatus = "FailedPodSandBoxStatus",
        /// The sandbox will be replaced.
        SandboxChanged = "SandboxChanged",
        /// The runtime's network is not ready.
        NetworkNotReady = "NetworkNotReady",
        /// The signer rejected a certificate of the pod.
        Denied = "Denied",
        /// A certificate of the pod is overdue for renewal.
        CertificateOverdueForRefresh = "CertificateOverdueForRefresh",
        /// A certificate of the pod expired.
        CertificateExpired = "CertificateExpired",
        /// A sync failed.
        FailedSync = "FailedSync",
        /// A source delivered a pod that cannot be accepted.
        FailedValidation = "FailedValidation",
        /// A resource claim could not be prepared.
        FailedPrepareDynamicResources = "FailedPrepareDynamicResources",
        /// A volume could not be set up.
        FailedMount = "FailedMount",
        /// A volume's device is not attached to the node.
        FailedAttachVolume = "FailedAttachVolume",
        /// The attach limit of the driver is exceeded; the pod fails.
        VolumeAttachmentLimitExceeded = "VolumeAttachmentLimitExceeded",
        /// A block volume could not be mapped.
        FailedMapVolume = "FailedMapVolume",
        /// A file system was resized.
        FileSystemResizeSuccessful = "FileSystemResizeSuccessful",
        /// A file system was not resized because the volume is read-only.
        FileSystemResizeFailed = "FileSystemResizeFailed",
        /// A volume could not be resized.
        VolumeResizeFailed = "VolumeResizeFailed",
        /// An ownership change of a volume takes long.
        VolumePermissionChangeInProgress = "VolumePermissionChangeInProgress",
        /// A shared volume is mounted with another `fsGroup`.
        AlreadyMountedVolume = "AlreadyMountedVolume",
        /// A pull secret is missing or malformed; the pull continues without it.
        FailedToRetrieveImagePullSecret = "FailedToRetrieveImagePullSecret",
        /// A probe attempt failed or could not run.
        Unhealthy = "Unhealthy",
        /// A probe succeeded with a warning.
        ProbeWarning = "ProbeWarning",
        /// The nameservers or search domains were truncated.
        DnsConfigForming = "DNSConfigForming",
        /// `resolv.conf` of the node exceeds the limits, or cannot be read.
        CheckLimitsForResolvConf = "CheckLimitsForResolvConf",
        /// Memory volumes may be swapped to disk.
        PossibleMemoryBackedVolumesOnDisk = "PossibleMemoryBackedVolumesOnDisk",
        /// Node event: the pods of the node cannot be listed and watched.
        FailedPodWatch = "FailedPodWatch",
        /// Node event: the pods of the node are watched again.
        PodWatchRestored = "PodWatchRestored",
        /// Node event: a limit of node allocatable was set.
        NodeAllocatableEnforced = "NodeAllocatableEnforced",
        /// Node event: a limit of node allocatable could not be set.
        FailedNodeAllocatableEnforcement = "FailedNodeAllocatableEnforcement",
        /// ClusterFirst without a cluster DNS address.
        MissingClusterDns = "MissingClusterDNS",

        /// The pod is preempted, or waits for the end of the pods that it preempts.
        Preempting = "Preempting",

        // admission: reasons of rejected pods
        /// A critical pod does not fit, and no pods can be preempted.
        UnexpectedAdmissionError = "UnexpectedAdmissionError",
        /// Too little CPU left.
        OutOfCpu = "OutOfcpu",
        /// Too little memory left.
        OutOfMemory = "OutOfmemory",
        /// Too little local storage left.
        OutOfEphemeralStorage = "OutOfephemeral-storage",
        /// The node has its maximum number of pods.
        OutOfPods = "OutOfpods",
        /// Too little left of another resource; its name is in the message.
        OutOfResource = "OutOfResource",
        /// Node selector or required node affinity.
        NodeAffinity = "NodeAffinity",
        /// `spec.nodeName` is another node.
        NodeName = "NodeName",
        /// A host port is in use.
        NodePorts = "NodePorts",
        /// A `NoExecute` taint is not tolerated.
        TaintToleration = "TaintToleration",
        /// `spec.os` is another operating system.
        PodOsNotSupported = "PodOSNotSupported",
        /// The `kubernetes.io/os` label is another operating system.
        PodOsSelectorNodeLabelDoesNotMatch = "PodOSSelectorNodeLabelDoesNotMatch",
        /// The runtime does not support `supplementalGroupsPolicy: Strict`.
        SupplementalGroupsPolicyNotSupported = "SupplementalGroupsPolicyNotSupported",
        /// The kernel does not enforce AppArmor.
        AppArmor = "AppArmor",
        /// A sysctl is not allowed.
        SysctlForbidden = "SysctlForbidden",
        /// No alignment of the resources satisfies the topology manager policy.
        TopologyAffinityError = "TopologyAffinityError",
        /// The CPU request is not a number of full physical cores.
        SmtAlignmentError = "SMTAlignmentError",
        /// Evicted by the node.
        Evicted = "Evicted",
        /// The host is about to shut down.
        NodeShutdown = "NodeShutdown",
        /// Pod-level resources are disabled.
        PodLevelResourcesNotSupported = "PodLevelResourcesNotSupported",
        /// The node does not declare a feature the pod needs.
        PodFeatureUnsupported = "PodFeatureUnsupported",

        // node events
        /// The OOM killer killed a process because the host's memory was short.
        SystemOom = "SystemOOM",
        /// A host shutdown began or was cancelled.
        Shutdown = "Shutdown",
        /// The agent starts.
        Starting = "Starting",
        /// Containers and sandboxes could not be listed for garbage collection.
        ContainerGcFailed = "ContainerGCFailed",
        /// Passes of image garbage collection fail.
        ImageGcFailed = "ImageGCFailed",
        /// Removing images did not free enough space.
        FreeDiskSpaceFailed = "FreeDiskSpaceFailed",
        /// The file system of the images reports no size.
        InvalidDiskCapacity = "InvalidDiskCapacity",
        /// A resource is short, and the node tries to free it.
        EvictionThresholdMet = "EvictionThresholdMet",
        /// The host was rebooted since the last report.
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

        // events and blockers of Windlass without an upstream equivalent
        /// An operation of a pod hangs: an event of the node.
        PodOperationHung = "PodOperationHung",
        /// All containers run, but a probe or a readiness gate is not satisfied.
        ContainersNotReady = "ContainersNotReady",
        /// The container runtime is unreachable.
        RuntimeNotReady = "RuntimeNotReady",
        /// A runtime call of the pod hangs.
        RuntimeCallHung = "RuntimeCallHung",
        /// The pod waits for CPUs, memory nodes or devices.
        WaitingForResources = "WaitingForResources",
        /// The pod waits for a start slot.
        WaitingForStartSlot = "WaitingForStartSlot",
        /// A pod with the same full name still terminates.
        WaitingForPodTermination = "WaitingForPodTermination",
        /// Nothing of the restored pod runs, and the API server has not confirmed it.
        WaitingForApiServer = "WaitingForApiServer",
        /// The pod terminates.
        Terminating = "Terminating",
    }
}

impl Reason {
    /// The rejection reasons.
    const REJECTIONS: [Self; 20] = [
        Self::UnexpectedAdmissionError,
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
        Self::TopologyAffinityError,
        Self::SmtAlignmentError,
    ];

    /// Returns the reason in the status of a rejected pod; [`Reason::OutOfResource`] for another
    /// resource.
    pub fn from_rejection(text: &str) -> Self {
        let known = Self::REJECTIONS.into_iter().find(|r| r.as_str() == text);
        known.unwrap_or(Self::OutOfResource)
    }
}
