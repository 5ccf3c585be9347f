//! Merges what the sources say into one stream of changes (upstream `PodConfig`, `podStorage`).
//!
//! Each source has its own set of pods, by UID; sources do not see each other, so that a file
//! and a URL may both ask for a pod of one name and the pod workers decide which runs. A merge
//! compares a source's news with its set and answers with at most one notification per pod, in
//! a fixed order: restores, removes, adds, updates, deletes, reconciles.
//!
//! Differences from upstream, on purpose: in the two snapshot modes a status-only change is not
//! lost, and a `Set` carries the pods of its source alone; a second pod of one UID in one
//! snapshot is refused; a refusal is reported once, not at every relist.

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
pub use outcome::{Merged, RejectedPod};

use outcome::Changes;

/// How changes are told (upstream `PodConfigNotificationMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each change by its own operation.
    Incremental,
    /// Additions and removals as the source's whole set, other changes by their operation.
    SnapshotAndUpdates,
    /// Any change as the source's whole set.
    Snapshot,
}

/// What a source says.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceUpdate {
    /// Who.
    pub source: PodSource,
    /// `Set` for all it has, the others for a part.
    pub op: PodOp,
    /// The pods; validated, each in the source's own order.
    pub pods: Vec<SharedPod>,
}

/// The desired pods of all sources. In-memory truth: authoritative for a source once that
/// source was seen.
#[derive(Debug)]
pub struct PodStorage {
    mode: Mode,
    configured: BTreeSet<PodSource>,
    sources: BTreeMap<PodSource, SourceState>,
}

/// What one source has said so far.
#[derive(Debug, Default)]
struct SourceState {
    pods: BTreeMap<PodUid, SharedPod>,
    /// A `Set` has been merged.
    seen: bool,
    /// Refused at the last `Set`, so that the same refusal is not reported again.
    rejected: Vec<RejectedPod>,
}

impl PodStorage {
    /// An empty storage that waits for these sources.
    pub fn new(mode: Mode, configured: impl IntoIterator<Item = PodSource>) -> Self {
        Self {
            mode,
            configured: configured.into_iter().collect(),
            sources: BTreeMap::new(),
        }
    }

    /// Merges what a source says and answers what changed.
    pub fn merge(&mut self, update: SourceUpdate, now: Timestamp) -> Merged {
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
                    // What a source has said since is newer than any checkpoint.
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
        Merged {
            updates: changes.notify(self.mode, source, first_set, &state.pods),
            rejected,
        }
    }

    /// What a source's last snapshot contained and was refused.
    pub fn rejected(&self, source: PodSource) -> &[RejectedPod] {
        self.sources
            .get(&source)
            .map_or(&[], |state| state.rejected.as_slice())
    }

    /// True once every configured source has delivered a snapshot (upstream `SeenAllSources`).
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

/// Writes the annotations that the merger owns into a pod seen for the first time. A first-seen
/// time that came with the pod (from a checkpoint) stays.
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

/// The annotations of a pod about to be changed; clones the pod if others hold it.
fn annotations_mut(pod: &mut SharedPod) -> &mut BTreeMap<String, String> {
    Arc::make_mut(pod)
        .metadata
        .annotations
        .get_or_insert_default()
}
