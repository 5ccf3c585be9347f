//! Plans of resizes, as lines.

use serde_json::json;
use windlass_types::{ContainerSizes, ObservedPod, Pod};

use super::*;

const MIB: i64 = 1 << 20;

/// A pod with containers `name cpu-request/cpu-limit memory-request/memory-limit`, in thousandths
/// and MiB; `init:` and `sidecar:` prefix init containers.
fn pod(containers: &[&str]) -> Pod {
    let mut init = Vec::new();
    let mut apps = Vec::new();
    for text in containers {
        let words: Vec<&str> = text.split(' ').collect();
        let (cpu_request, cpu_limit) = words[1].split_once('/').expect("two amounts");
        let (memory_request, memory_limit) = words[2].split_once('/').expect("two amounts");
        let amounts = |cpu: &str, memory: &str| {
            let mut amounts = serde_json::Map::new();
            if !cpu.is_empty() {
                amounts.insert("cpu".into(), json!(format!("{cpu}m")));
            }
            if !memory.is_empty() {
                amounts.insert("memory".into(), json!(format!("{memory}Mi")));
            }
            amounts
        };
        let (kind, name) = words[0].split_once(':').unwrap_or(("app", words[0]));
        let container = json!({
            "name": name,
            "restartPolicy": (kind == "sidecar").then_some("Always"),
            "resources": {
                "requests": amounts(cpu_request, memory_request),
                "limits": amounts(cpu_limit, memory_limit),
            },
        });
        match kind {
            "app" => apps.push(container),
            _ => init.push(container),
        }
    }
    serde_json::from_value(json!({
        "metadata": {"name": "web", "uid": "u1"},
        "spec": {"containers": apps, "initContainers": init},
    }))
    .expect("a pod")
}

/// The pod with every container running as created from it.
fn running(pod: &Pod) -> ObservedPod {
    let all = pod.init_containers().iter().chain(pod.containers());
    ObservedPod {
        containers: all
            .map(|spec| ObservedContainer {
                id: ContainerId::from(format!("{}-id", spec.name)),
                name: spec.name.clone(),
                state: ContainerState::Running,
                resources: Some(container_resources(pod, spec, &NodeFacts::default())),
                created_sizes: Some(container_sizes(pod, spec)),
                ..ObservedContainer::default()
            })
            .collect(),
        ..ObservedPod::default()
    }
}

struct Case {
    exclusive_cpus: BTreeSet<String>,
    from: Pod,
    to: Pod,
    observed: ObservedPod,
    node: NodeFacts,
    accepted: AcceptedResources,
}

fn case(from: &[&str], to: &[&str]) -> Case {
    let from = pod(from);
    Case {
        observed: running(&from),
        from,
        to: pod(to),
        node: NodeFacts {
            cgroup_v2: false,
            ..NodeFacts::default()
        },
        accepted: AcceptedResources::new(),
        exclusive_cpus: BTreeSet::new(),
    }
}

impl Case {
    fn plan(&self) -> ResizePlan {
        let cgroup = |pod| crate::pod_cgroup::pod_cgroup(pod, &self.node, None);
        resize_plan(ResizeInput {
            pod: &self.to,
            observed: &self.observed,
            node: &self.node,
            accepted: &self.accepted,
            exclusive_cpus: &self.exclusive_cpus,
            cgroup: Some((cgroup(&self.from), cgroup(&self.to))),
        })
    }
}

fn check(from: &[&str], to: &[&str], expected: &str) {
    assert_eq!(case(from, to).plan().to_string(), expected);
}

#[test]
fn pod_cgroup_grows_first_and_shrinks_last() {
    let small = &["a 100/200 10/20"][..];
    let large = &["a 200/400 20/40"][..];
    check(small, small, "nothing");
    check(
        small,
        large,
        "raise(shares=204 quota=40000/100000 memory=41943040) \
         resize(a shares=204 quota=40000 memory=41943040)",
    );
    check(
        large,
        small,
        "resize(a shares=102 quota=20000 memory=20971520) \
         lower(shares=102 quota=20000/100000 memory=20971520)",
    );
    // each value on its own
    check(
        small,
        &["a 200/400 10/15"],
        "raise(shares=204 quota=40000/100000) resize(a shares=204 quota=40000 memory=15728640) \
         lower(memory=15728640)",
    );
}

#[test]
fn container_that_only_shrinks_changes_before_others() {
    check(
        &["a 100/100 10/10", "b 200/200 20/20"],
        &["a 200/200 20/20", "b 100/100 10/10"],
        "resize(b shares=102 quota=10000 memory=10485760) \
         resize(a shares=204 quota=20000 memory=20971520)",
    );
}

#[test]
fn sidecars_and_init_containers_are_resized() {
    let from = [
        "init:i 100/100 10/10",
        "sidecar:s 100/100 10/10",
        "a 100/100 10/10",
    ];
    let to = [
        "init:i 100/100 10/12",
        "sidecar:s 100/100 10/12",
        "a 100/100 10/10",
    ];
    let mut it = case(&from, &to);
    let names = |it: &Case| {
        let names: Vec<_> = it.plan().containers.into_iter().map(|c| c.name).collect();
        names.join(" ")
    };
    assert_eq!(names(&it), "i s");
    it.node.resize_init_containers = false;
    assert_eq!(names(&it), "s");
    it.observed.containers[1].state = ContainerState::Exited;
    assert_eq!(names(&it), "");
}

