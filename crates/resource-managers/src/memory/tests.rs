//! Placement, reuse, release and reservations.

mod files;

use std::collections::BTreeMap;

use proptest::prelude::*;
use windlass_topology::{Machine, NumaNode, NumaSet};
use windlass_types::Pod;
use windlass_types::pod::pod_from_json;
use windlass_units::quantity::Quantity;

use super::state::State;
use super::{MemoryConfig, MemoryManager, MemoryPolicy, reserved_memory};
use crate::hints::{Hint, NotAdmitted, ProviderHints, ResourceHints};

const GIB: u64 = 1 << 30;

/// A machine with 10 GiB on each node, of which node 1 and higher have 1 GiB of huge pages.
fn machine(nodes: u32) -> Machine {
    let node = |number: u32| NumaNode {
        memory: 10 * GIB,
        huge_pages: BTreeMap::from([(2 << 20, if number == 0 { 0 } else { 512 })]),
        ..NumaNode::default()
    };
    Machine {
        nodes: (0..nodes).map(|number| (number, node(number))).collect(),
        ..Machine::default()
    }
}

/// A manager with 1 GiB reserved on node 0.
fn manager(nodes: u32) -> MemoryManager {
    MemoryManager::new(config(&machine(nodes)), &machine(nodes))
}

fn config(machine: &Machine) -> MemoryConfig {
    let reserved: BTreeMap<String, Quantity> =
        BTreeMap::from([("memory".to_owned(), "1Gi".parse().unwrap())]);
    MemoryConfig {
        policy: MemoryPolicy::Static,
        reserved: reserved_memory(&[(0, reserved.clone())], &reserved, machine).unwrap(),
        pod_level: false,
    }
}

/// Makes a Guaranteed pod. Containers are separated by spaces: a kind (`i` init, `s` sidecar, `c`
/// app), and its memory in GiB, or none.
fn pod(uid: &str, containers: &str) -> Pod {
    pod_with(uid, containers, serde_json::Value::Null)
}

fn pod_with(uid: &str, containers: &str, resources: serde_json::Value) -> Pod {
    let (mut inits, mut apps) = (Vec::new(), Vec::new());
    for (index, text) in containers.split_whitespace().enumerate() {
        let (kind, size) = text.split_at(1);
        let mut container = serde_json::json!({"name": format!("{kind}{index}")});
        if !size.is_empty() {
            let limits = serde_json::json!({"cpu": "1", "memory": format!("{size}Gi")});
            container["resources"] = serde_json::json!({"limits": limits});
        }
        match kind {
            "c" => apps.push(container),
            "s" => {
                container["restartPolicy"] = "Always".into();
                inits.push(container);
            }
            _ => inits.push(container),
        }
    }
    let spec = serde_json::json!({
        "initContainers": inits, "containers": apps, "resources": resources,
    });
    let pod = serde_json::json!({"metadata": {"uid": uid, "name": uid}, "spec": spec});
    pod_from_json(pod.to_string().as_bytes()).unwrap()
}

const NO_HINT: Hint = Hint {
    nodes: None,
    preferred: false,
};

fn hint(nodes: &[u32], preferred: bool) -> Hint {
    Hint {
        nodes: Some(nodes.iter().copied().collect()),
        preferred,
    }
}

fn allocate(manager: &mut MemoryManager, pod: &Pod, hint: Hint) -> Result<(), NotAdmitted> {
    let spec = pod.spec.as_ref().unwrap();
    let inits = spec.init_containers.iter().flatten();
    inits
        .chain(&spec.containers)
        .try_for_each(|container| manager.allocate(pod, container, hint))
}

/// Prints hints: the sets of each resource, with `!` if preferred.
fn hints_line(hints: &ProviderHints) -> String {
    let hint = |hint: &Hint| {
        let mark = if hint.preferred { "!" } else { "" };
        format!("{}{mark}", hint.nodes.unwrap_or_default())
    };
    let resource = |(name, hints): (&String, &ResourceHints)| match hints {
        ResourceHints::Any => format!("{name}: any"),
        ResourceHints::Of(hints) => {
            let hints: Vec<String> = hints.iter().map(hint).collect();
            format!("{name}: {}", hints.join(" "))
        }
    };
    let lines: Vec<String> = hints.iter().map(resource).collect();
    lines.join("; ")
}

