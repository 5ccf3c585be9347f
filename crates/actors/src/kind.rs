//! The closed list of actors, with the bound of each mailbox and its arithmetic.

use std::fmt;

/// Every kind of actor in the agent.
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
    /// The centre.
    SyncLoop,
    /// Watches the runtime.
    Pleg,
    /// Registry of the pod workers.
    PodWorkers,
    /// One pod.
    PodWorker,
    /// Restarts containers that hang: runs the liveness probes.
    LivenessManager,
    /// Says which containers take traffic: runs the readiness probes.
    ReadinessManager,
    /// Says which containers are through their start: runs the startup probes.
    StartupManager,
    /// Sets up and releases the volumes of pods.
    VolumeManager,
    /// Brings statuses and mirror pods to the API server.
    StatusManager,
    /// Registers the node and reports its status.
    NodeStatus,
    /// Renews the node's lease.
    NodeLease,
    /// Stops pods before the machine shuts down.
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

    /// How many messages may wait in the actor's mailbox before senders wait.
    pub const fn mailbox_bound(self) -> usize {
        match self {
            // hears only its own answers: a pass, an event and a timer, one of each in flight
            Self::FileSource | Self::HttpSource | Self::ApiSource => 4,
            // three sources, each waits for its snapshot to be taken before the next: 3, doubled
            Self::PodStorage => 8,
            // upstream's update channel: 50; one merge yields at most 5 updates for each source
            Self::SyncLoop => 50,
            // inspections are coalesced per pod before they get here; 110 pods asking at once
            // plus the answers of 8 inspections in flight
            Self::Pleg => 256,
            // answers of 250 pods' workers (one each in flight) plus slack
            Self::PodWorkers => 256,
            // hears a slot and its own answers: one job, one timer, one kill in flight
            Self::PodWorker => 4,
            // hears a slot per pod, its own timer and the answers of its probes
            Self::LivenessManager | Self::ReadinessManager | Self::StartupManager => 4,
            // a request of each of 250 pods' jobs at most, and slack
            Self::VolumeManager => 256,
            // hears state lanes, slots per pod, and the answers of its own requests
            Self::StatusManager | Self::NodeStatus | Self::NodeLease | Self::NodeShutdown => 4,
        }
    }
}

impl fmt::Display for ActorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
