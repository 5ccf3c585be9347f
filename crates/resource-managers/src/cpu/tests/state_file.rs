//! State files of upstream, damaged ones, and those of another policy or machine.

use windlass_types::{PodExt, PodUid};

use super::{allocate, manager, pod, static_policy};
use crate::cpu::take::tests::machine;
use crate::cpu::{CpuManager, CpuSettings};

fn restored(manager: &mut CpuManager, file: &str) -> String {
    let container = |id: &str| {
        let number = id.strip_prefix("containerID")?;
        Some((PodUid::from("pod"), format!("container{number}")))
    };
    manager.restore(file.as_bytes(), container).to_string()
}

/// Checks the decision, and the state file after it.
fn check(shape: &str, settings: &CpuSettings, file: &str, expected: &str) {
    let mut manager = manager(machine(shape), settings);
    let line = restored(&mut manager, file);
    let state = manager.state_file();
    let state = state
        .split(",\"checksum\"")
        .next()
        .unwrap()
        .replace('"', "");
    assert_eq!(format!("{line} -> {state}"), expected, "{file}");
}

/// The files of upstream's own tests, of versions 1, 2 and 3.
#[test]
fn files_of_all_versions_of_upstream_are_read() {
    let v2 = r#"{"policyName": "none", "defaultCPUSet": "1-3",
        "entries": {"pod": {"container1": "4-6", "container2": "1-3"}}, "checksum": 3610638499}"#;
    let v1 = r#"{"policyName": "none", "defaultCPUSet": "1-3",
        "entries": {"containerID1": "4-6", "containerID2": "1-3"}, "checksum": 3680390589}"#;
    let v3 = r#"{"policyName": "none", "defaultCPUSet": "1-3",
        "entries": {"pod": {"container1": "4-6", "container2": "1-3"}},
        "podEntries": {"pod": {"cpuSet": "4-6"}}, "checksum": 2649431787}"#;
    let none = CpuSettings::default();
    for file in [v1, v2, v3] {
        check(
            "1 1 1 8 1 0",
            &none,
            file,
            "migrated: pod pod lost CPUs 1-6: policy none assigns no CPUs -> \
             {policyName:none,defaultCpuSet:",
        );
    }
    let empty = r#"{"policyName": "none", "defaultCPUSet": "4-6", "entries": {},
        "checksum": 354655845}"#;
    check(
        "1 1 1 8 1 0",
        &none,
        empty,
        "kept -> {policyName:none,defaultCpuSet:",
    );
    let old = r#"{"policyName": "none", "defaultCPUSet": "1-3", "checksum": 1694838852}"#;
    check(
        "1 1 1 8 1 0",
        &none,
        old,
        "kept -> {policyName:none,defaultCpuSet:",
    );
}

#[test]
fn unusable_files_are_set_aside_with_a_reason() {
    let check = |file: &str, expected: &str| {
        let expected = format!("set aside: {expected} -> {{policyName:static,defaultCpuSet:0-3");
        check("1 1 1 4 1 0", &static_policy("", 1), file, &expected);
    };
    check("{", "EOF while parsing an object at line 1 column 1");
    check(
        "[]",
        "invalid length 0, expected struct Checkpoint with 5 elements at line 1 column 2",
    );
    check(
        r#"{"policyName": "static", "defaultCpuSet": "0-3", "checksum": 1337}"#,
        "checksum does not match",
    );
    check(
        r#"{"policyName": "static", "defaultCpuSet": "1.3", "checksum": 0}"#,
        "\"1.3\" is not a list of CPUs such as 0-3,8",
    );
}

