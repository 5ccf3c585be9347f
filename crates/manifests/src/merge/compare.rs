//! Whether a pod changed, and in which way (upstream `podsDifferSemantically`,
//! `checkAndUpdatePod`).

use std::collections::BTreeMap;
use std::fmt;

use windlass_types::pod::SharedPod;
use windlass_types::{Pod, names};

use super::annotations_mut;

/// Annotations that the agent writes itself: they are no part of a comparison, and survive it.
const LOCAL_ANNOTATIONS: [&str; 3] = [
    names::ANN_CONFIG_SOURCE,
    names::ANN_CONFIG_MIRROR,
    names::ANN_CONFIG_SEEN,
];

/// What a newer version of a known pod asks for: one of these, never two.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Nothing.
    None,
    /// Something other than the status changed.
    Update(SharedPod),
    /// Something changed, and the pod is to be deleted gracefully.
    GracefulDelete(SharedPod),
    /// Only the status changed at the source.
    Reconcile(SharedPod),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "nothing",
            Self::Update(_) => "update",
            Self::GracefulDelete(_) => "graceful delete",
            Self::Reconcile(_) => "reconcile",
        })
    }
}

/// Compares a known pod with what its source says now. The pod in the answer is the new one
/// with the agent's own annotations of the known one.
pub(crate) fn check_and_update_pod(existing: &SharedPod, reference: SharedPod) -> Change {
    if !differ_semantically(existing, &reference) {
        if existing.status == reference.status {
            return Change::None;
        }
        return Change::Reconcile(carry_over(existing, reference));
    }
    let deleting = reference.metadata.deletion_timestamp.is_some();
    let pod = carry_over(existing, reference);
    if deleting {
        Change::GracefulDelete(pod)
    } else {
        Change::Update(pod)
    }
}

/// Names are compared too: a static pod may keep a hand-written UID under another name.
fn differ_semantically(a: &Pod, b: &Pod) -> bool {
    let (x, y) = (&a.metadata, &b.metadata);
    a.spec != b.spec
        || x.name != y.name
        || x.namespace != y.namespace
        || x.deletion_timestamp != y.deletion_timestamp
        || x.deletion_grace_period_seconds != y.deletion_grace_period_seconds
        || !same_entries(&x.labels, &y.labels, |_| true)
        || !same_entries(&x.annotations, &y.annotations, |key| {
            !LOCAL_ANNOTATIONS.contains(&key)
        })
}

/// An absent map equals an empty one.
fn same_entries(
    a: &Option<BTreeMap<String, String>>,
    b: &Option<BTreeMap<String, String>>,
    counts: fn(&str) -> bool,
) -> bool {
    let entries = |map| {
        let map: &Option<BTreeMap<String, String>> = map;
        map.iter().flatten().filter(move |(key, _)| counts(key))
    };
    entries(a).eq(entries(b))
}

fn carry_over(existing: &Pod, mut reference: SharedPod) -> SharedPod {
    let known = existing.metadata.annotations.as_ref();
    let annotations = annotations_mut(&mut reference);
    for key in LOCAL_ANNOTATIONS {
        if let Some(value) = known.and_then(|known| known.get(key)) {
            annotations.insert(key.to_owned(), value.clone());
        }
    }
    reference
}
