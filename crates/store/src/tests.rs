//! State files whole, torn and foreign.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::sleep;
use windlass_pod_lifecycle::backoff::{BackoffPolicy, BackoffTable};
use windlass_types::{
    ContainerProbeResult, PodProbeResults, PodUid, ProbeKind, SharedPod, Timestamp,
};

use crate::table_file::{RETRY_INTERVAL, TableFile};
use crate::{AdmittedPod, AdmittedPods, BackoffFile, ProbeResultFile, Store, StoreError};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    name: String,
    count: u32,
}

fn record() -> Record {
    Record {
        name: "web".into(),
        count: 3,
    }
}

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().expect("temp dir");
    let store = Store::open(dir.path().join("state")).expect("open");
    (dir, store)
}

fn names(store: &Store) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(store.root())
        .expect("list")
        .map(|e| e.expect("entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn table(seconds: i64) -> BackoffTable {
    let mut table = BackoffTable::default();
    let now = Timestamp::from_second(seconds).expect("in range");
    table.next("restart/c/1", BackoffPolicy::DEFAULT, now);
    table
}

#[test]
fn saved_value_is_loaded_without_temporary_file() {
    let (_dir, store) = store();
    assert_eq!(store.load::<Record>("pods").expect("load"), None);
    store.save("pods", &record()).expect("save");
    store
        .save(
            "pods",
            &Record {
                count: 4,
                ..record()
            },
        )
        .expect("save again");
    assert_eq!(
        store.load::<Record>("pods").expect("load").map(|r| r.count),
        Some(4)
    );
    assert_eq!(names(&store), ["pods"]);
    store.remove("pods").expect("remove");
    store.remove("pods").expect("removing twice is fine");
    assert_eq!(store.load::<Record>("pods").expect("load"), None);
}

#[test]
fn unusable_content_is_moved_aside_and_reads_as_absent() {
    let (_dir, store) = store();
    store.save("pods", &record()).expect("save");
    let good = fs::read_to_string(store.root().join("pods")).expect("text");
    let torn = good[..good.len() / 2].to_owned();
    let flipped = good.replace("\"count\":3", "\"count\":9");
    let later = good.replace("\"version\":1", "\"version\":2");
    let foreign = "hello".to_owned();
    let cases = [torn, flipped, later, foreign, String::new()];
    for (i, content) in cases.iter().enumerate() {
        fs::write(store.root().join("pods"), content).expect("write");
        assert_eq!(
            store.load::<Record>("pods").expect("load"),
            None,
            "case {i}: {content}"
        );
        let aside = store.root().join(format!("pods.corrupt-{}", i + 1));
        assert_eq!(&fs::read_to_string(aside).expect("set aside"), content);
    }
    store
        .save("pods", &record())
        .expect("the name is free again");
    assert_eq!(store.load::<Record>("pods").expect("load"), Some(record()));
}

#[test]
fn copies_of_unusable_content_are_bounded() {
    let (_dir, store) = store();
    for i in 0..20 {
        fs::write(store.root().join("pods"), format!("torn {i}")).expect("write");
        assert_eq!(store.load::<Record>("pods").expect("load"), None);
    }
    assert_eq!(names(&store).len(), 8);
    let last = fs::read_to_string(store.root().join("pods.corrupt-8")).expect("last");
    assert_eq!(last, "torn 19");
}

#[test]
fn data_of_other_type_with_valid_checksum_is_unusable() {
    let (_dir, store) = store();
    store.save("pods", "just text").expect("save");
    assert_eq!(store.load::<Record>("pods").expect("load"), None);
    assert_eq!(names(&store), ["pods.corrupt-1"]);
}

#[test]
fn leftover_temporary_file_is_harmless() {
    let (_dir, store) = store();
    fs::write(store.root().join(".pods.tmp"), "half a wri").expect("leftover");
    assert_eq!(store.load::<Record>("pods").expect("load"), None);
    store.save("pods", &record()).expect("save");
    assert_eq!(store.load::<Record>("pods").expect("load"), Some(record()));
}

#[test]
fn names_outside_directory_are_rejected() {
    let (_dir, store) = store();
    for name in ["", "../pods", "a/b", ".pods", "..", "a\0b"] {
        let error = store.save(name, &record()).expect_err(name);
        assert!(
            matches!(error, StoreError::Name { .. }),
            "{name:?}: {error}"
        );
    }
}

#[tokio::test]
async fn backoff_survives_agent_restart() {
    let (_dir, store) = store();
    let (file, before) = BackoffFile::open(store.clone()).expect("open");
    assert!(before.is_empty());
    let (a, b) = (PodUid::from("a"), PodUid::from("b"));
    for second in 0..50 {
        file.record(&a, &table(second));
        file.record(&b, &table(second));
    }
    file.forget(&b);
    file.flush().await.expect("flush");
    let (_, after) = BackoffFile::open(store).expect("open again");
    assert_eq!(after, [(a, table(49))].into());
}

#[tokio::test]
async fn unchanged_or_empty_table_is_not_written() {
    let (_dir, store) = store();
    let (file, _) = BackoffFile::open(store.clone()).expect("open");
    let uid = PodUid::from("a");
    file.record(&uid, &BackoffTable::default());
    file.flush().await.expect("flush");
    assert!(names(&store).is_empty());
    file.record(&uid, &table(1));
    file.flush().await.expect("flush");
    fs::remove_file(store.root().join("backoff")).expect("remove");
    file.record(&uid, &table(1));
    file.flush().await.expect("flush");
    assert!(names(&store).is_empty());
}

#[tokio::test]
async fn retain_removes_delays_of_unknown_pods() {
    let (_dir, store) = store();
    let (file, _) = BackoffFile::open(store.clone()).expect("open");
    let (a, b) = (PodUid::from("a"), PodUid::from("b"));
    file.record(&a, &table(1));
    file.record(&b, &table(2));
    file.retain(&[b.clone()].into());
    file.flush().await.expect("flush");
    let (_, after) = BackoffFile::open(store).expect("open again");
    assert_eq!(after, [(b, table(2))].into());
}

/// A value that counts how often it is rendered.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Counted(u32);

static RENDERED: AtomicUsize = AtomicUsize::new(0);

impl Serialize for Counted {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RENDERED.fetch_add(1, Ordering::Relaxed);
        serializer.serialize_u32(self.0)
    }
}

