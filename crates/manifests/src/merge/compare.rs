//! Comparison of two versions of a pod (upstream `podsDifferSemantically`, `checkAndUpdatePod`).

use std::collections::BTreeMap;

use windlass_types::pod::SharedPod;
use windlass_types::{Pod, names};

use super::annotations_mut;

/// Annotations of the agent, which are kept and not compared.
const LOCAL_ANNOTATIONS: [&str; 3] = [
    names::ANN_CONFIG_SOURCE,
    names::ANN_CONFIG_MIRROR,
    names::ANN_CONFIG_SEEN,
];

/// Change between two versions of a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// No change.
    None,
    /// Other fields than the status changed.
    Update(SharedPod),
    /// Other fields changed, and deletionTimestamp is set.
    GracefulDelete(SharedPod),
    /// Only the status changed.
    Reconcile(SharedPod),
}

/// Compares a pod with its new version. The result has the new version with the annotations of the
/// agent.
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

/// Compares names too: a static pod with a UID in the manifest may be renamed.
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
