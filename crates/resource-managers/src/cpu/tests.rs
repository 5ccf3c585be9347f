//! Lives of the CPU manager, as upstream's policy goes through them.

use std::sync::Arc;

use serde_json::json;
use windlass_topology::{CpuSet, Machine, NumaSet};
use windlass_types::{Pod, PodExt, PodUid};

use super::take::tests::machine;
use super::{CpuManager, CpuSettings, Isolation};
use crate::hints::{NotAdmitted, ProviderHints, ResourceHints};

mod properties;
mod settings;
mod state_file;

/// Settings with options, all feature gates, and a number of reserved CPUs.
fn static_policy(options: &str, reserved: i64) -> CpuSettings {
    let options = options.split(',').filter(|it| !it.is_empty());
    CpuSettings {
        is_static: true,
        options: options
            .map(|it| (it.to_owned(), "true".to_owned()))
            .collect(),
        alpha_options: true,
        beta_options: true,
        reserved_milli: reserved * 1000,
        ..CpuSettings::default()
    }
}

fn manager(machine: Machine, settings: &CpuSettings) -> CpuManager {
    CpuManager::new(settings, Arc::new(machine)).unwrap()
}

/// Builds a pod of containers that are a letter and a CPU quantity: init container, sidecar, app
/// container, or the pod's own resources (`p`). Quantity 0 sets no resources.
fn pod(uid: &str, containers: &str) -> Pod {
    let mut spec = json!({"initContainers": [], "containers": []});
    for (index, text) in containers.split(' ').enumerate() {
        let (letter, cpu) = text.split_at(1);
        let list = json!({"cpu": cpu, "memory": "1Gi"});
        let resources = match cpu {
            "0" => json!({}),
            _ => json!({"requests": list, "limits": list}),
        };
        let mut container = json!({"name": format!("{letter}{index}"), "resources": resources});
        let kind = match letter {
            "p" => {
                spec["resources"] = resources;
                continue;
            }
            "c" => "containers",
            _ => "initContainers",
        };
        if letter == "s" {
            container["restartPolicy"] = json!("Always");
        }
        spec[kind].as_array_mut().unwrap().push(container);
    }
    serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": spec})).unwrap()
}

fn line_of_hints(hints: &ProviderHints) -> String {
    let Some(ResourceHints::Of(hints)) = hints.get("cpu") else {
        return "-".to_owned();
    };
    let hints = hints.iter().map(|hint| {
        let star = if hint.preferred { "*" } else { "" };
        format!("{}{star}", hint.nodes.unwrap_or_default())
    });
    format!("[{}]", hints.collect::<Vec<_>>().join(" "))
}

/// Allocates a pod: the NUMA nodes of the hint or `-`, and `P` to allocate it as a whole. Returns its
/// hints, those of the containers, and their CPUs.
fn allocate(manager: &mut CpuManager, pod: &Pod, nodes: &str) -> String {
    let mut out = vec![line_of_hints(&manager.pod_hints(pod))];
    let numbers = nodes.trim_start_matches('P');
    let affinity = (numbers != "-").then(|| {
        numbers
            .split(',')
            .map(|it| it.parse::<u32>().unwrap())
            .collect::<NumaSet>()
    });
    let containers: Vec<_> = pod
        .init_containers()
        .iter()
        .chain(pod.containers())
        .collect();
    let mut result: Result<bool, NotAdmitted> = Ok(false);
    if nodes.starts_with('P') {
        result = manager.allocate_pod(pod, affinity);
    } else {
        for container in &containers {
            let hints = line_of_hints(&manager.container_hints(pod, container));
            out.push(format!("{}{hints}", container.name));
            result = manager.allocate(pod, container, affinity);
            if result.is_err() {
                break;
            }
        }
    }
    match result {
        Err(error) => {
            manager.release(&pod.uid());
            let text = error.message.trim_start_matches("Allocate failed due to ");
            out.push(text.trim_end_matches(", which is unexpected").to_owned());
        }
        Ok(_) => {
            for container in containers {
                if let Some(cpus) = manager.assigned_to(&pod.uid(), &container.name) {
                    out.push(format!("{}={cpus}", container.name));
                }
            }
        }
    }
    out.join(" ")
}