#[test]
fn a_state_file_restores_what_it_was_written_from() {
    let settings = CpuSettings {
        pod_level: true,
        ..static_policy("", 1)
    };
    let mut first = manager(machine("2 2 2 8 2 0"), &settings);
    let plain = pod("u", "i3 s1 c2");
    allocate(&mut first, &plain, "1");
    first.allocate_pod(&pod("v", "p4 c2 c0"), None).unwrap();
    let file = first.state_file();
    assert_eq!(
        file,
        r#"{"policyName":"static","defaultCpuSet":"0-3,8-11","#.to_owned()
            + r#""entries":{"u":{"c2":"5,13","i0":"4-5,12","s1":"4"},"#
            + r#""v":{"c1":"6,14","c2":"7,15"}},"podEntries":{"v":{"cpuSet":"6-7,14-15"}},"#
            + r#""checksum":3829519159}"#
    );
    let mut second = manager(machine("2 2 2 8 2 0"), &settings);
    assert_eq!(restored(&mut second, &file), "kept");
    assert_eq!(second.state_file(), file);
    assert_eq!(
        second.cpus_of(&plain.uid(), "c2"),
        first.cpus_of(&plain.uid(), "c2")
    );
    // the reused CPUs of the init container are known after a restart
    assert_eq!(
        allocate(&mut second, &plain, "1"),
        allocate(&mut first, &plain, "1")
    );
}

#[test]
fn changed_policy_or_machine_keeps_what_fits() {
    let file = |policy: &str, shared: &str| {
        format!(
            r#"{{"policyName": "{policy}", "defaultCpuSet": "{shared}", "entries":
            {{"a": {{"c": "1-2"}}, "b": {{"c": "5"}}, "d": {{"c": "5-6"}}}}, "checksum": 0}}"#
        )
    };
    let shape = "1 1 1 8 1 0";
    // `b` and `d` have the same CPU
    check(
        shape,
        &static_policy("", 1),
        &file("static", "0,3-4,7"),
        "migrated: pod d lost CPUs 5-6: 5 assigned to another pod -> \
         {policyName:static,defaultCpuSet:0,3-4,6-7,entries:{a:{c:1-2},b:{c:5}}",
    );
    // fewer CPUs are online
    check(
        "1 1 1 6 1 0",
        &static_policy("", 1),
        &file("static", "0,3-4"),
        "migrated: pod d lost CPUs 5-6: 6 offline -> \
         {policyName:static,defaultCpuSet:0,3-4,entries:{a:{c:1-2},b:{c:5}}",
    );
    // more CPUs are reserved
    check(
        shape,
        &static_policy("strict-cpu-reservation", 2),
        &file("static", "0,3-4,7"),
        "migrated: pod a lost CPUs 1-2: 1 reserved; pod d lost CPUs 5-6: 5 assigned to another pod \
         -> {policyName:static,defaultCpuSet:2-4,6-7,entries:{b:{c:5}}",
    );
    check(
        shape,
        &CpuSettings::default(),
        r#"{"policyName": "static", "defaultCpuSet": "0-7", "checksum": 0}"#,
        "kept -> {policyName:none,defaultCpuSet:",
    );
    check(
        shape,
        &static_policy("", 1),
        r#"{"policyName": "none", "defaultCpuSet": "", "checksum": 0}"#,
        "kept -> {policyName:static,defaultCpuSet:0-7",
    );
    check(
        "1 1 1 9 1 0",
        &static_policy("", 1),
        r#"{"policyName": "static", "defaultCpuSet": "0-7", "checksum": 0}"#,
        "kept -> {policyName:static,defaultCpuSet:0-8",
    );
    check(
        "1 1 1 9 1 0",
        &static_policy("", 1),
        r#"{"policyName": "static", "defaultCpuSet": "0,2-7", "entries": {"a": {"c": "1"}},
        "checksum": 0}"#,
        "migrated: shared pool changed from 0,2-7 to 0,2-8 -> \
         {policyName:static,defaultCpuSet:0,2-8,entries:{a:{c:1}}",
    );
    let gone = r#"{"policyName": "static", "defaultCpuSet": "0-7", "entries": {"x": "1"},
        "checksum": 0}"#;
    check(
        shape,
        &static_policy("", 1),
        gone,
        "migrated: container x does not exist -> {policyName:static,defaultCpuSet:0-7",
    );
}
