//! Conditions as lines of type, status, reason and times.

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("in range")
}

fn well() -> NodeHealth {
    NodeHealth {
        runtime: RuntimeHealth::Ready,
        ..NodeHealth::default()
    }
}

/// The conditions after `health` at second 100, one line each, and the events.
fn after(old: &[NodeCondition], health: &NodeHealth) -> (Vec<String>, String) {
    let (conditions, events) = node_conditions(old, health, &[], at(100));
    let lines = conditions
        .iter()
        .map(|c| {
            let when = |time: &Option<Time>| time.as_ref().map_or(-1, |t| t.0.as_second());
            format!(
                "{}={} {} @{} ♥{}",
                c.type_,
                c.status,
                c.reason.as_deref().unwrap_or_default(),
                when(&c.last_transition_time),
                when(&c.last_heartbeat_time)
            )
        })
        .collect();
    let events: Vec<_> = events.iter().map(|reason| reason.as_str()).collect();
    (lines, events.join(" "))
}

fn ready_message(old: &[NodeCondition], health: &NodeHealth, missing: &[&str]) -> String {
    let (conditions, _) = node_conditions(old, health, missing, at(100));
    let ready = find(&conditions, READY).expect("always there");
    format!(
        "{}: {}",
        ready.status,
        ready.message.as_deref().expect("set")
    )
}

#[test]
fn new_node_has_four_conditions_in_upstream_order() {
    let (lines, events) = after(&[], &well());
    assert_eq!(
        lines,
        [
            "MemoryPressure=False KubeletHasSufficientMemory @100 ♥100",
            "DiskPressure=False KubeletHasNoDiskPressure @100 ♥100",
            "PIDPressure=False KubeletHasSufficientPID @100 ♥100",
            "Ready=True KubeletReady @100 ♥100",
        ]
    );
    assert_eq!(
        events,
        "NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID"
    );
}

#[test]
fn unchanged_conditions_update_heartbeat_only() {
    let (mut old, _) = node_conditions(&[], &well(), &[], at(7));
    let foreign = condition("NetworkUnavailable", false, "FlannelIsUp", "up", at(3));
    old.insert(0, foreign);
    let (lines, events) = after(&old, &well());
    assert_eq!(
        lines,
        [
            "NetworkUnavailable=False FlannelIsUp @3 ♥3",
            "MemoryPressure=False KubeletHasSufficientMemory @7 ♥100",
            "DiskPressure=False KubeletHasNoDiskPressure @7 ♥100",
            "PIDPressure=False KubeletHasSufficientPID @7 ♥100",
            "Ready=True KubeletReady @7 ♥100",
        ]
    );
    assert_eq!(events, "");
    let (new, _) = node_conditions(&old, &well(), &[], at(100));
    assert!(same_conditions(&old, &new));
}

#[test]
fn pressure_conditions_have_text_and_event() {
    let (old, _) = node_conditions(&[], &well(), &[], at(7));
    let short = NodeHealth {
        memory_pressure: true,
        disk_pressure: true,
        pid_pressure: true,
        ..well()
    };
    let (lines, events) = after(&old, &short);
    assert_eq!(
        lines[..3],
        [
            "MemoryPressure=True KubeletHasInsufficientMemory @100 ♥100",
            "DiskPressure=True KubeletHasDiskPressure @100 ♥100",
            "PIDPressure=True KubeletHasInsufficientPID @100 ♥100",
        ]
    );
    assert_eq!(
        events,
        "NodeHasInsufficientMemory NodeHasDiskPressure NodeHasInsufficientPID"
    );
    assert_eq!(lines[3], "Ready=True KubeletReady @7 ♥100");
}

#[test]
fn ready_message_has_all_errors() {
    let check = |health: NodeHealth, missing: &[&str], expected: &str| {
        assert_eq!(ready_message(&[], &health, missing), expected);
    };
    check(well(), &[], "True: kubelet is posting ready status");
    check(
        NodeHealth::default(),
        &[],
        "False: container runtime status check may not have completed yet",
    );
    check(
        NodeHealth {
            runtime: RuntimeHealth::Down,
            network_error: Some("NetworkReady=false reason:x message:y".into()),
            shutting_down: true,
            ..NodeHealth::default()
        },
        &["memory", "ephemeral-storage"],
        "False: [container runtime is down, container runtime network not ready: \
         NetworkReady=false reason:x message:y, node is shutting down, missing node capacity for \
         resources: memory, ephemeral-storage]",
    );
    check(
        NodeHealth {
            runtime: RuntimeHealth::NotReady("RuntimeReady=false reason:a message:b".into()),
            ..NodeHealth::default()
        },
        &[],
        "False: container runtime not ready: RuntimeReady=false reason:a message:b",
    );
    check(
        NodeHealth {
            shutting_down: true,
            ..well()
        },
        &[],
        "False: node is shutting down",
    );
    check(
        NodeHealth {
            storage_error: Some("CSINode is not yet initialized".into()),
            shutting_down: true,
            ..well()
        },
        &[],
        "False: [CSINode is not yet initialized, node is shutting down]",
    );
    check(
        NodeHealth {
            pleg_error: Some("pleg was last seen active 3m0s ago; threshold is 3m0s".into()),
            ..well()
        },
        &[],
        "False: PLEG is not healthy: pleg was last seen active 3m0s ago; threshold is 3m0s",
    );
}

#[test]
fn ready_node_stays_ready_until_first_runtime_check() {
    let (ready, _) = node_conditions(&[], &well(), &[], at(7));
    let (lines, events) = after(&ready, &NodeHealth::default());
    assert_eq!(lines[3], "Ready=True KubeletReady @7 ♥100");
    assert_eq!(events, "");
}

#[test]
fn ready_transitions_have_events() {
    let (ready, _) = node_conditions(&[], &well(), &[], at(7));
    let down = NodeHealth {
        runtime: RuntimeHealth::Down,
        ..NodeHealth::default()
    };
    let (lines, events) = after(&ready, &down);
    assert_eq!(lines[3], "Ready=False KubeletNotReady @100 ♥100");
    assert_eq!(events, "NodeNotReady");
    let mut unknown = ready;
    unknown[3].status = "Unknown".into();
    let (lines, events) = after(&unknown, &well());
    assert_eq!(lines[3], "Ready=True KubeletReady @100 ♥100");
    assert_eq!(events, "NodeReady");
}
