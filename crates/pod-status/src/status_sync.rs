//! What of a pod's status goes to the API server, and when (upstream's status manager).
//!
//! [`merge_status`] lays what the node agent found over what the server has: fields and
//! conditions of others stay, nothing that is over comes back, and a terminal phase waits until
//! no container can be running. [`status_patch`] is the difference as a strategic merge patch,
//! `None` if a user would see none. [`StatusSync`] is one pod's machine around the two: one
//! request at a time, the newest state when it is sent, a back-off, and the deletion of the
//! object once everything of the pod is gone.

mod machine;
mod merge;
mod patch;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use windlass_types::corev1::PodStatus;
use windlass_types::view::PodWorkerState;
use windlass_types::{Pod, PodUid, SharedPod};

pub use machine::{
    Answer, Call, Failure, FailureKind, Input, Next, Request, Role, StatusSync, Priority,
};
pub use merge::Refused;
pub(crate) use merge::merge_status;
pub(crate) use patch::status_patch;

/// What the node agent says of one pod.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalStatus {
    /// The pod as its worker knows it; a static pod is its own, not its mirror.
    pub pod: SharedPod,
    /// The status computed from it and from the runtime.
    pub status: Arc<PodStatus>,
    /// How far its worker is.
    pub worker: PodWorkerState,
    /// The runtime was asked about the pod; before that the status is not worth telling.
    pub looked: bool,
    /// The worker has finished: volumes and directories are gone too.
    pub released: bool,
}

impl LocalStatus {
    /// True if the other says the same; cheap where the two share what they say.
    pub fn same(&self, other: &Self) -> bool {
        self.worker == other.worker
            && self.looked == other.looked
            && self.released == other.released
            && (Arc::ptr_eq(&self.status, &other.status) || self.status == other.status)
            && (Arc::ptr_eq(&self.pod, &other.pod) || self.pod == other.pod)
    }
}

/// True if the pod's object may be deleted for good: the deletion was asked for, the server
/// knows how the pod ended, and nothing of it is left here.
///
/// The phase must be terminal in the API even if no container was ever started: controllers
/// count pods by their last phase.
pub(crate) fn can_be_deleted(object: &Pod, proposal: &LocalStatus) -> bool {
    object.metadata.deletion_timestamp.is_some()
        && object.status.as_ref().is_some_and(is_terminal)
        && proposal.worker == PodWorkerState::TerminatedPod
        && proposal.released
}

fn is_terminal(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

fn uid_of(object: &Pod) -> PodUid {
    windlass_types::PodExt::uid(object)
}
