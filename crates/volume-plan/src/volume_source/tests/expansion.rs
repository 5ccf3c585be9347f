//! Whose turn it is to grow a claim, and what is told of that.

use windlass_types::ExpansionError::{Away, Failed, InUse, Infeasible, Uncertain, Unsupported};
use windlass_types::corev1::{PersistentVolume, PersistentVolumeClaim};
use windlass_types::{ExpansionDecision, ExpansionError, ExpansionTask, Timestamp};

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
    let patch = resize_finished_patch(&claim, Some(&volume), bytes);
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

#[test]
fn a_claim_that_has_its_size_while_its_resizer_waits_is_told_that_the_wait_is_over() {
    check(
        json!({
            "capacity": {"storage": "2Gi"},
            "allocatedResourceStatuses": {"storage": "NodeResizeInProgress"},
        }),
        "2Gi",
        2 * GIB,
        Some(json!({"allocatedResourceStatuses": {"storage": null}})),
    );
}

#[test]
fn the_size_is_written_as_the_resizer_wrote_it() {
    check(
        json!({"allocatedResources": {"storage": "1536Mi"}}),
        "2Gi",
        3 * GIB / 2,
        Some(json!({"capacity": {"storage": "1536Mi"}})),
    );
}

fn claim(value: Value) -> PersistentVolumeClaim {
    serde_json::from_value(value).expect("claim")
}

/// Whose turn it is: a PersistentVolume of 3 GiB, and a claim whose user asks for `asked`.
fn turn(asked: &str, mode: &str, status: Value, failed_before: bool, expected: &str) {
    let claim = claim(json!({
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": asked}}},
        "status": status,
    }));
    let line = match expansion_decision(&claim, 3 * GIB, failed_before) {
        ExpansionDecision::Expand(growing) => {
            let flags = [
                (growing.reported, " reported"),
                (growing.tracked, " tracked"),
                (growing.final_attempt, " final"),
            ];
            let flags = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name);
            format!(
                "grow to {}{}",
                growing.bytes / GIB,
                flags.collect::<String>()
            )
        }
        ExpansionDecision::AlreadyExpanded(bytes) => format!("has {}", bytes / GIB),
        ExpansionDecision::Deferred => "not now".to_owned(),
    };
    assert_eq!(line, expected, "{status}");
}

#[test]
fn the_node_grows_a_volume_when_its_claim_waits_for_it() {
    let once = "ReadWriteOnce";
    let at = |stage: &str| {
        json!({
            "capacity": {"storage": "1Gi"},
            "allocatedResources": {"storage": "2Gi"},
            "allocatedResourceStatuses": {"storage": stage},
        })
    };
    let pending = at("NodeResizePending");
    turn("2Gi", once, pending.clone(), false, "grow to 2 tracked");
    turn(
        "2Gi",
        once,
        at("NodeResizeInProgress"),
        false,
        "grow to 2 tracked",
    );
    turn(
        "2Gi",
        once,
        at("ControllerResizeInProgress"),
        false,
        "not now",
    );
    turn("2Gi", once, at("NodeResizeInfeasible"), false, "not now");
    // its user thought better of it after it failed
    turn("1Gi", once, pending.clone(), false, "grow to 2 tracked");
    turn("2Gi", once, pending.clone(), true, "grow to 2 tracked");
    turn("1Gi", once, pending, true, "grow to 2 tracked final");
    // the resizer has not come to it
    let begun = json!({"capacity": {"storage": "1Gi"}, "allocatedResources": {"storage": "2Gi"}});
    turn("2Gi", once, begun, false, "not now");
}