/// Prints the free memory of each node in GiB, and the group of nodes that it is in.
fn free_line(state: &State) -> String {
    let node = |(number, state): (&u32, &super::state::NodeState)| {
        let free = state.memory_map.get("memory").unwrap().free / GIB;
        format!(
            "{number}={free} ({} of {})",
            state.number_of_assignments, state.cells
        )
    };
    let nodes: Vec<String> = state.machine.iter().map(node).collect();
    nodes.join(" ")
}

/// Allocates pods one after the other and compares the hints of the last one and the state.
fn check(nodes: u32, pods: &[&str], hints: &str, free: &str) {
    let mut manager = manager(nodes);
    let mut line = String::new();
    for (index, containers) in pods.iter().enumerate() {
        let pod = pod(&format!("p{index}"), containers);
        let container = &pod.spec.as_ref().unwrap().containers[0];
        line = hints_line(&manager.hints(&pod, container));
        if let Err(error) = allocate(&mut manager, &pod, NO_HINT) {
            line.push_str(&format!(" -> {error}"));
        }
    }
    assert_eq!(
        (line.as_str(), free_line(&manager.state).as_str()),
        (hints, free),
        "{pods:?}"
    );
}

#[test]
fn hints_have_fewest_nodes_preferred_and_lowest_is_used() {
    check(2, &["c4"], "memory: 0! 1! 0,1", "0=5 (1 of 0) 1=9 (0 of 1)");
    // node 0 has not enough left
    check(2, &["c4", "c6"], "memory: 1!", "0=5 (1 of 0) 1=3 (1 of 1)");
    // more than a node has
    check(2, &["c12"], "memory: 0,1!", "0=0 (1 of 0,1) 1=6 (1 of 0,1)");
}

#[test]
fn node_is_used_alone_or_in_one_group() {
    // nodes 0 and 1 are a group now
    check(
        3,
        &["c12", "c1"],
        "memory: 0,1 2!",
        "0=0 (1 of 0,1) 1=6 (1 of 0,1) 2=8 (1 of 2)",
    );
    check(
        2,
        &["c12", "c1"],
        "memory: 0,1",
        "0=0 (2 of 0,1) 1=5 (2 of 0,1)",
    );
    // node 0 is used alone
    let none = " -> Allocate failed due to [memorymanager] failed to get the default NUMA \
                affinity, no NUMA nodes with enough memory is available, which is unexpected";
    check(2, &["c1", "c12"], none, "0=8 (1 of 0) 1=9 (0 of 1)");
    check(2, &["c19"], none, "0=9 (0 of 0) 1=9 (0 of 1)");
}

#[test]
fn init_container_memory_is_reused_but_not_that_of_sidecars() {
    check(
        2,
        &["i4 c4"],
        "memory: 0! 1! 0,1",
        "0=5 (2 of 0) 1=9 (0 of 1)",
    );
    check(
        2,
        &["i6 c2 c3"],
        "memory: 0! 1! 0,1",
        "0=3 (3 of 0) 1=9 (0 of 1)",
    );
    check(
        2,
        &["s4 c4"],
        "memory: 0! 1! 0,1",
        "0=1 (2 of 0) 1=9 (0 of 1)",
    );

    let mut manager = manager(2);
    let pod = pod("p", "i6 i2 s1 c2");
    allocate(&mut manager, &pod, NO_HINT).unwrap();
    let sizes = |manager: &MemoryManager| {
        let size = |name: &&str| {
            manager
                .blocks("p", name)
                .iter()
                .map(|it| it.size / GIB)
                .sum()
        };
        ["i0", "i1", "s2", "c3"]
            .iter()
            .map(size)
            .collect::<Vec<u64>>()
    };
    // the blocks add up to the largest need, as in the state file of upstream
    assert_eq!(sizes(&manager), [1, 2, 1, 2]);
    assert_eq!(free_line(&manager.state), "0=3 (4 of 0) 1=9 (0 of 1)");
    manager.container_started(&pod, "i1");
    assert_eq!(sizes(&manager), [0, 2, 1, 2]);
    manager.container_started(&pod, "c3");
    assert_eq!(sizes(&manager), [0, 0, 1, 2]);
    assert_eq!(manager.memory_nodes("p", "i1"), None);
    assert_eq!(
        manager.memory_nodes("p", "c3"),
        Some(NumaSet::from_iter([0]))
    );
    assert!(manager.release("p"));
    assert!(!manager.release("p"));
    assert_eq!(manager, self::manager(2));
}

