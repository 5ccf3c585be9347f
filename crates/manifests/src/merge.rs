//! Merges the pod sources into one stream of changes (upstream `PodConfig`, `podStorage`).
//!
//! Each source has its own set of pods, by UID. If two sources have a pod with the same full name,
//! the pod workers decide which one runs. A merge compares an update with the set of its source and
//! returns at most one notification per pod, in the order restores, removes, adds, updates,
//! deletes, reconciles.
//!
//! Differences from upstream: in the two snapshot modes a status change is not lost, and a `Set`
//! has only the pods of its source; a duplicate UID in a snapshot is rejected; a rejection is
//! reported once, not at every list.

mod compare;
mod outcome;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use windlass_types::pod::SharedPod;
use windlass_types::{PodExt, PodOp, PodSource, PodUid, Timestamp, names};

pub use compare::Change;
pub(crate) use compare::check_and_update_pod;
pub use outcome::{MergeResult, RejectedPod};

use outcome::Changes;

/// Form of the notifications (upstream `PodConfigNotificationMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each change as its own operation.
    Incremental,
    /// Additions and removals as the whole set of the source, other changes as operations.
    SnapshotAndUpdates,
    /// Any change as the whole set of the source.
    Snapshot,
}

/// Update from a source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceUpdate {
    /// The source.
    pub source: PodSource,
    /// `Set` for all pods of the source, else a part.
    pub op: PodOp,
    /// The pods, validated, in the order of the source.
    pub pods: Vec<SharedPod>,
}

/// The desired pods of all sources; complete for a source after its first `Set`.
#[derive(Debug)]
pub struct PodStorage {
    mode: Mode,
    configured: BTreeSet<PodSource>,
    sources: BTreeMap<PodSource, SourceState>,
}

#[derive(Debug, Default)]
struct SourceState {
    pods: BTreeMap<PodUid, SharedPod>,
    /// A `Set` was merged.
    seen: bool,
    /// Pods rejected at the last `Set`, which are not reported again.
    rejected: Vec<RejectedPod>,
}

impl PodStorage {
    /// Creates an empty storage for these sources.
    pub fn new(mode: Mode, configured: impl IntoIterator<Item = PodSource>) -> Self {
        Self {
            mode,
            configured: configured.into_iter().collect(),
            sources: BTreeMap::new(),
        }
    }

    /// Merges an update and returns the changes.
    pub fn merge(&mut self, update: SourceUpdate, now: Timestamp) -> MergeResult {
        let SourceUpdate { source, op, pods } = update;
        let state = self.sources.entry(source).or_default();
        let seen_before = state.seen;
        let mut changes = Changes::default();

        let rejected = match op {
            PodOp::Set => {
                state.seen = true;
                let old = std::mem::take(&mut state.pods);
                let (pods, rejected) = filter_duplicates(pods, source);
                for pod in pods {
                    let uid = pod.uid();
                    let existing = old.get(&uid);
                    let merged = changes.merge(existing, pod, source, now);
                    state.pods.insert(uid, merged);
                }
                let gone = old.iter().filter(|(uid, _)| !state.pods.contains_key(*uid));
                changes.removes.extend(gone.map(|(_, pod)| Arc::clone(pod)));
                let known = std::mem::replace(&mut state.rejected, rejected.clone());
                let mut new = rejected;
                new.retain(|r| !known.iter().any(|k| k.is_same(r)));
                new
            }
            PodOp::Add | PodOp::Update | PodOp::Delete | PodOp::Reconcile => {
                let (pods, rejected) = filter_duplicates(pods, source);
                for pod in pods {
                    let uid = pod.uid();
                    let merged = changes.merge(state.pods.get(&uid), pod, source, now);
                    state.pods.insert(uid, merged);
                }
                rejected
            }
            PodOp::Remove => {
                let gone = pods.iter().filter_map(|pod| state.pods.remove(&pod.uid()));
                changes.removes.extend(gone);
                Vec::new()
            }
            PodOp::Restore => {
                let (pods, rejected) = filter_duplicates(pods, source);
                for pod in pods {
                    // an update of the source is newer than the checkpoint
                    if let std::collections::btree_map::Entry::Vacant(slot) =
                        state.pods.entry(pod.uid())
                    {
                        let pod = mark(pod, source, now);
                        changes.restores.push(Arc::clone(&pod));
                        slot.insert(pod);
                    }
                }
                rejected
            }
        };
        let first_set = !seen_before && state.seen;
        MergeResult {
            updates: changes.notify(self.mode, source, first_set, &state.pods),
            rejected,
        }
    }

    /// Returns the rejected pods of the last snapshot of a source.
    pub fn rejected(&self, source: PodSource) -> &[RejectedPod] {
        self.sources
            .get(&source)
            .map_or(&[], |state| state.rejected.as_slice())
    }

    /// Returns whether every configured source has delivered a snapshot (upstream
    /// `SeenAllSources`).
    pub fn all_sources_seen(&self) -> bool {
        let seen = |source| self.sources.get(source).is_some_and(|state| state.seen);
        self.configured.iter().all(seen)
    }
}

/// Keeps the first pod of each name and of each UID.
fn filter_duplicates(
    pods: Vec<SharedPod>,
    source: PodSource,
) -> (Vec<SharedPod>, Vec<RejectedPod>) {
    let mut full_names = BTreeSet::new();
    let mut uids = BTreeSet::new();
    let mut rejected = Vec::new();
    let kept = pods.into_iter().filter(|pod| {
        let what = if !full_names.insert(pod.full_name()) {
            format!("pod name {:?}", pod.name())
        } else if !uids.insert(pod.uid()) {
            format!("pod UID {:?}", pod.uid().as_str())
        } else {
            return true;
        };
        rejected.push(RejectedPod {
            pod: Arc::clone(pod),
            source,
            message: format!(
                "Error validating pod {} from {source} due to duplicate {what}, ignoring",
                pod.full_name()
            ),
        });
        false
    });
    (kept.collect(), rejected)
}

/// Sets the source and first-seen annotations of a new pod; a first-seen time from a checkpoint is
/// kept.
fn mark(mut pod: SharedPod, source: PodSource, now: Timestamp) -> SharedPod {
    let annotations = annotations_mut(&mut pod);
    annotations.insert(
        names::ANN_CONFIG_SOURCE.to_owned(),
        source.as_str().to_owned(),
    );
    annotations
        .entry(names::ANN_CONFIG_SEEN.to_owned())
        .or_insert_with(|| now.to_string());
    pod
}

/// Returns the annotations of a pod for writing; clones a shared pod.
fn annotations_mut(pod: &mut SharedPod) -> &mut BTreeMap<String, String> {
    Arc::make_mut(pod)
        .metadata
        .annotations
        .get_or_insert_default()
}
