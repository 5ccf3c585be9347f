//! Tables of updates and their notifications, and invariants.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use windlass_types::pod::SharedPod;
use windlass_types::{PodExt, PodOp, PodSource, PodUid, PodUpdate, Timestamp, names};

use super::{Change, Mode, PodStorage, SourceUpdate, check_and_update_pod};

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

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).expect("in range")
}

/// `name/uid`, then any of `image=…`, `label=…`, `phase=…`, `deleted`.
fn pod(text: &str) -> SharedPod {
    let mut words = text.split(' ');
    let (name, uid) = words
        .next()
        .and_then(|w| w.split_once('/'))
        .expect("name/uid");
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "d", "uid": uid},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    });
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("image", image) => pod["spec"]["containers"][0]["image"] = json!(image),
            ("label", value) => pod["metadata"]["labels"] = json!({"l": value}),
            ("note", value) => pod["metadata"]["annotations"] = json!({"n": value}),
            ("phase", phase) => pod["status"] = json!({"phase": phase}),
            ("seen", seen) => {
                pod["metadata"]["annotations"] = json!({(names::ANN_CONFIG_SEEN): seen});
            }
            ("deleted", _) => {
                pod["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
            }
            (other, _) => panic!("unknown word {other}"),
        }
    }
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

fn update(source: PodSource, op: PodOp, pods: &[&str]) -> SourceUpdate {
    SourceUpdate {
        source,
        op,
        pods: pods.iter().map(|text| pod(text)).collect(),
    }
}

/// Merges the steps of one source and compares each result.
fn check(mode: Mode, steps: &[(PodOp, &[&str], &str)]) {
    let mut storage = PodStorage::new(mode, [PodSource::File]);
    for (index, (op, pods, expected)) in steps.iter().enumerate() {
        let merged = storage.merge(update(PodSource::File, *op, pods), at(index as i64));
        assert_eq!(merged.to_string(), *expected, "step {index}");
    }
}

#[test]
fn snapshot_is_split_into_ordered_operations() {
    check(
        Mode::Incremental,
        &[
            (
                PodOp::Set,
                &["a/1", "b/2", "c/3", "d/4"],
                "ADD file [a_d b_d c_d d_d]",
            ),
            (PodOp::Set, &["a/1", "b/2", "c/3", "d/4"], "nothing"),
            (
                PodOp::Set,
                &["d/4 phase=Running", "c/3 deleted", "b/2 image=y", "new/9"],
                "REMOVE file [a_d] ADD file [new_d] UPDATE file [b_d] DELETE file [c_d] RECONCILE file [d_d]",
            ),
            (PodOp::Set, &[], "REMOVE file [b_d c_d d_d new_d]"),
        ],
    );
}

#[test]
fn empty_source_is_announced_once() {
    check(
        Mode::Incremental,
        &[
            (PodOp::Set, &[], "ADD file []"),
            (PodOp::Set, &[], "nothing"),
        ],
    );
    check(Mode::Snapshot, &[(PodOp::Set, &[], "SET file []")]);
    check(
        Mode::SnapshotAndUpdates,
        &[(PodOp::Set, &[], "SET file []")],
    );
}

#[test]
fn partial_operations_change_only_their_pods() {
    check(
        Mode::Incremental,
        &[
            (PodOp::Add, &["a/1"], "ADD file [a_d]"),
            (PodOp::Add, &["b/2"], "ADD file [b_d]"),
            (PodOp::Update, &["a/1 image=y"], "UPDATE file [a_d]"),
            (PodOp::Update, &["c/3"], "ADD file [c_d]"),
            (PodOp::Delete, &["a/1 image=y deleted"], "DELETE file [a_d]"),
            (
                PodOp::Reconcile,
                &["b/2 phase=Running"],
                "RECONCILE file [b_d]",
            ),
            (PodOp::Remove, &["a/1", "unknown/7"], "REMOVE file [a_d]"),
            (
                PodOp::Set,
                &["b/2 phase=Running"],
                "REMOVE file [c_d] ADD file []",
            ),
        ],
    );
}

#[test]
fn restored_pods_are_compared_with_first_set() {
    check(
        Mode::Incremental,
        &[
            (PodOp::Restore, &["a/1", "b/2"], "RESTORE file [a_d b_d]"),
            (PodOp::Restore, &["a/1"], "nothing"),
            (PodOp::Set, &["a/1"], "REMOVE file [b_d] ADD file []"),
        ],
    );
    check(
        Mode::Incremental,
        &[
            (PodOp::Set, &["a/1 image=y"], "ADD file [a_d]"),
            (PodOp::Restore, &["a/1"], "nothing"),
        ],
    );
}

