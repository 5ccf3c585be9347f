//! Result of a merge: ordered notifications and rejected pods.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use windlass_types::pod::SharedPod;
use windlass_types::{PodExt, PodOp, PodSource, PodUid, PodUpdate, Timestamp};

use super::{Change, Mode, check_and_update_pod, mark};

/// Result of a merge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergeResult {
    /// Changes, in the order in which they must be handled.
    pub updates: Vec<PodUpdate>,
    /// Newly rejected pods; each gets a `FailedValidation` event.
    pub rejected: Vec<RejectedPod>,
}

impl fmt::Display for MergeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = self.updates.iter().map(ToString::to_string).collect();
        let rejected = self.rejected.iter();
        words.extend(rejected.map(|r| format!("rejected({})", r.pod.full_name())));
        if words.is_empty() {
            words.push("nothing".to_owned());
        }
        f.write_str(&words.join(" "))
    }
}

/// A pod with the name or UID of another pod of its source.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedPod {
    /// The pod.
    pub pod: SharedPod,
    /// Its source.
    pub source: PodSource,
    /// Text of the event.
    pub message: String,
}

impl RejectedPod {
    /// Returns whether both are the same rejection.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.message == other.message && self.pod.uid() == other.pod.uid()
    }
}

/// The changes of one merge, one list for each operation.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) restores: Vec<SharedPod>,
    pub(super) removes: Vec<SharedPod>,
    adds: Vec<SharedPod>,
    updates: Vec<SharedPod>,
    deletes: Vec<SharedPod>,
    reconciles: Vec<SharedPod>,
}

impl Changes {
    /// Adds a pod to the list of its operation and returns the version to store.
    pub(super) fn merge(
        &mut self,
        existing: Option<&SharedPod>,
        pod: SharedPod,
        source: PodSource,
        now: Timestamp,
    ) -> SharedPod {
        let Some(existing) = existing else {
            let pod = mark(pod, source, now);
            self.adds.push(Arc::clone(&pod));
            return pod;
        };
        let (list, pod) = match check_and_update_pod(existing, pod) {
            Change::None => return Arc::clone(existing),
            Change::Update(pod) => (&mut self.updates, pod),
            Change::GracefulDelete(pod) => (&mut self.deletes, pod),
            Change::Reconcile(pod) => (&mut self.reconciles, pod),
        };
        list.push(Arc::clone(&pod));
        pod
    }

    /// Returns the notifications, in order.
    pub(super) fn notify(
        self,
        mode: Mode,
        source: PodSource,
        first_set: bool,
        pods: &BTreeMap<PodUid, SharedPod>,
    ) -> Vec<PodUpdate> {
        let notification = |op, pods| PodUpdate { op, source, pods };
        let set = || notification(PodOp::Set, pods.values().map(Arc::clone).collect());
        let set_changed = !self.removes.is_empty() || !self.adds.is_empty() || first_set;
        let changed =
            !self.updates.is_empty() || !self.deletes.is_empty() || !self.reconciles.is_empty();
        let mut updates = Vec::new();
        let mut push = |op, pods: Vec<SharedPod>| {
            if !pods.is_empty() {
                updates.push(notification(op, pods));
            }
        };
        push(PodOp::Restore, self.restores);
        match mode {
            Mode::Incremental => {
                // an empty ADD reports that the source is ready
                let announce = first_set
                    && self.adds.is_empty()
                    && self.updates.is_empty()
                    && self.deletes.is_empty();
                push(PodOp::Remove, self.removes);
                push(PodOp::Add, self.adds);
                push(PodOp::Update, self.updates);
                push(PodOp::Delete, self.deletes);
                if announce {
                    updates.push(notification(PodOp::Add, Vec::new()));
                }
                if !self.reconciles.is_empty() {
                    updates.push(notification(PodOp::Reconcile, self.reconciles));
                }
            }
            Mode::SnapshotAndUpdates => {
                if set_changed {
                    updates.push(set());
                }
                for (op, pods) in [
                    (PodOp::Update, self.updates),
                    (PodOp::Delete, self.deletes),
                    (PodOp::Reconcile, self.reconciles),
                ] {
                    if !pods.is_empty() {
                        updates.push(notification(op, pods));
                    }
                }
            }
            Mode::Snapshot => {
                if set_changed || changed {
                    updates.push(set());
                }
            }
        }
        updates
    }
}
