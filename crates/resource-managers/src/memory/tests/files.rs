//! State files: of upstream, damaged, of other policies and machines.

use windlass_topology::Machine;

use super::super::{MemoryConfig, MemoryManager, MemoryPolicy, Restored};
use super::{NO_HINT, allocate, config, free_line, machine, manager, pod};

/// Restores a file and prints the change, the pods and the state.
fn restored_line(config: MemoryConfig, machine: &Machine, content: &str) -> String {
    let mut manager = MemoryManager::new(config, machine);
    let restored = manager.restore(content);
    let pods: Vec<&str> = manager.pods().collect();
    format!(
        "{restored} | {} | {}",
        pods.join(" "),
        free_line(&manager.state)
    )
}

#[test]
fn file_restores_the_same_manager() {
    let mut manager = manager(3);
    for (uid, containers) in [("a", "i2 s1 c4"), ("b", "c12"), ("c", "c1 c2")] {
        allocate(&mut manager, &pod(uid, containers), NO_HINT).unwrap();
    }
    manager.reusable.clear();
    let mut restored = self::manager(3);
    assert_eq!(restored.restore(&manager.checkpoint()), Restored::Kept);
    assert_eq!(restored, manager);
}

#[test]
fn checksums_equal_those_of_the_go_kubelet() {
    // versions 1 and 2, from a file of the Go kubelet 1.36
    let file = |pods: &str, checksum: u32| {
        format!(
            "{{\"policyName\":\"static\",\"machineState\":{{\"0\":{{\"numberOfAssignments\":0,\
             \"memoryMap\":{{\"memory\":{{\"total\":2048,\"systemReserved\":512,\
             \"allocatable\":1536,\"reserved\":512,\"free\":1024}}}},\"cells\":[]}}}},\
             \"entries\":{{\"pod\":{{\"container1\":[{{\"numaAffinity\":[0],\"type\":\"memory\",\
             \"size\":512}}]}}}},{pods}\"checksum\":{checksum}}}"
        )
    };
    let pods = "\"podEntries\":{\"pod\":{\"memoryBlocks\":[{\"numaAffinity\":[0],\
                \"type\":\"memory\",\"size\":512}]}},";
    let line = |content: &str| restored_line(config(&machine(1)), &machine(1), content);
    let policy = "set aside: [memorymanager] configured policy \"Static\" \
                  differs from state checkpoint policy \"static\"";
    for content in [
        file("", 4_215_593_881),
        file(pods, 1_278_640_530),
        file("", 0),
    ] {
        assert!(line(&content).starts_with(policy), "{}", line(&content));
    }
    let damaged = "set aside: checkpoint is corrupted: its checksum is \
                   101010, of its content 4215593881";
    assert!(line(&file("", 101_010)).starts_with(damaged));
}

#[test]
fn damaged_file_is_set_aside_with_its_reason() {
    let mut manager = manager(2);
    allocate(&mut manager, &pod("a", "c4"), NO_HINT).unwrap();
    let content = manager.checkpoint();
    let half = content.get(..content.len() / 2).unwrap();
    let other = content.replace("\"size\":4294967296", "\"size\":4294967297");
    for (content, reason) in [
        ("", "EOF while parsing"),
        ("[]", "invalid"),
        ("{\"machineState\":{\"x\":{}}}", "invalid"),
        (half, "EOF while parsing"),
        (&other, "checkpoint is corrupted"),
    ] {
        let line = restored_line(config(&machine(2)), &machine(2), content);
        assert!(line.starts_with("set aside: "), "{line}");
        assert!(line.contains(reason), "{line}");
        assert!(line.ends_with(" |  | 0=9 (0 of 0) 1=9 (0 of 1)"), "{line}");
    }
}

#[test]
fn other_policy_sets_assignments_aside_if_there_are_any() {
    let none = MemoryConfig::default();
    let unused = MemoryManager::new(none.clone(), &machine(2));
    assert!(
        unused
            .checkpoint()
            .starts_with("{\"policyName\":\"None\",\"machineState\":{},")
    );
    let line = restored_line(config(&machine(2)), &machine(2), &unused.checkpoint());
    assert_eq!(line, "kept |  | 0=9 (0 of 0) 1=9 (0 of 1)");
    let other = manager(3).checkpoint();
    let line = restored_line(config(&machine(2)), &machine(2), &other);
    assert_eq!(line, "kept |  | 0=9 (0 of 0) 1=9 (0 of 1)");
    let mut same = unused.clone();
    assert_eq!(same.restore(&unused.checkpoint()), Restored::Kept);
    assert_eq!(same, unused);

    let mut used = manager(2);
    allocate(&mut used, &pod("a", "c4"), NO_HINT).unwrap();
    let of_pod = r#"{"policyName":"Static","podEntries":{"a":{"memoryBlocks":[]}}}"#;
    for content in [&used.checkpoint(), of_pod] {
        let line = restored_line(none.clone(), &machine(2), content);
        assert_eq!(
            line,
            "set aside: [memorymanager] configured policy \"None\" differs from \
             state checkpoint policy \"Static\" |  | "
        );
    }
    assert_eq!(MemoryPolicy::Static.to_string(), "Static");
}

#[test]
fn other_machine_keeps_assignments_that_fit() {
    let mut used = manager(2);
    for (uid, containers) in [("a", "c4"), ("b", "c6")] {
        allocate(&mut used, &pod(uid, containers), NO_HINT).unwrap();
    }
    let content = used.checkpoint();
    let different = "migrated: [memorymanager] the expected machine state is \
                     different from the real one";
    // a node more
    assert_eq!(
        restored_line(config(&machine(3)), &machine(3), &content),
        format!("{different} | a b | 0=5 (1 of 0) 1=3 (1 of 1) 2=9 (0 of 2)")
    );
    // a node less
    assert_eq!(
        restored_line(config(&machine(1)), &machine(1), &content),
        format!("{different}; assignment of pod b dropped: no NUMA node 1 | a | 0=5 (1 of 0)")
    );
    // less memory than is assigned: what is assigned stays, nothing is free
    let mut small = machine(2);
    small.nodes.get_mut(&0).unwrap().memory = 3 << 30;
    assert_eq!(
        restored_line(config(&small), &small, &content),
        format!("{different} | a b | 0=0 (1 of 0) 1=3 (1 of 1)")
    );
}

#[test]
fn parts_of_a_group_may_differ() {
    let mut used = manager(2);
    allocate(&mut used, &pod("a", "c6"), NO_HINT).unwrap();
    used.release("a");
    for (uid, containers) in [("b", "c12"), ("c", "c2"), ("d", "c2")] {
        allocate(&mut used, &pod(uid, containers), NO_HINT).unwrap();
    }
    // frees memory of node 0 first
    used.release("b");
    used.reusable.clear();
    let mut restored = manager(2);
    assert_eq!(restored.restore(&used.checkpoint()), Restored::Kept);
    assert_eq!(restored, used);
}

#[test]
fn file_has_the_bytes_of_the_go_kubelet() {
    let mut used = manager(3);
    for (uid, containers) in [("a", "i2 s1 c4"), ("b", "c12")] {
        allocate(&mut used, &pod(uid, containers), NO_HINT).unwrap();
    }
    let file = used.checkpoint();
    assert_eq!(file, include_str!("memory_manager_state.json").trim_end());
}