#[test]
fn snapshot_modes_return_sets() {
    check(
        Mode::Snapshot,
        &[
            (PodOp::Set, &["a/1"], "SET file [a_d]"),
            (PodOp::Set, &["a/1"], "nothing"),
            (PodOp::Set, &["a/1 image=y"], "SET file [a_d]"),
            (PodOp::Set, &["a/1 image=y phase=Failed"], "SET file [a_d]"),
        ],
    );
    check(
        Mode::SnapshotAndUpdates,
        &[
            (PodOp::Set, &["a/1", "b/2"], "SET file [a_d b_d]"),
            (PodOp::Set, &["a/1 image=y", "b/2"], "UPDATE file [a_d]"),
            (
                PodOp::Set,
                &["a/1 image=z"],
                "SET file [a_d] UPDATE file [a_d]",
            ),
        ],
    );
}

#[test]
fn duplicates_of_name_or_uid_are_rejected_once() {
    check(
        Mode::Incremental,
        &[
            (
                PodOp::Set,
                &["a/1", "a/2", "b/1"],
                "ADD file [a_d] rejected(a_d) rejected(b_d)",
            ),
            (PodOp::Set, &["a/1", "a/2", "b/1"], "nothing"),
            (PodOp::Set, &["a/1", "a/3"], "rejected(a_d)"),
            (PodOp::Set, &["a/3"], "REMOVE file [a_d] ADD file [a_d]"),
        ],
    );
    let mut storage = PodStorage::new(Mode::Incremental, [PodSource::File]);
    let merged = storage.merge(update(PodSource::File, PodOp::Set, &["a/1", "a/2"]), at(0));
    assert_eq!(
        merged.rejected[0].message,
        "Error validating pod a_d from file due to duplicate pod name \"a\", ignoring"
    );
    assert_eq!(storage.rejected(PodSource::File).len(), 1);
}

#[test]
fn sources_are_independent() {
    let mut storage = PodStorage::new(Mode::Incremental, [PodSource::File, PodSource::Http]);
    let mut merge = |source, pods: &[&str]| {
        let merged = storage.merge(update(source, PodOp::Set, pods), at(0));
        (merged.to_string(), storage.all_sources_seen())
    };
    let line = |text: &str, ready| (text.to_owned(), ready);
    assert_eq!(
        merge(PodSource::File, &["a/1"]),
        line("ADD file [a_d]", false)
    );
    assert_eq!(
        merge(PodSource::Http, &["a/2"]),
        line("ADD http [a_d]", true)
    );
    assert_eq!(merge(PodSource::File, &[]), line("REMOVE file [a_d]", true));
    let pods = storage.sources.values().map(|state| state.pods.len());
    assert_eq!(pods.sum::<usize>(), 1);
}

#[test]
fn only_set_makes_source_ready() {
    let mut storage = PodStorage::new(Mode::Incremental, [PodSource::File]);
    for op in [PodOp::Restore, PodOp::Add, PodOp::Remove] {
        storage.merge(update(PodSource::File, op, &["a/1"]), at(0));
        assert!(!storage.all_sources_seen(), "after {op}");
    }
    storage.merge(update(PodSource::File, PodOp::Set, &[]), at(0));
    let seen = storage.sources.iter().filter(|(_, state)| state.seen);
    let seen: Vec<_> = seen.map(|(source, _)| *source).collect();
    assert_eq!(seen, [PodSource::File]);
}

#[test]
fn agent_annotations_are_kept_and_not_compared() {
    let mut storage = PodStorage::new(Mode::Incremental, [PodSource::File]);
    let mut merge = |op, text: &str, now| {
        let merged = storage.merge(update(PodSource::File, op, &[text]), at(now));
        let update = &merged.updates[0];
        (update.op, Arc::clone(&update.pods[0]))
    };
    let (_, first) = merge(PodOp::Set, "a/1", 5);
    assert_eq!(first.annotation(names::ANN_CONFIG_SOURCE), Some("file"));
    let seen = first.annotation(names::ANN_CONFIG_SEEN);
    assert_eq!(seen, Some("2023-11-14T22:13:25Z"));
    let (op, second) = merge(PodOp::Set, "a/1 note=x", 9);
    assert_eq!(op, PodOp::Update);
    assert_eq!(second.annotation(names::ANN_CONFIG_SEEN), seen);
    assert_eq!(second.annotation(names::ANN_CONFIG_SOURCE), Some("file"));

    let mut storage = PodStorage::new(Mode::Incremental, [PodSource::File]);
    let restore = update(
        PodSource::File,
        PodOp::Restore,
        &["a/1 seen=2020-01-01T00:00:00Z"],
    );
    let merged = storage.merge(restore, at(0));
    assert_eq!(
        merged.updates[0].pods[0].annotation(names::ANN_CONFIG_SEEN),
        Some("2020-01-01T00:00:00Z")
    );
}

