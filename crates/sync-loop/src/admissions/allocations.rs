//! Pods that wait for their CPUs, memory nodes and devices. Pure.
//!
//! Such a pod has no worker. The requests of one that fits count; one that will be rejected only
//! waits for the decision of the resource managers. Deletion, removal or termination ends the wait.

use windlass_node_rules::admission::Rejection;
use windlass_types::{PhaseOverride, PodExt, PodUid, SharedPod};

use super::{Admission, AdmittedPodSet};
use crate::dispatch::Dispatch;

impl AdmittedPodSet {
    /// True for a pod that waits for an allocation.
    pub(crate) fn is_allocating(&self, uid: &PodUid) -> bool {
        self.allocating.contains_key(uid)
    }

    /// Returns a pod that waits for an allocation.
    pub(crate) fn allocating(&self, uid: &PodUid) -> Option<&SharedPod> {
        self.allocating.get(uid)
    }

    /// Runs a pod that has its resources; `None` if it no longer waits for them.
    pub(crate) fn allocated(&mut self, uid: &PodUid) -> Option<Admission> {
        let pod = self.allocating.remove(uid)?;
        // one that was to be rejected turned out to run
        self.load.add(&pod);
        Some(self.dispatch_run(pod))
    }

    /// Rejects a pod that gets no resources; `None` if it no longer waits for them.
    pub(crate) fn not_allocated(
        &mut self,
        uid: &PodUid,
        rejection: Rejection,
    ) -> Option<Admission> {
        let pod = self.allocating.get(uid).cloned()?;
        Some(self.reject(pod, rejection))
    }

    /// Replaces the object of a pod that waits for an allocation; false if it does not.
    pub(super) fn update_allocating(&mut self, pod: &SharedPod) -> bool {
        let slot = self.allocating.get_mut(&pod.uid());
        slot.map(|slot| *slot = SharedPod::clone(pod)).is_some()
    }

    /// Rejects a pod that waits for an allocation and is terminated.
    pub(super) fn reject_allocating(
        &mut self,
        uid: &PodUid,
        cause: &PhaseOverride,
    ) -> Option<Dispatch> {
        let pod = self.allocating.remove(uid)?;
        self.load.remove(uid);
        self.rejected.insert(uid.clone());
        Some(Dispatch::Reject(pod, cause.clone()))
    }
}