#[test]
fn placement_of_topology_manager_is_used_or_extended() {
    let check = |containers, hint, expected: &str| {
        let mut manager = manager(3);
        let line = match allocate(&mut manager, &pod("p", containers), hint) {
            Ok(()) => free_line(&manager.state),
            Err(error) => error.message,
        };
        assert!(line.contains(expected), "{containers} {hint:?}: {line}");
    };
    check("c4", hint(&[1], true), "0=9 (0 of 0) 1=5 (1 of 1)");
    check("c12", hint(&[1], false), "0=0 (1 of 0,1) 1=6 (1 of 0,1)");
    check(
        "c12",
        hint(&[2], true),
        "0=0 (1 of 0,2) 1=9 (0 of 1) 2=6 (1 of 0,2)",
    );
    check(
        "c28",
        hint(&[2], true),
        "failed to find NUMA nodes to extend the current topology hint",
    );

    let mut manager = manager(2);
    allocate(&mut manager, &pod("p", "c4"), NO_HINT).unwrap();
    let violation = allocate(&mut manager, &pod("q", "c4"), hint(&[0, 1], false)).unwrap_err();
    assert_eq!(violation.reason, "UnexpectedAdmissionError");
    assert_eq!(
        violation.message,
        "Allocate failed due to [memorymanager] preferred hint violates NUMA node allocation, \
         which is unexpected"
    );
    // a preferred hint is not replaced by one that is not
    allocate(&mut manager, &pod("q", "c6"), hint(&[1], true)).unwrap();
    let mut two = self::manager(2);
    allocate(&mut two, &pod("p", "c12"), NO_HINT).unwrap();
    let any = Hint {
        nodes: None,
        preferred: true,
    };
    let error = allocate(&mut two, &pod("q", "c2"), any).unwrap_err();
    assert!(
        error
            .message
            .contains("failed to find the default preferred hint")
    );
}

#[test]
fn huge_pages_are_placed_with_memory() {
    let mut manager = manager(3);
    let mut pod = pod("p", "c1");
    let container = &mut pod.spec.as_mut().unwrap().containers[0];
    let limits = container
        .resources
        .as_mut()
        .unwrap()
        .limits
        .as_mut()
        .unwrap();
    limits.insert(
        "hugepages-2Mi".to_owned(),
        serde_json::from_str("\"512Mi\"").unwrap(),
    );
    let container = pod.spec.as_ref().unwrap().containers[0].clone();
    let expected = "hugepages-2Mi: 1! 0,1 2! 0,2 1,2 0,1,2; memory: 1! 0,1 2! 0,2 1,2 0,1,2";
    assert_eq!(hints_line(&manager.hints(&pod, &container)), expected);
    manager
        .allocate(&pod, &container, hint(&[2], true))
        .unwrap();
    let blocks = manager.blocks("p", "c0").iter();
    let blocks: Vec<String> = blocks
        .map(|it| format!("{} {} {}", it.nodes, it.resource, it.size >> 20))
        .collect();
    assert_eq!(blocks, ["2 hugepages-2Mi 512", "2 memory 1024"]);
    // a container with an assignment keeps it
    let kept = "hugepages-2Mi: 2!; memory: 2!";
    assert_eq!(hints_line(&manager.hints(&pod, &container)), kept);
    assert_eq!(hints_line(&manager.pod_hints(&pod)), kept);
    manager
        .allocate(&pod, &container, hint(&[1], true))
        .unwrap();
    assert_eq!(
        manager.memory_nodes("p", "c0"),
        Some(NumaSet::from_iter([2]))
    );
    assert_eq!(manager.pods().collect::<Vec<_>>(), ["p"]);
}

