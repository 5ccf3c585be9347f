//! Records on the disk.

use std::fs;

use windlass_credentials::image_access::{ImagePullCredentials, PullHistory};
use windlass_types::Timestamp;
use windlass_types::cri::ImageInfo;

use super::{PullFiles, PullRecords};

const ID: &str = "sha256:1";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("time")
}

fn image() -> ImageInfo {
    ImageInfo {
        id: ID.to_owned(),
        repo_tags: vec!["r.io/a:1".to_owned()],
        ..ImageInfo::default()
    }
}

fn opened() -> (tempfile::TempDir, PullRecords) {
    let dir = tempfile::tempdir().expect("dir");
    let records = PullRecords::open(dir.path()).expect("open");
    (dir, records)
}

#[test]
fn pull_recorded_is_in_upstreams_files() {
    let (dir, records) = opened();
    records.begin("repo.repo/test/test:v1").expect("intent");
    // the name and the content of upstream's own test data, but for the version
    let name = "sha256-ee81caca15454863449fb55a1d942904d56d5ed9f9b20a7cb3453944ea2c7e11";
    let path = dir.path().join("image_manager/pulling").join(name);
    assert_eq!(
        fs::read_to_string(&path).expect("file"),
        "{\"kind\":\"ImagePullIntent\",\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\",\
         \"image\":\"repo.repo/test/test:v1\"}\n"
    );
    let anonymous = ImagePullCredentials::for_pull(None);
    let done = records.succeed("repo.repo/test/test:v1", ID, anonymous, at(1));
    done.expect("record");
    assert!(!path.exists(), "the intent is gone");
    let history = records.history("repo.repo/test/test:v1", ID).expect("read");
    assert!(matches!(history, PullHistory::Pulled(_)), "{history:?}");
}

#[test]
fn record_of_older_version_is_read_and_foreign_is_an_error() {
    let (dir, records) = opened();
    let path = super::file(&dir.path().join("image_manager/pulled"), ID);
    let text = |kind: &str, more: &str| {
        format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"kubelet.config.k8s.io/v1alpha1\",\
             \"lastUpdatedTime\":\"2024-10-21T12:26:40Z\",\"imageRef\":\"{ID}\"{more}}}"
        )
    };
    fs::write(&path, text("ImagePulledRecord", "")).expect("write");
    let history = records.history("r.io/a:1", ID).expect("read");
    assert!(matches!(history, PullHistory::Pulled(_)), "{history:?}");
    for bad in [
        "torn".to_owned(),
        text("Other", ""),
        text("ImagePulledRecord", ",\"restrictedTo\":\"x\""),
    ] {
        fs::write(&path, &bad).expect("write");
        assert!(records.history("r.io/a:1", ID).is_err(), "{bad}");
    }
}

#[test]
fn intent_left_by_crash_becomes_record_without_credentials() {
    let (dir, records) = opened();
    records.begin("r.io/a:1").expect("intent");
    records.begin("r.io/absent:1").expect("intent");
    drop(records);

    let records = PullRecords::open(dir.path()).expect("open");
    let files = PullFiles {
        intents: 2,
        records: 0,
    };
    assert_eq!(records.count().expect("count"), files);
    assert_eq!(
        records.history("r.io/a:1", ID).expect("read"),
        PullHistory::Intent
    );
    records.reconcile(&[image()], at(1)).expect("reconcile");
    match records.history("r.io/a:1", ID).expect("read") {
        PullHistory::Pulled(record) => assert!(record.credential_mapping.is_empty()),
        other => panic!("{other:?}"),
    }
    let absent = records.history("r.io/absent:1", "sha256:2").expect("read");
    assert_eq!(absent, PullHistory::Intent, "its image may come yet");
}

#[test]
fn intent_stays_while_another_pull_of_the_image_runs() {
    let (_dir, records) = opened();
    let history = || records.history("r.io/a:1", ID).expect("read");
    records.begin("r.io/a:1").expect("intent");
    records.begin("r.io/a:1").expect("intent");
    records.fail("r.io/a:1").expect("first");
    assert_eq!(history(), PullHistory::Intent);
    records.fail("r.io/a:1").expect("second");
    assert_eq!(history(), PullHistory::None);
}

#[test]
fn intent_of_unseen_pull_stays_until_a_pull_succeeds() {
    let (dir, records) = opened();
    let history = |records: &PullRecords| records.history("r.io/a:1", ID).expect("read");
    let begin = || records.begin("r.io/a:1").expect("intent");
    begin();
    begin();
    records.abandon("r.io/a:1").expect("first");
    records.fail("r.io/a:1").expect("second");
    assert_eq!(history(&records), PullHistory::Intent, "beside a failure");
    begin();
    records.fail("r.io/a:1").expect("third");
    assert_eq!(history(&records), PullHistory::Intent, "after a failure");
    let restarted = PullRecords::open(dir.path()).expect("open");
    assert_eq!(history(&restarted), PullHistory::Intent, "after a restart");
    begin();
    let anonymous = ImagePullCredentials::for_pull(None);
    let done = records.succeed("r.io/a:1", "sha256:2", anonymous, at(1));
    done.expect("record");
    assert_eq!(history(&records), PullHistory::None, "its image is known");
}

#[test]
fn intent_stays_while_a_second_pull_runs_after_success() {
    let (_dir, records) = opened();
    let count = || records.count().expect("count").intents;
    records.begin("r.io/a:1").expect("intent");
    records.begin("r.io/a:1").expect("intent");
    let anonymous = ImagePullCredentials::for_pull(None);
    let done = records.succeed("r.io/a:1", ID, anonymous, at(1));
    done.expect("record");
    assert_eq!(count(), 1);
    records.fail("r.io/a:1").expect("second");
    assert_eq!(count(), 0);
}

#[test]
fn record_not_written_keeps_the_intent() {
    let (dir, records) = opened();
    records.begin("r.io/a:1").expect("intent");
    records.begin("r.io/a:1").expect("intent");
    fs::remove_dir(dir.path().join("image_manager/pulled")).expect("removed");
    let anonymous = ImagePullCredentials::for_pull(None);
    let done = records.succeed("r.io/a:1", ID, anonymous, at(1));
    assert!(done.is_err(), "{done:?}");
    records.fail("r.io/a:1").expect("second");
    let history = records.history("r.io/a:1", ID).expect("read");
    assert_eq!(history, PullHistory::Intent);
}

#[test]
fn prune_image_gone_removes_its_record() {
    let (_dir, records) = opened();
    let anonymous = ImagePullCredentials::for_pull(None);
    records
        .succeed("r.io/a:1", ID, anonymous, at(1))
        .expect("record");
    records.prune(&[image()], at(2)).expect("prune");
    let history = records.history("r.io/a:1", ID).expect("read");
    assert!(matches!(history, PullHistory::Pulled(_)), "{history:?}");
    records.prune(&[], at(2)).expect("prune");
    assert_eq!(
        records.history("r.io/a:1", ID).expect("read"),
        PullHistory::None
    );
}