#[tokio::test]
async fn change_of_one_pod_renders_no_other() {
    let (_dir, store) = store();
    let (file, _) = TableFile::open(store.clone(), "counted").expect("open");
    let uids: Vec<PodUid> = ["a", "b", "c"].map(PodUid::from).into();
    for uid in &uids {
        file.record(uid, &Counted(1));
    }
    file.flush().await.expect("flush");
    assert_eq!(RENDERED.load(Ordering::Relaxed), 3);
    file.record(&uids[0], &Counted(2));
    file.forget(&uids[1]);
    file.flush().await.expect("flush");
    assert_eq!(RENDERED.load(Ordering::Relaxed), 4);
    let expected: BTreeMap<_, _> =
        [(uids[0].clone(), Counted(2)), (uids[2].clone(), Counted(1))].into();
    // after a restart too
    let (file, after) = TableFile::open(store.clone(), "counted").expect("open again");
    assert_eq!(after, expected);
    file.record(&uids[2], &Counted(3));
    file.flush().await.expect("flush");
    let (_, after) = TableFile::<Counted>::open(store, "counted").expect("open again");
    assert_eq!(after.values().map(|it| it.0).collect::<Vec<_>>(), [2, 3]);
}

#[tokio::test]
async fn write_error_is_returned_by_flush_and_next_change_retries() {
    let (_dir, store) = store();
    let (file, _) = BackoffFile::open(store.clone()).expect("open");
    let uid = PodUid::from("a");
    // a folder in the file's place refuses the rename, also to root
    fs::create_dir_all(store.root().join("backoff/x")).expect("obstacle");
    file.record(&uid, &table(1));
    let error = file.flush().await.expect_err("refused");
    assert!(matches!(error, StoreError::Write { .. }), "{error}");
    fs::remove_dir_all(store.root().join("backoff")).expect("clear");
    file.record(&uid, &table(2));
    file.flush().await.expect("flush");
    let (_, after) = BackoffFile::open(store).expect("open again");
    assert_eq!(after, [(uid, table(2))].into());
}

#[tokio::test(start_paused = true)]
async fn failed_write_is_retried_without_a_change() {
    let (_dir, store) = store();
    let (file, _) = BackoffFile::open(store.clone()).expect("open");
    let uid = PodUid::from("a");
    fs::create_dir_all(store.root().join("backoff/x")).expect("obstacle");
    file.record(&uid, &table(1));
    file.flush().await.expect_err("refused");
    // the first retry fails too
    sleep(RETRY_INTERVAL + Duration::from_secs(1)).await;
    fs::remove_dir_all(store.root().join("backoff")).expect("clear");
    sleep(RETRY_INTERVAL).await;
    let (_, after) = BackoffFile::open(store).expect("open again");
    assert_eq!(after, [(uid, table(1))].into());
}

#[tokio::test]
async fn probe_results_survive_restart_until_pod_is_forgotten() {
    let (_dir, store) = store();
    let (file, before) = ProbeResultFile::open(store.clone()).expect("open");
    assert!(before.is_empty());
    let (a, b) = (PodUid::from("a"), PodUid::from("b"));
    let result = |ok| ContainerProbeResult {
        id: "c1".into(),
        success: ok,
    };
    for kind in ProbeKind::ALL {
        for uid in [&a, &b] {
            file.record(kind, uid, "app", result(false));
            file.record(kind, uid, "app", result(true));
            file.record(kind, uid, "gone", result(true));
        }
        file.forget(kind, &a, Some("gone"));
        file.forget(kind, &b, None);
    }
    file.flush().await.expect("flush");
    let (_, after) = ProbeResultFile::open(store).expect("open again");
    let mut expected = PodProbeResults::default();
    for kind in ProbeKind::ALL {
        expected
            .for_kind_mut(kind)
            .insert("app".to_owned(), result(true));
    }
    assert_eq!(after, [(a, expected)].into());
}

#[tokio::test]
async fn checkpoint_without_allocated_resources_has_those_of_the_spec() {
    let (_dir, store) = store();
    let pod = |cpu: &str| -> SharedPod {
        let pod = json!({
            "metadata": {"uid": "u1"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        });
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    };
    let older = BTreeMap::from([("u1", pod("1"))]);
    store.save("admitted_pods", &older).expect("saved");
    let (file, pods) = AdmittedPods::open(store.clone()).expect("opened");
    assert_eq!(pods, [AdmittedPod::from(pod("1"))]);

    let pending = AdmittedPod {
        pod: pod("2"),
        ..AdmittedPod::from(pod("1"))
    };
    file.record(&pending);
    file.flush().await.expect("written");
    let (_, pods) = AdmittedPods::open(store).expect("opened");
    assert_eq!(pods, [pending]);
}