/// Replays rows: `M` is a new machine and configuration, `A` allocates a pod, `R` releases one. The
/// last field is the shared pool.
fn replay(rows: &str) {
    let mut wrong = Vec::new();
    let mut manager: Option<CpuManager> = None;
    for row in rows.lines().filter(|row| !row.starts_with('#')) {
        let fields: Vec<&str> = row.split('|').collect();
        let out = match (fields[..].as_ref(), manager.as_mut()) {
            (["M", shape, options, reserved, cpus, pod_level, _], _) => {
                let settings = CpuSettings {
                    reserved: cpus.parse().unwrap(),
                    pod_level: *pod_level == "true",
                    ..static_policy(options, reserved.parse().unwrap())
                };
                manager = Some(self::manager(machine(shape), &settings));
                String::new()
            }
            (["A", uid, containers, nodes, ..], Some(manager)) => {
                allocate(manager, &pod(uid, containers), nodes)
            }
            (["R", uid, _], Some(manager)) => {
                manager.release(&PodUid::from(*uid));
                String::new()
            }
            _ => panic!("{row}"),
        };
        let shared = manager.as_ref().unwrap().shared_pool();
        let expected = match fields[0] {
            "A" => fields[4..].join("|"),
            _ => format!("|{}", fields.last().unwrap()),
        };
        if expected != format!("{out}|{shared}") {
            wrong.push(format!("{row}\n  got {out}|{shared}"));
        }
    }
    assert!(wrong.is_empty(), "{}: {}", wrong.len(), wrong.join("\n"));
}

#[test]
fn hints_and_assignments_are_those_of_upstream() {
    replay(include_str!("tests/policy.txt"));
}

#[test]
fn policy_none_assigns_nothing() {
    let mut manager = manager(machine("2 2 2 8 1 0"), &CpuSettings::default());
    let pod = pod("u", "i2 c2");
    assert_eq!(allocate(&mut manager, &pod, "0"), "- i0- c1-");
    assert_eq!(manager.cpus_of(&pod.uid(), "c1"), None);
    assert!(manager.allocatable().is_empty());
    assert!(!manager.release(&pod.uid()));
}

#[test]
fn burstable_pods_and_parts_of_cpus_use_the_shared_pool() {
    let mut manager = manager(machine("1 1 1 8 1 0"), &static_policy("", 1));
    let mut check = |containers: &str, expected: &str| {
        let pod = pod("u", containers);
        let out = allocate(&mut manager, &pod, "-");
        let cpus = manager.cpus_of(&pod.uid(), "c0").unwrap();
        assert_eq!(format!("{out} | {cpus}"), expected, "{containers}");
        manager.release(&pod.uid());
    };
    check("c2 c0", "- c0- c1- | 0-7");
    check("c1500m", "- c0- | 0-7");
    check("c2 c1500m", "[0*] c0[0*] c1- c0=1-2 | 1-2");
    // a pod with its own resources, without the gate
    check("c2 p4", "- c0- | 0-7");
    check(
        "c8",
        "[] c0[] not enough cpus available to satisfy request: requested=8, available=7 | 0-7",
    );
}

#[test]
fn empty_shared_pool_leaves_cpus_to_the_kernel() {
    let settings = static_policy("strict-cpu-reservation", 1);
    let mut manager = manager(machine("1 1 1 4 1 0"), &settings);
    let cpus = |manager: &CpuManager| manager.cpus_of(&"other".into(), "c").map(CpuSet::to_string);
    assert_eq!(cpus(&manager).as_deref(), Some("1-3"));
    assert_eq!(
        allocate(&mut manager, &pod("u", "c3"), "-"),
        "[0*] c0[0*] c0=1-3"
    );
    assert_eq!(cpus(&manager), None);
}