#[test]
fn memory_request_alone_changes_no_container() {
    check(&["a 100/100 10/40"], &["a 100/100 20/40"], "nothing");
}

#[test]
fn limit_is_added_and_never_removed() {
    check(
        &["a 100/ 10/"],
        &["a 100/200 10/20"],
        "resize(a shares=102 quota=20000 memory=20971520) \
         lower(quota=20000/100000 memory=20971520)",
    );
    check(&["a 100/200 10/20"], &["a 100/ 10/"], "nothing");
}

#[test]
fn accepted_but_rounded_value_is_not_set_again() {
    let mut it = case(&["a 100/100 10/10"], &["a 105/105 10/10"]);
    let sent = it.plan().containers.remove(0);
    it.accepted.insert(sent.id, sent.resources.clone());
    it.from = it.to.clone();
    it.observed.containers[0].resources = Some(LinuxResources {
        cpu_shares: sent.resources.cpu_shares - 3,
        ..sent.resources
    });
    assert_eq!(it.plan().to_string(), "nothing");
    it.to = pod(&["a 110/110 10/10"]);
    assert!(it.plan().to_string().contains("resize(a shares=112"));
}

#[test]
fn without_a_report_sizes_of_the_creation_count() {
    let mut it = case(&["a 100/100 10/10"], &["a 200/100 10/10"]);
    it.observed.containers[0].resources = None;
    assert!(it.plan().to_string().contains("resize(a shares=204"));
    it.to = it.from.clone();
    assert_eq!(it.plan().to_string(), "nothing");
    // a container of an older agent run on an old runtime: set once
    it.observed.containers[0].created_sizes = None;
    let plan = it.plan();
    assert_eq!(plan.containers.len(), 1);
    let sent = plan.containers[0].clone();
    it.accepted.insert(sent.id, sent.resources);
    assert_eq!(it.plan().to_string(), "nothing");
}

#[test]
fn pod_cgroup_read_back_from_the_kernel_is_equal() {
    let mut node = NodeFacts::default();
    let it = pod(&["a 123/457 10/11"]);
    for v2 in [false, true] {
        node.cgroup_v2 = v2;
        let protected = |pages: i64| v2.then_some(pages * PAGE);
        let wanted = CgroupValues {
            pids_limit: Some(100),
            memory_min: protected(3),
            memory_low: protected(2),
            ..crate::pod_cgroup::pod_cgroup(&it, &node, None)
        };
        let files = wanted.files(v2);
        let read = crate::pod_cgroup::read_values(v2, |_, name| {
            let file = files.iter().find(|file| file.name == name)?;
            Some(format!("{}\n", file.content))
        });
        let (raise, lower) = cgroup_steps(&read, &wanted, v2);
        assert_eq!((raise, lower), Default::default(), "{read} {wanted}");
        let resized = CgroupValues {
            memory_min: protected(4),
            memory_low: protected(1),
            ..wanted
        };
        let (raise, lower) = cgroup_steps(&read, &resized, v2);
        assert_eq!(raise.memory_min, protected(4));
        assert_eq!(lower.memory_low, protected(1));
    }
    let unset = crate::pod_cgroup::read_values(false, |_, name| {
        let content = match name {
            "cpu.cfs_quota_us" => "-1",
            "memory.limit_in_bytes" => "9223372036854771712",
            "pids.max" => "max",
            _ => "100000",
        };
        Some(content.to_owned())
    });
    assert_eq!(unset.to_string(), "shares=100000 quota=-1/100000");
}

#[test]
fn memory_limit_below_the_usage_is_an_error() {
    let plan = case(
        &["a 1/1 10/40", "b 1/1 10/40"],
        &["a 1/1 10/20", "b 1/1 10/40"],
    )
    .plan();
    assert!(plan.lowers_memory());
    let usage = |pod, a: Option<i64>| MemoryUsage {
        pod,
        containers: a.map(|a| ("a-id".into(), a)).into_iter().collect(),
    };
    let check = |usage: MemoryUsage| check_memory(&plan, &usage).err().unwrap_or_default();
    assert_eq!(check(usage(Some(59 * MIB), Some(19 * MIB))), "");
    assert_eq!(
        check(usage(Some(59 * MIB), Some(20 * MIB))),
        "cannot decrease memory limits: attempting to set container \"a\" memory limit (20971520) \
         below current usage (20971520)"
    );
    assert_eq!(
        check(usage(Some(60 * MIB), None)),
        "cannot decrease memory limits: [attempting to set pod memory limit (62914560) below \
         current usage (62914560), missing container \"a\" memory usage]"
    );
    let growth = case(&["a 1/1 10/40"], &["a 1/1 10/50"]).plan();
    assert!(!growth.lowers_memory());
}

#[test]
fn sizes_of_a_container_are_recorded() {
    let it = pod(&["a 100/200 10/20"]);
    let sizes = container_sizes(&it, &it.containers()[0]);
    let expected = ContainerSizes {
        cpu_request: 100,
        cpu_limit: 200,
        memory_request: 10 * MIB,
        memory_limit: 20 * MIB,
    };
    assert_eq!(sizes, expected);
}
