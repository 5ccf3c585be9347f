//! The answer of a merge: notifications in their order, and refusals.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use windlass_types::pod::SharedPod;
use windlass_types::{PodExt, PodOp, PodSource, PodUid, PodUpdate, Timestamp};

use super::{Change, Mode, check_and_update_pod, mark};

/// What a merge answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Merged {
    /// What changed, in the order in which it must be handled.
    pub updates: Vec<PodUpdate>,
    /// Pods that were refused and had not been before: a `FailedValidation` event each.
    pub rejected: Vec<RejectedPod>,
}

impl fmt::Display for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = self.updates.iter().map(ToString::to_string).collect();
        let refused = self.rejected.iter();
        words.extend(refused.map(|r| format!("refused({})", r.pod.full_name())));
        if words.is_empty() {
            words.push("nothing".to_owned());
        }
        f.write_str(&words.join(" "))
    }
}

/// A pod that cannot be taken beside another one of its source.
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
    /// True if the user has been told this already.
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
    /// Files one pod under its operation and returns the object to keep.
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

    /// The notifications, in order.
    pub(super) fn notify(
        self,
        mode: Mode,
        source: PodSource,
        first_set: bool,
        pods: &BTreeMap<PodUid, SharedPod>,
    ) -> Vec<PodUpdate> {
        let notification = |op, pods| PodUpdate { op, source, pods };
        let set = || notification(PodOp::Set, pods.values().map(Arc::clone).collect());
        let come_or_gone = !self.removes.is_empty() || !self.adds.is_empty() || first_set;
        let changed =
            !self.updates.is_empty() || !self.deletes.is_empty() || !self.reconciles.is_empty();
        // That a pod was admitted before is not to be said by a set.
        let mut told = Vec::new();
        let mut tell = |op, pods: Vec<SharedPod>| {
            if !pods.is_empty() {
                told.push(notification(op, pods));
            }
        };
        tell(PodOp::Restore, self.restores);
        match mode {
            Mode::Incremental => {
                // Tells that the source is there although it has nothing.
                let announce = first_set
                    && self.adds.is_empty()
                    && self.updates.is_empty()
                    && self.deletes.is_empty();
                tell(PodOp::Remove, self.removes);
                tell(PodOp::Add, self.adds);
                tell(PodOp::Update, self.updates);
                tell(PodOp::Delete, self.deletes);
                if announce {
                    told.push(notification(PodOp::Add, Vec::new()));
                }
                if !self.reconciles.is_empty() {
                    told.push(notification(PodOp::Reconcile, self.reconciles));
                }
            }
            Mode::SnapshotAndUpdates => {
                if come_or_gone {
                    told.push(set());
                }
                for (op, pods) in [
                    (PodOp::Update, self.updates),
                    (PodOp::Delete, self.deletes),
                    (PodOp::Reconcile, self.reconciles),
                ] {
                    if !pods.is_empty() {
                        told.push(notification(op, pods));
                    }
                }
            }
            Mode::Snapshot => {
                if come_or_gone || changed {
                    told.push(set());
                }
            }
        }
        told
    }
}