#[test]
fn allocated_pods_keep_their_cpus_even_without_free_cores() {
    let mut manager = manager(machine("1 1 1 4 2 0"), &static_policy("full-pcpus-only", 2));
    let pod = pod("u", "c6");
    let first = allocate(&mut manager, &pod, "-");
    assert_eq!(first, "[0*] c0[0*] c0=1-3,5-7");
    assert_eq!(allocate(&mut manager, &pod, "-"), first);
    assert!(!manager.allocate(&pod, &pod.containers()[0], None).unwrap());
    let counters = manager.counters();
    assert_eq!(
        (
            counters.requests,
            counters.containers,
            counters.aligned_cores
        ),
        (3, 1, 3)
    );
}

#[test]
fn reasons_are_those_of_upstream() {
    let settings = CpuSettings {
        pod_level: true,
        ..static_policy("full-pcpus-only", 2)
    };
    let mut manager = manager(machine("1 1 1 4 2 0"), &settings);
    let mut check = |containers: &str, as_pod: bool, expected: &str| {
        let pod = pod("u", containers);
        let result = match as_pod {
            true => manager.allocate_pod(&pod, None),
            false => manager.allocate(&pod, &pod.containers()[0], None),
        };
        let error = result.unwrap_err();
        assert_eq!(format!("{}: {}", error.reason, error.message), expected);
    };
    check(
        "c3",
        false,
        "SMTAlignmentError: SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2",
    );
    check(
        "c8",
        false,
        "SMTAlignmentError: SMT Alignment Error: not enough free physical CPUs: available physical \
         CPUs = 6, requested CPUs = 8, CPUs per core = 2",
    );
    check(
        "p2 c2 c0",
        true,
        "EmptyPodSharedPoolError: pod rejected, sum of exclusive container cpu requests equals pod \
         budget, leaving no cpus for shared containers",
    );
    check(
        "p2 s2 i0 c0",
        true,
        "EmptyPodSharedPoolError: pod rejected, pod has shared init containers but no cpus \
         available for them",
    );
    let mut few = self::manager(machine("1 1 1 4 1 0"), &static_policy("", 1));
    let pod = pod("u", "c4");
    assert_eq!(
        few.allocate(&pod, &pod.containers()[0], None)
            .unwrap_err()
            .message,
        "Allocate failed due to not enough cpus available to satisfy request: requested=4, \
         available=3, which is unexpected"
    );
}

#[test]
fn isolation_tells_who_shares_the_cpus() {
    let settings = CpuSettings {
        pod_level: true,
        ..static_policy("", 1)
    };
    let mut manager = manager(machine("1 1 1 8 1 0"), &settings);
    let pod = pod("u", "p4 c2 c0");
    let isolation = |manager: &CpuManager| {
        let all = pod.containers().iter();
        all.map(|it| manager.isolation(&pod, it))
            .collect::<Vec<_>>()
    };
    assert_eq!(isolation(&manager), [Isolation::Host, Isolation::Host]);
    assert!(manager.allocate_pod(&pod, None).unwrap());
    assert_eq!(isolation(&manager), [Isolation::Container, Isolation::Pod]);
    assert!(!manager.allocate_pod(&pod, None).unwrap());
    assert_eq!(line_of_hints(&manager.pod_hints(&pod)), "[0*]");
    assert_eq!(manager.figures().exclusive, 4);
    assert!(manager.release(&pod.uid()));
    assert_eq!(manager.figures().shared_milli, 7000);
}

#[test]
fn figures_count_exclusive_cpus_by_node() {
    let mut manager = manager(machine("2 2 2 8 2 0"), &static_policy("", 1));
    allocate(&mut manager, &pod("u", "c2"), "1");
    allocate(&mut manager, &pod("v", "c3"), "0");
    let figures = manager.figures();
    assert_eq!((figures.shared_milli, figures.exclusive), (10_000, 5));
    assert_eq!(
        figures.exclusive_by_node.into_iter().collect::<Vec<_>>(),
        [(0, 3), (1, 2)]
    );
    assert_eq!(manager.allocatable().to_string(), "1-15");
    let mut pods = manager.pods().map(PodUid::as_str);
    assert_eq!(
        (pods.next(), pods.next(), pods.next()),
        (Some("u"), Some("v"), None)
    );
}