#[test]
fn allocatable_memory_is_without_reserved_memory_and_huge_pages() {
    let line = |manager: &MemoryManager| {
        let blocks = manager.allocatable();
        let blocks = blocks.iter();
        let blocks: Vec<String> = blocks
            .map(|it| format!("{}:{}={}", it.nodes, it.resource, it.size / GIB))
            .collect();
        blocks.join(" ")
    };
    assert_eq!(line(&manager(2)), "0:memory=9 1:hugepages-2Mi=1 1:memory=9");
    let none = MemoryManager::new(MemoryConfig::default(), &machine(2));
    assert_eq!(line(&none), "");
}

#[test]
fn pod_hints_cover_sidecars_and_peak_of_init_containers() {
    for (containers, expected) in [
        ("c4 c5", "memory: 0! 1! 0,1"),
        ("c4 c6", "memory: 0,1!"),
        ("s4 c6", "memory: 0,1!"),
        ("i10 c1", "memory: 0,1!"),
        ("s4 i6 c1", "memory: 0,1!"),
        ("i6 s3 c1", "memory: 0! 1! 0,1"),
    ] {
        let line = hints_line(&manager(2).pod_hints(&pod("p", containers)));
        assert_eq!(line, expected, "{containers}");
    }
}

#[test]
fn other_pods_have_no_hints_and_no_assignment() {
    let mut burstable = pod("p", "c4 c4");
    burstable.spec.as_mut().unwrap().containers[1].resources = None;
    let amounts = serde_json::json!({"limits": {"cpu": "2", "memory": "6Gi"}});
    let pod_level = pod_with("p", "c4 c", amounts);
    for pod in [burstable, pod_level, pod("p", "c")] {
        let mut manager = manager(2);
        allocate(&mut manager, &pod, NO_HINT).unwrap();
        manager.allocate_pod(&pod, NO_HINT).unwrap();
        assert!(manager.pod_hints(&pod).is_empty());
        assert_eq!(manager, self::manager(2));
    }
    let mut none = MemoryManager::new(MemoryConfig::default(), &machine(2));
    let pod = pod("p", "c4");
    allocate(&mut none, &pod, NO_HINT).unwrap();
    assert_eq!(none.pods().count(), 0);
    assert!(none.pod_hints(&pod).is_empty());
}

#[test]
fn pod_level_memory_is_divided_with_the_gate() {
    let mut config = config(&machine(2));
    config.pod_level = true;
    let fresh = MemoryManager::new(config, &machine(2));
    let check = |containers: &str, expected: &str| {
        let amounts = serde_json::json!({"limits": {"cpu": "4", "memory": "8Gi"}});
        let pod = pod_with("p", containers, amounts);
        let mut manager = fresh.clone();
        let hints = hints_line(&manager.pod_hints(&pod));
        let line = match manager.allocate_pod(&pod, hint(&[1], true)) {
            Err(error) => format!("{}: {}", error.reason, error.message),
            Ok(()) => {
                let names = manager.state.entries["p"].iter();
                let sizes = names.map(|(name, blocks)| {
                    let sum: u64 = blocks.iter().map(|block| block.size / GIB).sum();
                    format!("{name}={sum}")
                });
                let sizes: Vec<String> = sizes.collect();
                format!("{}; {}", sizes.join(" "), free_line(&manager.state))
            }
        };
        assert_eq!(format!("{hints} -> {line}"), expected, "{containers}");
        manager.release("p");
        assert_eq!(manager, fresh);
    };
    let free = "0=9 (0 of 0) 1=1 (1 of 1)";
    check(
        "c3 c c",
        &format!("memory: 0! 1! 0,1 -> c0=3 c1=5 c2=5; {free}"),
    );
    check(
        "i s2 i c3 c",
        &format!("memory: 0! 1! 0,1 -> c3=3 c4=3 i0=8 i2=6 s1=2; {free}"),
    );
    check(
        "c5 c3 c",
        "memory:  -> EmptyPodSharedPoolError: pod rejected, sum of exclusive container memory \
         requests equals pod budget, leaving no memory for shared containers",
    );
    check(
        "s8 i c",
        "memory:  -> EmptyPodSharedPoolError: pod rejected, pod has shared init containers but no \
         memory available for them",
    );
}

