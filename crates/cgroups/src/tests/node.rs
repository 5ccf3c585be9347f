//! Limits of all pods, of the classes and of daemons.

use windlass_runtime_config::node_cgroups::{Daemons, NodeLimit};

use super::*;

/// `kubeReservedCgroup` with a reservation of 1 CPU, 1 MiB and 100 processes.
fn reserved(cgroup: &str) -> NodeLimit {
    NodeLimit::Reserved {
        daemons: Daemons::Kube,
        compressible: false,
        cgroup: cgroup.to_owned(),
        values: Some(CgroupValues {
            cpu_shares: Some(1024),
            memory_limit: Some(1 << 20),
            pids_limit: Some(100),
            ..CgroupValues::default()
        }),
    }
}

fn enforce(pods: &PodCgroups, limit: &NodeLimit) -> String {
    let result = pods.enforce(limit);
    result.map_or_else(|error| error.to_string(), |()| "enforced".to_owned())
}

fn check_files(tree: &MemoryTree, path: &str, files: &[(&str, &str)]) {
    for (name, expected) in files {
        let content = tree.file(&format!("{path}/{name}"));
        assert_eq!(content.as_deref(), Some(*expected), "{path}/{name}");
    }
}

#[test]
fn limit_of_all_pods_is_set_again() {
    for tree in [MemoryTree::v1(&V1), MemoryTree::v2()] {
        let pods = pods(&tree);
        pods.set_up(node());
        let limit = pods.pods_limit();
        assert_eq!(
            limit,
            NodeLimit::Pods(vec!["test".into(), "kubepods".into()])
        );
        assert_eq!(enforce(&pods, &limit), "enforced");
        let memory = match tree.unified() {
            true => "memory.max",
            false => "memory.limit_in_bytes",
        };
        let files = [(memory, "1073741824"), ("pids.max", "1000")];
        check_files(&tree, "/test/kubepods", &files);
    }
}

#[test]
fn limit_of_all_pods_fails_until_the_cgroup_accepts_it() {
    let tree = MemoryTree::v2();
    tree.set_read_only("");
    let pods = pods(&tree);
    pods.set_up(node());
    let limit = pods.pods_limit();
    let why = "cgroup /test/kubepods does not exist or lacks controllers: cpu, memory, pids";
    assert_eq!(enforce(&pods, &limit), why);
    tree.set_writable("");
    assert_eq!(enforce(&pods, &limit), "enforced");
    assert!(tree.exists("", BURSTABLE));
    tree.set_read_only("");
    let why = enforce(&pods, &limit);
    assert!(
        why.starts_with("cannot set cgroup :/test/kubepods/cpu.weight=79"),
        "{why}"
    );
    tree.set_writable("");
    assert_eq!(enforce(&pods, &limit), "enforced");

    // a controller that the host does not have, and one that is not delegated
    let tree = MemoryTree::v1(&["cpu", "memory"]);
    let pods = self::pods(&tree);
    assert!(pods.set_up(node()).is_empty());
    let why = "cgroup /test/kubepods does not exist or lacks controllers: pids";
    assert_eq!(enforce(&pods, &limit), why);
    let tree = MemoryTree::v2();
    tree.lose_file("memory.max");
    let pods = self::pods(&tree);
    assert!(pods.set_up(node()).is_empty());
    let why = enforce(&pods, &limit);
    assert!(
        why.starts_with("cannot set cgroup :/test/kubepods/memory.max="),
        "{why}"
    );
}

#[test]
fn daemons_are_limited_in_a_cgroup_that_exists() {
    let tree = MemoryTree::v1(&V1);
    let pods = pods(&tree);
    pods.set_up(node());
    let limit = reserved("/kube-reserved");
    let why = "cgroup /kube-reserved does not exist or lacks controllers: cpu, memory, pids";
    assert_eq!(enforce(&pods, &limit), why);
    for hierarchy in ["cpu", "pids"] {
        tree.enter(hierarchy, "/kube-reserved", 7, false);
    }
    let why = "cgroup /kube-reserved does not exist or lacks controllers: memory";
    assert_eq!(enforce(&pods, &limit), why);
    tree.enter("memory", "/kube-reserved", 7, false);
    assert_eq!(enforce(&pods, &limit), "enforced");
    let files = [
        ("cpu.shares", "1024"),
        ("memory.limit_in_bytes", "1048576"),
        ("pids.max", "100"),
    ];
    check_files(&tree, "/kube-reserved", &files);
    let unset = NodeLimit::Reserved {
        daemons: Daemons::System,
        compressible: true,
        cgroup: "/system".to_owned(),
        values: None,
    };
    let why = "cgroup /system is not configured: no resources are reserved";
    assert_eq!(enforce(&pods, &unset), why);
}

#[test]
fn slice_of_daemons_gets_its_properties() {
    let (tree, recorded) = (MemoryTree::v2(), Arc::new(RecordedSlices::default()));
    let pods = slices(&tree, &recorded);
    pods.set_up(node());
    recorded.take();
    let limit = reserved("/kube-daemons.slice");
    let why = "cgroup /kube.slice/kube-daemons.slice does not exist or lacks controllers: \
               cpu, memory, pids";
    assert_eq!(enforce(&pods, &limit), why);
    assert!(recorded.take().is_empty(), "no slice is created");
    tree.enter("", "/kube.slice/kube-daemons.slice", 7, false);
    assert_eq!(enforce(&pods, &limit), "enforced");
    let start = "start kube-daemons.slice CPUWeight=39 MemoryMax=1048576 TasksMax=100";
    assert_eq!(recorded.take(), [start]);
    let files = [("cpu.weight", "39"), ("memory.max", "1048576")];
    check_files(&tree, "/kube.slice/kube-daemons.slice", &files);
    recorded.refuse(Some("kubepods.slice"));
    let why = "cannot start cgroup systemd:/kubepods.slice: no";
    assert_eq!(enforce(&pods, &pods.pods_limit()), why);
}

#[test]
fn class_memory_is_not_limited_below_its_usage() {
    let tree = MemoryTree::v2();
    let pods = pods(&tree);
    pods.set_up(node());
    let mut values = shares(1024);
    values.burstable.memory_limit = Some(1000);
    values.best_effort.memory_limit = Some(500);
    let best_effort = "/test/kubepods/besteffort";
    tree.write("", best_effort, "memory.current", "700\n")
        .expect("written");
    assert!(pods.update_classes(values).expect("set"));
    check_files(&tree, BURSTABLE, &[("memory.max", "1000")]);
    check_files(&tree, best_effort, &[("memory.max", "700")]);
    // retried until it is exact
    tree.write("", best_effort, "memory.current", "400\n")
        .expect("written");
    assert!(pods.update_classes(values).expect("set"));
    check_files(&tree, best_effort, &[("memory.max", "500")]);
    assert!(!pods.update_classes(values).expect("there"));
}
