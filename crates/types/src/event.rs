//! What the PLEG tells the SyncLoop: a hint that a pod's runtime state changed.

use std::fmt;

use crate::ids::PodUid;

/// One observed change of one container or sandbox (upstream `pleg.PodLifecycleEvent`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodLifecycleEvent {
    /// The pod it belongs to.
    pub uid: PodUid,
    /// What happened.
    pub kind: PodLifecycleEventKind,
    /// The runtime's ID of the container or sandbox.
    pub id: String,
}

/// Kinds of [`PodLifecycleEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodLifecycleEventKind {
    /// Now running.
    ContainerStarted,
    /// Was there, runs no longer.
    ContainerDied,
    /// An exited container is no longer known to the runtime.
    ContainerRemoved,
    /// State is unknown, look again.
    ContainerChanged,
}

impl fmt::Display for PodLifecycleEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} pod={} id={}", self.kind, self.uid, self.id)
    }
}
