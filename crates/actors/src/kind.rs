//! The closed list of actors, with the bound of each mailbox and its arithmetic.

use std::fmt;

/// Kind of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActorKind {
    /// Reads manifests from a file or directory.
    FileSource,
    /// Reads manifests from a URL.
    HttpSource,
    /// Reads this node's pods from the API server.
    ApiSource,
    /// Merges the sources.
    PodStorage,
    /// Dispatches all events to the pod workers.
    SyncLoop,
    /// Relists the runtime and inspects pods.
    Pleg,
    /// Registry of the pod workers.
    PodWorkers,
    /// Worker of one pod.
    PodWorker,
    /// Runs the liveness probes.
    LivenessManager,
    /// Runs the readiness probes.
    ReadinessManager,
    /// Runs the startup probes.
    StartupManager,
    /// Sets up and tears down the volumes of pods.
    VolumeManager,
    /// Updates statuses and mirror pods at the API server.
    StatusManager,
    /// Registers the node and reports its status.
    NodeStatus,
    /// Renews the node lease.
    NodeLease,
    /// Terminates pods before a host shutdown.
    NodeShutdown,
}

impl ActorKind {
    /// Name in metrics, logs and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FileSource => "FileSource",
            Self::HttpSource => "HttpSource",
            Self::ApiSource => "ApiSource",
            Self::PodStorage => "PodStorage",
            Self::SyncLoop => "SyncLoop",
            Self::Pleg => "Pleg",
            Self::PodWorkers => "PodWorkers",
            Self::PodWorker => "PodWorker",
            Self::LivenessManager => "LivenessManager",
            Self::ReadinessManager => "ReadinessManager",
            Self::StartupManager => "StartupManager",
            Self::VolumeManager => "VolumeManager",
            Self::StatusManager => "StatusManager",
            Self::NodeStatus => "NodeStatus",
            Self::NodeLease => "NodeLease",
            Self::NodeShutdown => "NodeShutdown",
        }
    }

    /// Returns the capacity of the mailbox.
    pub const fn mailbox_bound(self) -> usize {
        match self {
            // receives only its completions: a pass, an event and a timer, one of each in flight
            Self::FileSource | Self::HttpSource | Self::ApiSource => 4,
            // three sources with one snapshot in flight each: 3, doubled
            Self::PodStorage => 8,
            // as the upstream update channel; one merge yields at most 5 updates per source
            Self::SyncLoop => 50,
            // inspections are coalesced per pod: 110 concurrent requests plus the completions of 8
            // inspections in flight
            Self::Pleg => 256,
            // one completion in flight for each of 250 workers, plus slack
            Self::PodWorkers => 256,
            // receives a slot and its completions: one job, one timer, one kill in flight
            Self::PodWorker => 4,
            // receives a slot per pod, its timer and the completions of its probes
            Self::LivenessManager | Self::ReadinessManager | Self::StartupManager => 4,
            // at most one request for each of 250 pods, plus slack
            Self::VolumeManager => 256,
            // receives state channels, slots per pod, and the completions of its requests
            Self::StatusManager | Self::NodeStatus | Self::NodeLease | Self::NodeShutdown => 4,
        }
    }
}

impl fmt::Display for ActorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
