//! Values by class and limits, and the files they are written into.

use windlass_pod_inputs::node_facts::MemoryQos;
use windlass_types::Pod;

use super::*;

/// A pod of these containers, each `requests; limits` in `cpu memory`, `-` for none, and its
/// overhead in CPU.
fn pod(containers: &[&str], overhead: &str) -> Pod {
    let amounts = |text: &str| {
        let mut words = text.split_whitespace();
        let mut map = serde_json::Map::new();
        for name in ["cpu", "memory"] {
            match words.next() {
                None | Some("-") => {}
                Some(amount) => drop(map.insert(name.into(), amount.into())),
            }
        }
        map
    };
    let containers: Vec<_> = containers
        .iter()
        .map(|text| {
            let (requests, limits) = text.split_once(';').expect("two lists");
            serde_json::json!({
                "name": "c",
                "resources": {"requests": amounts(requests), "limits": amounts(limits)},
            })
        })
        .collect();
    let pod = serde_json::json!({
        "spec": {"containers": containers, "overhead": amounts(overhead)},
    });
    serde_json::from_value(pod).expect("a pod")
}

#[test]
fn pod_cgroup_follows_qos_class_and_container_limits() {
    fn check(containers: &[&str], overhead: &str, expected: &str) {
        let pod = pod(containers, overhead);
        let values = pod_cgroup(&pod, &NodeFacts::default(), None);
        assert_eq!(values.to_string(), expected, "{containers:?}");
    }
    check(&[";"], "", "shares=2");
    check(
        &["1 1Mi; 1 1Mi"],
        "",
        "shares=1024 quota=100000/100000 memory=1048576",
    );
    check(
        &["500m 1Mi; 500m 1Mi", "500m 1Mi; 500m 1Mi"],
        "",
        "shares=1024 quota=100000/100000 memory=2097152",
    );
    // requests alone limit nothing
    check(&["100m 1Mi;"], "", "shares=102");
    // one container without a limit frees the pod of that one
    check(
        &["100m; 200m 1Mi", "100m; - 1Mi"],
        "",
        "shares=204 memory=2097152",
    );
    check(
        &["100m; 200m", "100m; 300m"],
        "",
        "shares=204 quota=50000/100000",
    );
    check(
        &["100m; 200m 1Mi"],
        "100m 1Mi",
        "shares=204 quota=30000/100000 memory=2097152",
    );
    // overhead alone does not set a limit, and a BestEffort pod stays one
    check(&["100m;"], "100m 1Mi", "shares=204");
    check(&[";"], "100m 1Mi", "shares=2");
    // the kernel takes no quota below 1 ms
    check(&["1m; 1m"], "", "shares=2 quota=1000/100000");
}

#[test]
fn pod_cgroup_follows_pod_limits_and_node_settings() {
    let mut whole = pod(&["100m;", ";"], "");
    let limits = serde_json::json!({"limits": {"cpu": "1", "memory": "1Mi"}});
    whole.spec.as_mut().expect("spec").resources = serde_json::from_value(limits).ok();
    let values = pod_cgroup(&whole, &NodeFacts::default(), Some(64));
    assert_eq!(
        values.to_string(),
        "shares=1024 quota=100000/100000 memory=1048576 pids=64"
    );
    let unlimited = NodeFacts {
        cpu_cfs_quota: false,
        ..NodeFacts::default()
    };
    let values = pod_cgroup(&pod(&["1 1Mi; 1 1Mi"], ""), &unlimited, None);
    assert_eq!(
        values.to_string(),
        "shares=1024 quota=-1/100000 memory=1048576"
    );
}

#[test]
fn memory_qos_protects_request_of_pod() {
    fn check(containers: &[&str], none: &str, tiered: &str) {
        let pod = pod(containers, "- 4096");
        for (protects_requests, expected) in [(false, none), (true, tiered)] {
            let mut node = NodeFacts::default();
            node.memory.qos = Some(MemoryQos {
                protects_requests,
                throttling_factor: 0.9,
                allocatable: 0,
                page_size: 4096,
            });
            let values = pod_cgroup(&pod, &node, None).to_string();
            assert!(values.ends_with(expected), "{containers:?} {values}");
        }
    }
    check(&["1 8Ki; 1 8Ki"], " min=0 low=0", " min=12288 low=0");
    check(&["- 8Ki;", "- 4Ki;"], " min=0 low=0", " min=0 low=16384");
}

