//! Cgroups of running pods: values that are read back and changed.

use windlass_types::ContainerId;

use super::*;

const CLASS: QosClass = QosClass::Burstable;

#[test]
fn values_of_another_agent_run_are_read_and_changed_one_by_one() {
    for tree in [MemoryTree::v1(&V1), MemoryTree::v2()] {
        let before = pods(&tree);
        assert!(before.set_up(node()).is_empty());
        let all = CgroupValues {
            cpu_quota: Some((50_000, 100_000)),
            ..values()
        };
        assert!(before.ensure(&uid(), CLASS, all).expect("made"));
        assert_eq!(before.known(&uid()), Some(all));

        let pods = pods(&tree);
        assert!(pods.set_up(node()).is_empty());
        assert_eq!(pods.known(&uid()), None);
        assert!(pods.exists(CLASS, &uid()));
        let read = pods.read(CLASS, &uid()).expect("a cgroup");
        let limits = (read.cpu_quota, read.memory_limit);
        assert_eq!(limits, (all.cpu_quota, all.memory_limit));
        let change = CgroupValues {
            memory_limit: Some(2 << 20),
            ..CgroupValues::default()
        };
        let writes = tree.writes();
        pods.resize(CLASS, &uid(), change).expect("changed");
        assert_eq!(tree.writes(), writes + 1);
        let known = pods.known(&uid()).expect("known");
        let limits = (known.cpu_quota, known.memory_limit);
        assert_eq!(limits, (all.cpu_quota, change.memory_limit));
        assert_eq!(pods.read(CLASS, &"other".into()), None);
    }
}

#[test]
fn rejected_value_is_an_error_and_read_again() {
    let tree = MemoryTree::v1(&V1);
    let pods = pods(&tree);
    assert!(pods.set_up(node()).is_empty());
    assert!(pods.ensure(&uid(), CLASS, values()).expect("made"));
    tree.set_read_only("memory");
    let change = CgroupValues {
        cpu_shares: Some(512),
        memory_limit: Some(2 << 20),
        ..CgroupValues::default()
    };
    let error = pods.resize(CLASS, &uid(), change).expect_err("read-only");
    assert!(error.to_string().contains("memory.limit_in_bytes=2097152"));
    assert_eq!(pods.known(&uid()), None);
    let read = pods.read(CLASS, &uid()).expect("a cgroup");
    assert_eq!(
        (read.cpu_shares, read.memory_limit),
        (Some(512), Some(1 << 20))
    );
}

#[test]
fn memory_usage_of_containers_is_found_by_their_id() {
    let tree = MemoryTree::v2();
    let pods = pods(&tree);
    assert!(pods.set_up(node()).is_empty());
    assert!(pods.ensure(&uid(), CLASS, values()).expect("made"));
    let pod = format!("{BURSTABLE}/pod1-2");
    let container = format!("{pod}/cri-containerd-abc.scope");
    tree.enter("", &container, 7001, false);
    for (path, bytes) in [(&pod, "300"), (&container, "200")] {
        let written = tree.write("", path, "memory.current", bytes);
        written.expect("written");
    }
    let ids = ["abc", "gone"].map(ContainerId::from);
    let usage = pods.memory_usage(CLASS, &uid(), &ids);
    assert_eq!(usage.pod, Some(300));
    assert_eq!(usage.containers, [("abc".into(), 200)].into());
}
