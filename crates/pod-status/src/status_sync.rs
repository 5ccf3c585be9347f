//! Pod status in the API: merge, patch and state machine (upstream's status manager).
//!
//! `merge_status` merges the local status into the API status and keeps fields and conditions of
//! other writers. A terminal phase is withheld until the worker has terminated the pod: its sandbox
//! is stopped, so that a next pod can have its host ports, CPUs, devices and claims. `status_patch`
//! returns the difference as a strategic merge patch. [`StatusSync`] sends one request at a time
//! with a back-off, and deletes the object of a terminated pod.

mod machine;
mod merge;
mod patch;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use windlass_types::corev1::PodStatus;
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::view::PodWorkerState;
use windlass_types::{Phase, Pod, PodUid, SharedPod};

pub use machine::{
    Call, FailureKind, Input, Next, Priority, Request, RequestFailure, RequestResult, Role,
    StatusSync,
};
pub use merge::StatusConflict;
pub(crate) use merge::merge_status;
pub(crate) use patch::status_patch;

/// The local status of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalStatus {
    /// The pod of its worker; never the mirror pod of a static pod.
    pub pod: SharedPod,
    /// The generated status.
    pub status: Arc<PodStatus>,
    /// State of its worker.
    pub worker: PodWorkerState,
    /// The pod was observed in the runtime; before that its status is not sent.
    pub observed: bool,
    /// The worker has finished: volumes and directories are removed.
    pub released: bool,
}

impl LocalStatus {
    /// True for an equal status; compares pointers first.
    pub fn is_same(&self, other: &Self) -> bool {
        self.worker == other.worker
            && self.observed == other.observed
            && self.released == other.released
            && (Arc::ptr_eq(&self.status, &other.status) || self.status == other.status)
            && (Arc::ptr_eq(&self.pod, &other.pod) || self.pod == other.pod)
    }
}

/// True if the object of a terminated pod can be deleted: its deletionTimestamp is set and its
/// phase in the API is terminal, because controllers count pods by their last phase.
pub(crate) fn can_be_deleted(object: &Pod, local: &LocalStatus) -> bool {
    object.metadata.deletion_timestamp.is_some()
        && object.status.as_ref().is_some_and(Phase::is_terminal_in)
        && local.worker == PodWorkerState::TerminatedPod
        && (local.released || mutated(Mutation::DeletedTooEarly))
        && (has_run(local) || !mutated(Mutation::DeletedPodStays))
}

/// True if each app container has had an instance.
fn has_run(local: &LocalStatus) -> bool {
    let mut containers = local.status.container_statuses.iter().flatten();
    containers.all(|container| container.container_id.is_some())
}

fn uid_of(object: &Pod) -> PodUid {
    windlass_types::PodExt::uid(object)
}