#[test]
fn huge_pages_of_pod_are_limited_by_size() {
    let mut node = NodeFacts::default();
    node.memory.huge_page_sizes = vec![2 << 20, 1 << 30];
    let check = |resources: serde_json::Value, expected: &str| {
        let pod = serde_json::json!({"spec": {"containers": [
            {"name": "a", "resources": {"limits": {"hugepages-2Mi": "4Mi"}}},
            {"name": "b", "resources": {"limits": {"hugepages-2Mi": "2Mi"}}},
        ], "resources": resources}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let values = pod_cgroup(&pod, &node, None);
        assert!(values.to_string().ends_with(expected), "{values}");
    };
    check(serde_json::json!({}), " 2MB=6291456 1GB=0");
    let limits = serde_json::json!({"limits": {"hugepages-2Mi": "8Mi", "hugepages-1Gi": "1Gi"}});
    check(limits, " 2MB=8388608 1GB=1073741824");
}

#[test]
fn burstable_class_gets_sum_of_its_running_pods() {
    let mut ended = pod(&["3;"], "");
    let status = serde_json::json!({"phase": "Succeeded"});
    ended.status = serde_json::from_value(status).expect("a status");
    let pods = [
        ended,
        pod(&["100m;"], ""),
        pod(&["400m; 1"], "100m"),
        // Guaranteed and BestEffort pods do not count
        pod(&["1 1Mi; 1 1Mi"], ""),
        pod(&[";"], ""),
    ];
    assert_eq!(burstable_shares(pods.iter()), 614);
    assert_eq!(burstable_shares([].iter()), 2);
    assert_eq!(CgroupValues::default().to_string(), "nothing");
}

#[test]
fn all_pods_cgroup_has_unreserved_capacity() {
    fn check(pid_max: i64, reserved: &[&str], expected: &str) {
        let capacity = serde_json::json!({"cpu": "2", "memory": "2Gi"});
        let capacity = serde_json::from_value(capacity).expect("amounts");
        let lists = reserved.iter().map(|text| {
            let pairs = text
                .split_whitespace()
                .filter_map(|pair| pair.split_once('='));
            pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
        });
        let lists: Vec<BTreeMap<String, String>> = lists.collect();
        let lists: Vec<_> = lists.iter().collect();
        let limits = NodeLimits::new(&capacity, pid_max, &lists);
        assert_eq!(limits.values().to_string(), expected, "{reserved:?}");
    }
    check(0, &[], "shares=2048 memory=2147483648");
    check(
        1000,
        &["cpu=250m memory=512Mi pid=100", "cpu=250m memory=512Mi"],
        "shares=1536 memory=1073741824 pids=900",
    );
    // what cannot be limited to nothing is not limited
    check(0, &["cpu=9 memory=9Gi pid=9"], "shares=2");
}

#[test]
fn cgroup_v1_and_v2_have_their_files() {
    fn check(values: CgroupValues, v2: bool, expected: &[&str]) {
        let files: Vec<_> = values.files(v2).iter().map(ToString::to_string).collect();
        assert_eq!(files, expected);
    }
    let values = CgroupValues {
        cpu_shares: Some(1024),
        cpu_quota: Some((50_000, 100_000)),
        memory_limit: Some(4096),
        pids_limit: Some(9),
        memory_min: Some(1),
        memory_low: Some(0),
        huge_pages: [(2 << 20, 4 << 20)].into_iter().collect(),
    };
    check(
        values,
        false,
        &[
            "cpu.shares=1024",
            "cpu.cfs_period_us=100000",
            "cpu.cfs_quota_us=50000",
            "memory.limit_in_bytes=4096",
            "pids.max=9",
            "hugetlb.2MB.limit_in_bytes=4194304",
            "hugetlb.2MB.rsvd.limit_in_bytes=4194304",
        ],
    );
    check(
        values,
        true,
        &[
            "cpu.weight=39",
            "cpu.max=50000 100000",
            "memory.max=4096",
            "memory.min=1",
            "memory.low=0",
            "pids.max=9",
            "hugetlb.2MB.max=4194304",
            "hugetlb.2MB.rsvd.max=4194304",
        ],
    );
    let unlimited = CgroupValues {
        cpu_shares: Some(2),
        cpu_quota: Some((-1, 100_000)),
        ..CgroupValues::default()
    };
    check(unlimited, true, &["cpu.weight=1", "cpu.max=max 100000"]);
    check(CgroupValues::default(), true, &[]);
    assert_eq!(cpu_weight(262_144), 10_000);
}

#[test]
fn slice_properties_have_systemd_resolution() {
    fn check(values: CgroupValues, v1: &str, v2: &str) {
        for (unified, expected) in [(false, v1), (true, v2)] {
            let properties = values.slice_properties(unified);
            let words: Vec<String> = properties.iter().map(|(n, v)| format!("{n}={v}")).collect();
            assert_eq!(words.join(" "), expected, "{values}");
        }
    }
    check(CgroupValues::default(), "", "");
    let values = CgroupValues {
        cpu_shares: Some(1024),
        cpu_quota: Some((50_000, 100_000)),
        memory_limit: Some(1 << 20),
        pids_limit: Some(64),
        memory_min: Some(2),
        memory_low: Some(0),
        ..CgroupValues::default()
    };
    check(
        values,
        "CPUShares=1024 CPUQuotaPerSecUSec=500000 MemoryLimit=1048576 TasksMax=64",
        "CPUWeight=39 CPUQuotaPerSecUSec=500000 MemoryMax=1048576 MemoryMin=2 MemoryLow=0 \
         TasksMax=64",
    );
    let quota = |quota, period| CgroupValues {
        cpu_quota: Some((quota, period)),
        ..CgroupValues::default()
    };
    // hundredths of a CPU, rounded up
    let one = "CPUQuotaPerSecUSec=20000";
    check(quota(1_001, 100_000), one, one);
    let slow = "CPUQuotaPerSecUSec=500000 CPUQuotaPeriodUSec=20000";
    check(quota(10_000, 20_000), slow, slow);
    let none = "CPUQuotaPerSecUSec=18446744073709551615";
    check(quota(-1, 100_000), none, none);
}
