//! Tables of files with their rotation.

use super::{LogStep, RotationPolicy, last_of, older_of, rotation};

const NOW: &str = "2026-11-22T06:07:08.9Z";

fn check(names: &str, max_files: usize, expected: &str) {
    let now = NOW.parse().expect("time");
    let plan = rotation("0.log", names.split_whitespace(), max_files, now);
    assert_eq!(plan.to_string(), expected, "{names}");
}

#[test]
fn log_is_rotated_at_maximum_size() {
    let policy = RotationPolicy {
        max_size: 100,
        max_files: 5,
    };
    assert_eq!(policy.step(true, Some(99)), None);
    assert_eq!(policy.step(true, Some(100)), Some(LogStep::Rotate));
    assert_eq!(policy.step(true, None), Some(LogStep::Reopen));
    assert_eq!(policy.step(false, Some(100)), None);
    assert_eq!(policy.step(false, None), Some(LogStep::Restore));
}

#[test]
fn last_log_is_newest_uncompressed_file() {
    let names = [
        "0.log.20260102-000000",
        "0.log.20260103-000000",
        "0.log.20260104-000000.gz",
        "0.log.20260105-000000.tmp",
        "1.log.20260106-000000",
    ];
    assert_eq!(last_of("0.log", names), Some("0.log.20260103-000000"));
    assert_eq!(last_of("10.log", names), None);
}

#[test]
fn rotation_keeps_newest_file_and_compresses_older() {
    let rename = "rename(0.log.20261122-060708)";
    check("0.log", 5, rename);
    check(
        "0.log 0.log.20261122-050000",
        5,
        &format!("compress(0.log.20261122-050000) {rename}"),
    );
    check(
        "0.log 0.log.20261122-050000.gz 0.log.20261122-053000",
        5,
        &format!("compress(0.log.20261122-053000) {rename}"),
    );
}

#[test]
fn number_of_log_files_is_bounded() {
    let four = "0.log 0.log.20260104-000000 0.log.20260101-000000.gz 0.log.20260103-000000.gz \
                0.log.20260102-000000.gz";
    let rename = "rename(0.log.20261122-060708)";
    check(
        four,
        6,
        &format!("compress(0.log.20260104-000000) {rename}"),
    );
    check(
        four,
        5,
        &format!("remove(0.log.20260101-000000.gz) compress(0.log.20260104-000000) {rename}"),
    );
    check(
        four,
        2,
        &format!(
            "remove(0.log.20260101-000000.gz 0.log.20260102-000000.gz 0.log.20260103-000000.gz \
             0.log.20260104-000000) {rename}"
        ),
    );
}

#[test]
fn files_of_interrupted_rotation_are_removed() {
    let rename = "rename(0.log.20261122-060708)";
    check(
        "0.log 0.log.20260101-000000 0.log.20260101-000000.tmp",
        5,
        &format!("remove(0.log.20260101-000000.tmp) compress(0.log.20260101-000000) {rename}"),
    );
    // compressed but not yet removed: counts as one file
    check(
        "0.log 0.log.20260101-000000 0.log.20260101-000000.gz 0.log.20260102-000000.gz",
        4,
        &format!("remove(0.log.20260101-000000) {rename}"),
    );
}

#[test]
fn unrelated_files_are_ignored() {
    check(
        "0.log 1.log 0.log.old 0.log.20260101 0.log.2026010a-000000 0.log.20260101-000000.zip \
         10.log.20260101-000000 0.log.\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}",
        2,
        "rename(0.log.20261122-060708)",
    );
}

#[test]
fn rotation_name_is_unique() {
    check(
        "0.log 0.log.20261122-060708.gz 0.log.20261122-060709",
        5,
        "compress(0.log.20261122-060709) rename(0.log.20261122-060710)",
    );
}

#[test]
fn rotation_name_is_after_newest() {
    // several rotations in one second: the oldest names are free again
    check(
        "0.log 0.log.20261122-060711 0.log.20261122-060712",
        5,
        "compress(0.log.20261122-060711 0.log.20261122-060712) rename(0.log.20261122-060713)",
    );
    // names that no rotation made
    for name in ["0.log.99991231-235959", "0.log.20269999-999999"] {
        let expected = format!("compress({name}) rename(0.log.20261122-060708)");
        check(&format!("0.log {name}"), 5, &expected);
    }
}

#[test]
fn newest_rotated_file_is_not_compressed() {
    let names = ["0.log", "0.log.20260103-000000", "0.log.20260102-000000.gz"];
    assert!(older_of("0.log", names).is_empty());
    let names = [
        "0.log.20260103-000000",
        "0.log.20260101-000000",
        "0.log.20260102-000000",
    ];
    let expected = ["0.log.20260101-000000", "0.log.20260102-000000"];
    assert_eq!(older_of("0.log", names), expected);
}
