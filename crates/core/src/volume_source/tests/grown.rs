//! What is told of a claim whose file system has grown.

use windlass_types::corev1::{PersistentVolume, PersistentVolumeClaim};

use super::*;

const GIB: u64 = 1 << 30;

fn check(status: Value, capacity: &str, bytes: u64, expected: Option<Value>) {
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "data", "uid": "u", "resourceVersion": "7"}, "status": status,
    }))
    .expect("claim");
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": "pv"}, "spec": {"capacity": {"storage": capacity}},
    }))
    .expect("volume");
    let patch = grown_claim(&claim, Some(&volume), bytes);
    let expected = expected
        .map(|status| json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "status": status}));
    assert_eq!(patch, expected);
}

#[test]
fn a_claim_has_what_its_volume_has() {
    let has = |size: &str| json!({"capacity": {"storage": size}});
    check(has("1Gi"), "2048Mi", 2 * GIB, Some(has("2048Mi")));
    check(json!({}), "2Gi", 2 * GIB, Some(has("2Gi")));
    // the volume grew again meanwhile
    check(has("1Gi"), "3Gi", 2 * GIB, Some(has("2Gi")));
}

#[test]
fn a_claim_that_says_so_already_is_left_alone() {
    let has = json!({"capacity": {"storage": "2Gi"}});
    check(has.clone(), "2Gi", 2 * GIB, None);
    check(has, "2Gi", GIB, None);
}

#[test]
fn what_was_said_of_the_growth_is_taken_back_and_nothing_else() {
    let one = |kind: &str| json!({"type": kind, "status": "True"});
    check(
        json!({
            "capacity": {"storage": "1Gi"},
            "allocatedResourceStatuses": {"storage": "NodeResizeInProgress"},
            "conditions": [
                one("FileSystemResizePending"), one("Other"), one("Resizing"),
                one("NodeResizeError"), one("ControllerResizeError"),
            ],
        }),
        "2Gi",
        2 * GIB,
        Some(json!({
            "capacity": {"storage": "2Gi"},
            "allocatedResourceStatuses": {"storage": null},
            "conditions": [one("Other")],
        })),
    );
    check(
        json!({
            "capacity": {"storage": "1Gi"},
            "allocatedResourceStatuses": {"other": "x"},
            "conditions": [one("Other")],
        }),
        "2Gi",
        2 * GIB,
        Some(json!({"capacity": {"storage": "2Gi"}})),
    );
}
