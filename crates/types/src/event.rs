//! Events of the PLEG: a changed runtime state of a pod.

use std::fmt;

use crate::ids::PodUid;

/// An observed change of one container or sandbox (upstream `pleg.PodLifecycleEvent`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodLifecycleEvent {
    /// The pod it belongs to.
    pub uid: PodUid,
    /// Kind of the change.
    pub kind: PodLifecycleEventKind,
    /// The runtime's ID of the container or sandbox.
    pub id: String,
}

/// Kinds of [`PodLifecycleEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodLifecycleEventKind {
    /// Now running.
    ContainerStarted,
    /// No longer running.
    ContainerDied,
    /// Removed from the runtime after its exit.
    ContainerRemoved,
    /// State unknown; inspect again.
    ContainerChanged,
}

impl fmt::Display for PodLifecycleEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} pod={} id={}", self.kind, self.uid, self.id)
    }
}