#[test]
fn reserved_memory_must_add_up() {
    let amounts = |text: &str| -> BTreeMap<String, Quantity> {
        let pairs = text
            .split_whitespace()
            .map(|it| it.split_once('=').unwrap());
        pairs
            .map(|(name, amount)| (name.to_owned(), amount.parse().unwrap()))
            .collect()
    };
    let check = |entries: &[(i32, &str)], node_reserved: &str, expected: &str| {
        let entries = entries.iter().map(|(node, text)| (*node, amounts(text)));
        let entries: Vec<_> = entries.collect();
        let result = reserved_memory(&entries, &amounts(node_reserved), &machine(2));
        let line = result
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(line.starts_with(expected), "{line}, expected {expected}");
        assert_eq!(line.is_empty(), expected.is_empty(), "{line}");
    };
    check(
        &[(0, "memory=1Gi"), (1, "memory=100Mi")],
        "memory=1124Mi cpu=1",
        "",
    );
    check(
        &[(0, "memory=1Gi hugepages-2Mi=4Mi")],
        "memory=1Gi hugepages-2Mi=4Mi",
        "",
    );
    check(
        &[(0, "memory=1Gi"), (1, "memory=1Gi")],
        "memory=1124Mi",
        "reservedMemory: the total amount \"2Gi\" of type \"memory\" is not equal to the value \
         \"1124Mi\" determined by Node Allocatable feature; change reservedMemory",
    );
    check(
        &[(0, "memory=1Gi hugepages-2Mi=4Mi")],
        "memory=1Gi",
        "reservedMemory: the total amount \"4Mi\" of type \"hugepages-2Mi\" is not equal to the \
         value \"0\" determined",
    );
    check(
        &[],
        "memory=100Mi",
        "reservedMemory: the total amount \"0\" of type \"memory\" is not equal to the value \
         \"100Mi\"",
    );
    check(
        &[],
        "",
        "reservedMemory: you should specify the system reserved memory",
    );
    for node in [2, -1] {
        let text = format!(
            "reservedMemory: the reserved memory configuration references a NUMA node {node} that \
             does not exist on this machine; its NUMA nodes are 0,1"
        );
        check(&[(node, "memory=1Gi")], "memory=1Gi", &text);
    }
}

proptest! {
    #[test]
    fn release_of_all_pods_restores_the_machine(
        pods in prop::collection::vec((0_usize..8, 1_u64..24), 1..12),
        starts in any::<bool>(),
    ) {
        let shapes = ["c", "i c", "s c", "i i c c"];
        let mut manager = manager(4);
        let mut uids = Vec::new();
        for (index, (shape, size)) in pods.into_iter().enumerate() {
            let shape = shapes[shape % 4].split(' ');
            let containers: Vec<String> = shape.map(|kind| format!("{kind}{size}")).collect();
            let pod = pod(&format!("p{index}"), &containers.join(" "));
            // a failed allocation is released too
            let allocated = allocate(&mut manager, &pod, NO_HINT).is_ok();
            let uid = format!("p{index}");
            if !allocated {
                manager.release(&uid);
            } else if starts {
                let last = pod.spec.as_ref().unwrap().containers[0].name.clone();
                manager.container_started(&pod, &last);
            }
            uids.push(uid);
            for state in manager.state.machine.values() {
                for table in state.memory_map.values() {
                    prop_assert_eq!(table.free + table.reserved, table.allocatable);
                }
            }
        }
        for uid in &uids {
            manager.release(uid);
        }
        prop_assert_eq!(manager, self::manager(4));
    }
}