#[test]
fn a_volume_of_several_nodes_grows_on_each_and_others_on_one() {
    let done = json!({"capacity": {"storage": "2Gi"}, "allocatedResources": {"storage": "2Gi"}});
    turn("2Gi", "ReadWriteOnce", done.clone(), false, "has 2");
    turn(
        "2Gi",
        "ReadWriteMany",
        done.clone(),
        false,
        "grow to 2 reported tracked",
    );
    let not_required = claim(json!({
        "metadata": {"annotations": {"volume.kubernetes.io/node-expansion-not-required": ""}},
        "spec": {"accessModes": ["ReadWriteMany"]},
        "status": done,
    }));
    assert_eq!(
        expansion_decision(&not_required, 3 * GIB, false),
        ExpansionDecision::AlreadyExpanded(2 * GIB)
    );
}

#[test]
fn an_old_resizer_only_makes_the_volume_larger() {
    let has = |size: &str| json!({"capacity": {"storage": size}});
    turn("3Gi", "ReadWriteOnce", has("1Gi"), true, "grow to 3");
    turn(
        "3Gi",
        "ReadWriteOnce",
        has("3Gi"),
        false,
        "grow to 3 reported",
    );
    turn("3Gi", "ReadWriteOnce", json!({}), false, "grow to 3");
}

#[test]
fn what_follows_from_a_growth_that_failed() {
    let check = |flags: &str, fault: ExpansionError, expected: &str| {
        let growing = ExpansionTask {
            bytes: 2,
            reported: flags.contains("reported"),
            tracked: flags.contains("tracked"),
            final_attempt: flags.contains("final"),
        };
        let line = expansion_failure(&growing, fault).to_string();
        assert_eq!(line, expected, "{flags} {fault:?}");
    };
    for (fault, expected) in [
        (Away, "failed"),
        (Failed, "error, rejected"),
        (Uncertain, "error, failed"),
        (Infeasible, "infeasible, rejected"),
        (InUse, "error, left"),
        (Unsupported, "error, rejected"),
    ] {
        check("tracked", fault, expected);
    }
    check("tracked reported", Unsupported, "done");
    check("tracked final", Failed, "infeasible, rejected");
    check("tracked final", Uncertain, "error, failed");
    check("tracked final", InUse, "infeasible, left");
    // an old resizer is told of nothing but success
    for (fault, expected) in [
        (Failed, "rejected"),
        (Infeasible, "rejected"),
        (InUse, "left"),
        (Unsupported, "done"),
    ] {
        check("", fault, expected);
    }
}

#[test]
fn a_claim_says_that_its_node_is_at_work_and_how_that_failed() {
    let with = |status: Value| {
        claim(json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "status": status}))
    };
    let at = |stage: &str| with(json!({"allocatedResourceStatuses": {"storage": stage}}));
    let in_progress = json!({"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}});
    assert_eq!(
        resize_started_patch(&at("NodeResizePending")),
        Some(json!({
            "metadata": {"uid": "u", "resourceVersion": "7"}, "status": in_progress,
        }))
    );
    assert_eq!(resize_started_patch(&at("NodeResizeInProgress")), None);

    let now = Timestamp::from_second(1_700_000_000).expect("in range");
    let condition = json!([{
        "type": "NodeResizeError", "status": "True", "lastTransitionTime": "2023-11-14T22:13:20Z",
        "message": "failed to expand pvc with no",
    }]);
    let failed = |claim: &PersistentVolumeClaim, infeasible| {
        resize_failed_patch(claim, infeasible, "no", now).map(|patch| patch["status"].clone())
    };
    let pending = at("NodeResizePending");
    assert_eq!(
        failed(&pending, false),
        Some(json!({"conditions": condition}))
    );
    let infeasible = json!({"storage": "NodeResizeInfeasible"});
    assert_eq!(
        failed(&pending, true),
        Some(json!({"allocatedResourceStatuses": infeasible, "conditions": condition}))
    );
    // what stands there stays, and nothing is said twice
    let before = with(json!({
        "allocatedResourceStatuses": {"storage": "NodeResizePending"},
        "conditions": [{"type": "NodeResizeError", "status": "True", "message": "before"}],
    }));
    assert_eq!(failed(&before, false), None);
    assert_eq!(
        failed(&before, true),
        Some(json!({"allocatedResourceStatuses": infeasible}))
    );
}
