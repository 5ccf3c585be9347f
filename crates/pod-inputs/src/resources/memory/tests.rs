//! Tables of requests and limits, and their swap, protection and huge pages.

use serde_json::{Value, json};

use super::super::container_resources;
use super::*;
use crate::node_facts::MemorySettings;

const GIB: i64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// A pod with one container of these requests and limits.
fn pod(requests: &Value, limits: &Value, spec: Value) -> Pod {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": spec});
    let resources = json!({"requests": requests, "limits": limits});
    pod["spec"]["containers"] = json!([{"name": "c", "resources": resources}]);
    serde_json::from_value(pod).expect("pod")
}

/// A node with 8 GiB of memory and 2 GiB of swap.
fn node(limited_swap: bool) -> NodeFacts {
    NodeFacts {
        memory_capacity: 8 * GIB,
        single_process_oom_kill: true,
        memory: MemorySettings {
            swap_controller: true,
            limited_swap,
            swap_capacity: 2 * GIB,
            ..MemorySettings::default()
        },
        ..NodeFacts::default()
    }
}

/// Unified values, such as `swap.max=0 low=5`.
fn unified(pod: &Pod, node: &NodeFacts) -> String {
    let resources = container_resources(pod, &pod.containers()[0], node);
    let pairs = resources.unified.iter();
    let words = pairs.map(|(key, value)| format!("{}={value}", &key["memory.".len()..]));
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn limited_swap_is_share_of_burstable_request() {
    let check = |requests: Value, limits: Value, expected: &str| {
        let pod = pod(&requests, &limits, json!({}));
        assert_eq!(unified(&pod, &node(true)), expected, "{requests} {limits}");
        assert_eq!(unified(&pod, &node(false)), "swap.max=0");
    };
    let quarter = "swap.max=536870912";
    check(json!({"memory": "2Gi"}), json!({}), quarter);
    check(json!({"memory": "2Gi"}), json!({"memory": "3Gi"}), quarter);
    check(json!({"memory": "1"}), json!({}), "swap.max=0");
    for (requests, limits) in [
        (json!({}), json!({})),
        (json!({"cpu": "1"}), json!({})),
        (json!({"memory": "1Gi"}), json!({"memory": "1Gi"})),
        (json!({}), json!({"memory": "1Gi"})),
        (json!({}), json!({"cpu": "1", "memory": "1Gi"})),
        // more than the node has
        (json!({"memory": "9Gi"}), json!({})),
    ] {
        check(requests, limits, "swap.max=0");
    }
}

#[test]
fn critical_pods_and_cgroup_v1_have_no_swap() {
    let requests = json!({"memory": "2Gi"});
    let critical = pod(&requests, &json!({}), json!({"priority": 2_000_000_000}));
    assert_eq!(unified(&critical, &node(true)), "swap.max=0");

    let mut v1 = node(true);
    v1.cgroup_v2 = false;
    let limited = pod(&requests, &json!({"memory": "3Gi"}), json!({}));
    let resources = container_resources(&limited, &limited.containers()[0], &v1);
    assert_eq!(resources.memory_swap_limit, 3 * GIB);
    assert!(resources.unified.is_empty());

    let mut without = node(true);
    without.memory.swap_controller = false;
    assert_eq!(unified(&limited, &without), "");
    without.cgroup_v2 = false;
    let resources = container_resources(&limited, &limited.containers()[0], &without);
    assert_eq!(resources.memory_swap_limit, 0);
}

#[test]
fn memory_qos_protects_and_throttles() {
    let check = |requests: Value, limits: Value, none: &str, tiered: &str| {
        for (protects_requests, expected) in [(false, none), (true, tiered)] {
            let mut node = node(false);
            node.memory.swap_controller = false;
            node.memory.qos = Some(MemoryQos {
                protects_requests,
                throttling_factor: 0.9,
                allocatable: 4 * GIB,
                page_size: 4096,
            });
            let pod = pod(&requests, &limits, json!({}));
            assert_eq!(unified(&pod, &node), expected, "{requests} {limits}");
        }
    };
    check(json!({"cpu": "1"}), json!({}), "low=0 min=0", "low=0 min=0");
    check(
        json!({"memory": "256Mi"}),
        json!({"memory": "512Mi"}),
        "high=510025728 low=0 min=0",
        "high=510025728 low=268435456",
    );
    check(
        json!({"memory": "128Mi"}),
        json!({}),
        "high=3878891520 low=0 min=0",
        "high=3878891520 low=134217728",
    );
    check(
        json!({}),
        json!({"cpu": "1", "memory": "1Gi"}),
        "low=0 min=0",
        "min=1073741824",
    );
    // Burstable by its CPU
    check(
        json!({"memory": "1Gi"}),
        json!({"memory": "1Gi"}),
        "low=0 min=0",
        "low=1073741824",
    );
    // a page below the limit is not above the request
    check(
        json!({"memory": "4096"}),
        json!({"memory": "8191"}),
        "low=0 min=0",
        "low=4096",
    );
}

#[test]
fn each_huge_page_size_has_a_limit() {
    let check = |limits: Value, spec: Value, expected: [u64; 2]| {
        let mut node = node(false);
        node.memory.huge_page_sizes = vec![2 * MIB, 1024 * MIB];
        let pod = pod(&json!({}), &limits, spec);
        let resources = container_resources(&pod, &pod.containers()[0], &node);
        let expected = [("2MB", expected[0]), ("1GB", expected[1])];
        let expected = expected.map(|(size, limit)| (size.to_owned(), limit * MIB));
        assert_eq!(resources.huge_page_limits, expected.into(), "{limits}");
    };
    check(json!({}), json!({}), [0, 0]);
    check(json!({"hugepages-2Mi": "6Mi"}), json!({}), [6, 0]);
    let both = json!({"hugepages-2Mi": "6Mi", "hugepages-1Gi": "1Gi"});
    check(both.clone(), json!({}), [6, 1024]);
    // the limit of the pod, unless the container has one of this size
    let of_pod = json!({"resources": {"limits": both}});
    check(json!({"hugepages-2Mi": "2Mi"}), of_pod, [2, 1024]);
}

#[test]
fn page_sizes_have_names_of_kernel_and_api() {
    let check = |size: u64, unit: &str, resource: &str| {
        assert_eq!(huge_page_unit(size), unit);
        assert_eq!(huge_page_resource(size), format!("hugepages-{resource}"));
    };
    check(64 << 10, "64KB", "64Ki");
    check(2 << 20, "2MB", "2Mi");
    check(512 << 20, "512MB", "512Mi");
    check(1 << 30, "1GB", "1Gi");
    check(16 << 30, "16GB", "16Gi");
}