#[test]
fn change_kind_depends_on_changed_fields() {
    let change = |a: &str, b: &str| check_and_update_pod(&pod(a), pod(b)).to_string();
    assert_eq!(change("a/1", "a/1"), "nothing");
    assert_eq!(change("a/1", "a/1 seen=x"), "nothing");
    assert_eq!(change("a/1", "a/1 label=x"), "update");
    assert_eq!(change("a/1 note=x", "a/1"), "update");
    assert_eq!(change("a/1", "renamed/1"), "update");
    assert_eq!(change("a/1", "a/1 image=y phase=Running"), "update");
    assert_eq!(change("a/1", "a/1 deleted"), "graceful delete");
    assert_eq!(
        change("a/1", "a/1 deleted image=y phase=Failed"),
        "graceful delete"
    );
    assert_eq!(change("a/1 deleted", "a/1 deleted"), "nothing");
    assert_eq!(change("a/1", "a/1 phase=Running"), "reconcile");
    assert!(matches!(
        check_and_update_pod(&pod("a/1 deleted"), pod("a/1")),
        Change::Update(_)
    ));
}

/// Applies a notification to a model of the consumer.
fn apply(model: &mut BTreeMap<PodUid, SharedPod>, update: &PodUpdate) {
    if update.op == PodOp::Set {
        model.clear();
    }
    for pod in &update.pods {
        if update.op == PodOp::Remove {
            model.remove(&pod.uid());
        } else {
            model.insert(pod.uid(), Arc::clone(pod));
        }
    }
}

prop_compose! {
    fn any_pod()(
        name in 0..4u8,
        uid in 0..5u8,
        image in 0..3u8,
        phase in 0..2u8,
        deleted in prop::bool::weighted(0.2),
    ) -> SharedPod {
        let deleted = if deleted { " deleted" } else { "" };
        pod(&format!("n{name}/u{uid} image={image} phase={phase}{deleted}"))
    }
}

fn any_op() -> impl Strategy<Value = PodOp> {
    prop_oneof![
        4 => Just(PodOp::Set),
        1 => Just(PodOp::Add),
        1 => Just(PodOp::Update),
        1 => Just(PodOp::Delete),
        1 => Just(PodOp::Remove),
        1 => Just(PodOp::Reconcile),
        1 => Just(PodOp::Restore),
    ]
}

fn any_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        Just(Mode::Incremental),
        Just(Mode::SnapshotAndUpdates),
        Just(Mode::Snapshot)
    ]
}

proptest! {
    #[test]
    fn notifications_add_up_to_source_set(
        mode in any_mode(),
        steps in prop::collection::vec((any_op(), prop::collection::vec(any_pod(), 0..6)), 1..12),
    ) {
        let mut storage = PodStorage::new(mode, [PodSource::File]);
        let mut model = BTreeMap::new();
        for (index, (op, pods)) in steps.into_iter().enumerate() {
            let update = SourceUpdate { source: PodSource::File, op, pods };
            let names: BTreeSet<_> = update.pods.iter().map(|p| p.full_name()).collect();
            let merged = storage.merge(update.clone(), at(index as i64));

            if mode == Mode::Incremental {
                let uids = merged.updates.iter().flat_map(|u| &u.pods).map(|p| p.uid());
                let uids: Vec<_> = uids.collect();
                let distinct: BTreeSet<_> = uids.iter().cloned().collect();
                prop_assert_eq!(uids.len(), distinct.len(), "two operations for one pod");
            }
            for update in &merged.updates {
                apply(&mut model, update);
            }
            let held = &storage.sources[&PodSource::File].pods;
            prop_assert_eq!(&model, held);
            if op == PodOp::Set {
                let held_names: BTreeSet<_> = held.values().map(|p| p.full_name()).collect();
                // a name is missing only where its UID was taken by an earlier pod
                prop_assert!(held_names.is_subset(&names));
                prop_assert_eq!(held_names.len(), held.len());
            }
            let again = storage.merge(update, at(index as i64 + 1));
            prop_assert_eq!(again.updates, vec![], "the same update twice changes nothing");
        }
    }
}
