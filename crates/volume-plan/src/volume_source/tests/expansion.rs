//! Expansion decisions and PVC status patches.

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
fn finished_expansion_reports_capacity() {
    let has = |size: &str| json!({"capacity": {"storage": size}});
    check(has("1Gi"), "2048Mi", 2 * GIB, Some(has("2048Mi")));
    check(json!({}), "2Gi", 2 * GIB, Some(has("2Gi")));
    // the volume was enlarged again since
    check(has("1Gi"), "3Gi", 2 * GIB, Some(has("2Gi")));
}

#[test]
fn finished_expansion_without_change_has_no_patch() {
    let has = json!({"capacity": {"storage": "2Gi"}});
    check(has.clone(), "2Gi", 2 * GIB, None);
    check(has, "2Gi", GIB, None);
}

#[test]
fn finished_expansion_removes_resize_status_only() {
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
fn finished_expansion_clears_pending_resizer_status() {
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
fn capacity_has_the_format_of_the_resizer() {
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

/// Checks the decision for a PersistentVolume of 3 GiB and a PVC that requests `requested`.
fn decide(requested: &str, mode: &str, status: Value, failed_before: bool, expected: &str) {
    let claim = claim(json!({
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": requested}}},
        "status": status,
    }));
    let line = match expansion_decision(&claim, 3 * GIB, failed_before) {
        ExpansionDecision::Expand(task) => {
            let flags = [
                (task.reported, " reported"),
                (task.tracked, " tracked"),
                (task.final_attempt, " final"),
            ];
            let flags = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name);
            format!(
                "expand to {}{}",
                task.bytes / GIB,
                flags.collect::<String>()
            )
        }
        ExpansionDecision::AlreadyExpanded(bytes) => format!("has {}", bytes / GIB),
        ExpansionDecision::Deferred => "deferred".to_owned(),
    };
    assert_eq!(line, expected, "{status}");
}

#[test]
fn node_expands_when_pvc_is_pending_on_node() {
    let once = "ReadWriteOnce";
    let at = |stage: &str| {
        json!({
            "capacity": {"storage": "1Gi"},
            "allocatedResources": {"storage": "2Gi"},
            "allocatedResourceStatuses": {"storage": stage},
        })
    };
    let pending = at("NodeResizePending");
    decide("2Gi", once, pending.clone(), false, "expand to 2 tracked");
    decide(
        "2Gi",
        once,
        at("NodeResizeInProgress"),
        false,
        "expand to 2 tracked",
    );
    decide(
        "2Gi",
        once,
        at("ControllerResizeInProgress"),
        false,
        "deferred",
    );
    decide("2Gi", once, at("NodeResizeInfeasible"), false, "deferred");
    // the user requested less after a failure
    decide("1Gi", once, pending.clone(), false, "expand to 2 tracked");
    decide("2Gi", once, pending.clone(), true, "expand to 2 tracked");
    decide("1Gi", once, pending, true, "expand to 2 tracked final");
    // the resizer has not started
    let begun = json!({"capacity": {"storage": "1Gi"}, "allocatedResources": {"storage": "2Gi"}});
    decide("2Gi", once, begun, false, "deferred");
}

#[test]
fn read_write_many_volume_is_expanded_on_each_node() {
    let done = json!({"capacity": {"storage": "2Gi"}, "allocatedResources": {"storage": "2Gi"}});
    decide("2Gi", "ReadWriteOnce", done.clone(), false, "has 2");
    decide(
        "2Gi",
        "ReadWriteMany",
        done.clone(),
        false,
        "expand to 2 reported tracked",
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
fn old_resizer_enlarges_persistent_volume_only() {
    let has = |size: &str| json!({"capacity": {"storage": size}});
    decide("3Gi", "ReadWriteOnce", has("1Gi"), true, "expand to 3");
    decide(
        "3Gi",
        "ReadWriteOnce",
        has("3Gi"),
        false,
        "expand to 3 reported",
    );
    decide("3Gi", "ReadWriteOnce", json!({}), false, "expand to 3");
}

#[test]
fn failed_expansion_consequences() {
    let check = |flags: &str, error: ExpansionError, expected: &str| {
        let task = ExpansionTask {
            bytes: 2,
            reported: flags.contains("reported"),
            tracked: flags.contains("tracked"),
            final_attempt: flags.contains("final"),
        };
        let line = expansion_failure(&task, error).to_string();
        assert_eq!(line, expected, "{flags} {error:?}");
    };
    for (error, expected) in [
        (Away, "failed"),
        (Failed, "error, rejected"),
        (Uncertain, "error, failed"),
        (Infeasible, "infeasible, rejected"),
        (InUse, "error, skipped"),
        (Unsupported, "error, rejected"),
    ] {
        check("tracked", error, expected);
    }
    check("tracked reported", Unsupported, "nothing to do");
    check("tracked final", Failed, "infeasible, rejected");
    check("tracked final", Uncertain, "error, failed");
    check("tracked final", InUse, "infeasible, skipped");
    // with an old resizer only success is reported
    for (error, expected) in [
        (Failed, "rejected"),
        (Infeasible, "rejected"),
        (InUse, "skipped"),
        (Unsupported, "nothing to do"),
    ] {
        check("", error, expected);
    }
}

#[test]
fn pvc_status_patches_for_started_and_failed_expansion() {
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
    // an existing condition is kept
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
