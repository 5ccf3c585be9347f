//! Tables of requests and limits, and their kernel settings.

use serde_json::{Value, json};

use super::*;

const GIB: i64 = 1 << 30;

fn pod(spec: Value) -> Pod {
    let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec});
    serde_json::from_value(pod).expect("pod")
}

/// A pod with one container of these requests and limits.
fn one(requests: Value, limits: Value) -> Pod {
    pod(json!({"containers": [
        {"name": "c", "resources": {"requests": requests, "limits": limits}},
    ]}))
}

fn node() -> NodeFacts {
    NodeFacts {
        memory_capacity: 8 * GIB,
        ..NodeFacts::default()
    }
}

fn line(r: &LinuxResources) -> String {
    format!(
        "shares={} quota={}/{} memory={} oom={}{}",
        r.cpu_shares,
        r.cpu_quota,
        r.cpu_period,
        r.memory_limit,
        r.oom_score_adj,
        r.unified
            .iter()
            .map(|(k, v)| format!(" {k}={v}"))
            .collect::<String>(),
    )
}

fn check(requests: Value, limits: Value, expected: &str) {
    let pod = one(requests, limits);
    let node = NodeFacts {
        cgroup_v2: false,
        ..node()
    };
    let resources = container_resources(&pod, &pod.containers()[0], &node);
    assert_eq!(
        format!("{} {}", qos_class(&pod), line(&resources)),
        expected
    );
}

#[test]
fn shares_and_quota_are_in_kernel_limits() {
    let shares = [0, 1, 2, 100, 500, 1000, 2500, 300_000].map(cpu_shares);
    assert_eq!(shares, [2, 2, 2, 102, 512, 1024, 2560, 262_144]);
    let quotas = [0, 1, 10, 15, 500, 1000, 2500].map(|m| cpu_quota(m, 100_000));
    assert_eq!(quotas, [0, 1000, 1000, 1500, 50_000, 100_000, 250_000]);
    assert_eq!(cpu_quota(500, 10_000), 5000);
}

#[test]
fn container_resources_follow_requests_limits_and_qos() {
    check(
        json!({}),
        json!({}),
        "BestEffort shares=2 quota=0/100000 memory=0 oom=1000",
    );
    check(
        json!({"cpu": "500m", "memory": "1Gi"}),
        json!({"cpu": "500m", "memory": "1Gi"}),
        "Guaranteed shares=512 quota=50000/100000 memory=1073741824 oom=-997",
    );
    check(
        json!({}),
        json!({"cpu": "500m", "memory": "1Gi"}),
        "Guaranteed shares=512 quota=50000/100000 memory=1073741824 oom=-997",
    );
    check(
        json!({"cpu": "100m", "memory": "1Gi"}),
        json!({"cpu": "1", "memory": "2Gi"}),
        "Burstable shares=102 quota=100000/100000 memory=2147483648 oom=875",
    );
    check(
        json!({"memory": "1"}),
        json!({}),
        "Burstable shares=2 quota=0/100000 memory=0 oom=999",
    );
    check(
        json!({"memory": "8Gi"}),
        json!({}),
        "Burstable shares=2 quota=0/100000 memory=0 oom=3",
    );
    check(
        json!({"cpu": "0"}),
        json!({"ephemeral-storage": "1Gi"}),
        "BestEffort shares=2 quota=0/100000 memory=0 oom=1000",
    );
}

#[test]
fn quota_and_group_kill_can_be_disabled() {
    let pod = one(json!({}), json!({"cpu": "500m"}));
    let of = |node| line(&container_resources(&pod, &pod.containers()[0], &node));
    assert_eq!(
        of(node()),
        "shares=512 quota=50000/100000 memory=0 oom=999 memory.oom.group=1"
    );
    let node = NodeFacts {
        cpu_cfs_quota: false,
        single_process_oom_kill: true,
        ..node()
    };
    assert_eq!(of(node), "shares=512 quota=0/0 memory=0 oom=999");
}

#[test]
fn node_critical_pods_have_lowest_oom_score() {
    let critical = |source: &str, priority: i32| {
        let mut pod = pod(json!({
            "priorityClassName": "system-node-critical", "priority": priority,
            "containers": [{"name": "c"}],
        }));
        if !source.is_empty() {
            let pair = (names::ANN_CONFIG_SOURCE.to_owned(), source.to_owned());
            pod.metadata.annotations = Some([pair].into());
        }
        oom_score_adj(&pod, &pod.containers()[0], GIB)
    };
    assert_eq!(critical("file", 0), -997);
    assert_eq!(critical("", 2_000_001_000), -997);
    assert_eq!(critical("", 0), 1000);
}

#[test]
fn sidecar_score_is_at_most_smallest_app_container() {
    let pod = pod(json!({
        "initContainers": [{"name": "side", "restartPolicy": "Always"}],
        "containers": [
            {"name": "a", "resources": {"requests": {"memory": "4Gi"}}},
            {"name": "b", "resources": {"requests": {"memory": "2Gi"}}},
            {"name": "c", "restartPolicy": "Always",
             "resources": {"requests": {"memory": "3Gi"}}},
        ],
    }));
    assert_eq!(oom_score_adj(&pod, &pod.init_containers()[0], 8 * GIB), 750);
    assert_eq!(oom_score_adj(&pod, &pod.containers()[0], 8 * GIB), 500);
    assert_eq!(oom_score_adj(&pod, &pod.containers()[2], 8 * GIB), 625);
}

#[test]
fn spare_pod_level_memory_counts_for_each_container() {
    let pod = pod(json!({
        "resources": {"requests": {"memory": "5Gi"}},
        "initContainers": [
            {"name": "init", "resources": {"requests": {"memory": "512Mi"}}},
            {"name": "side", "restartPolicy": "Always"},
        ],
        "containers": [
            {"name": "a", "resources": {"requests": {"memory": "1Gi"}}},
            {"name": "b"},
        ],
    }));
    // of 5 GiB 1 GiB is requested: each of the four containers has 1 GiB more
    assert_eq!(oom_score_adj(&pod, &pod.init_containers()[0], 8 * GIB), 813);
    assert_eq!(oom_score_adj(&pod, &pod.init_containers()[1], 8 * GIB), 875);
    assert_eq!(oom_score_adj(&pod, &pod.containers()[0], 8 * GIB), 750);
    assert_eq!(oom_score_adj(&pod, &pod.containers()[1], 8 * GIB), 875);
}

#[test]
fn pod_request_is_max_of_running_and_init() {
    let cpu = |milli: u32| json!({"requests": {"cpu": format!("{milli}m")}});
    let total = |init: Value| {
        let pod = pod(json!({
            "initContainers": init,
            "containers": [
                {"name": "a", "resources": cpu(100)},
                {"name": "b", "resources": cpu(200)},
            ],
        }));
        pod_request(&pod, "cpu").expect("cpu").milli_value()
    };
    assert_eq!(total(json!([])), 300);
    assert_eq!(total(json!([{"name": "i", "resources": cpu(250)}])), 300);
    assert_eq!(total(json!([{"name": "i", "resources": cpu(400)}])), 400);
    let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": cpu(50)});
    assert_eq!(total(json!([sidecar])), 350);
    assert_eq!(
        total(json!([sidecar, {"name": "i", "resources": cpu(400)}])),
        450
    );
    assert_eq!(
        total(json!([{"name": "i", "resources": cpu(400)}, sidecar])),
        400
    );
}

#[test]
fn sandbox_resources_exclude_overhead() {
    let resources =
        json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m", "memory": "1Gi"}});
    let pod = pod(json!({
        "overhead": {"cpu": "50m", "memory": "64Mi"},
        "containers": [
            {"name": "a", "resources": resources}, {"name": "b", "resources": resources},
        ],
    }));
    let node = NodeFacts {
        cgroup_v2: false,
        ..node()
    };
    assert_eq!(
        line(&sandbox_resources(&pod, &node)),
        "shares=204 quota=40000/100000 memory=2147483648 oom=0"
    );
    assert_eq!(
        overhead_resources(&pod, &node)
            .map(|r| line(&r))
            .expect("overhead"),
        "shares=51 quota=5000/100000 memory=67108864 oom=0"
    );
}

#[test]
fn pod_level_limits_set_qos_and_default_limits() {
    let pod = pod(json!({
        "resources": {"limits": {"cpu": "1", "memory": "2Gi"}},
        "containers": [{"name": "c"}],
    }));
    assert_eq!(qos_class(&pod), QosClass::Guaranteed);
    let r = container_resources(&pod, &pod.containers()[0], &node());
    assert_eq!((r.cpu_quota, r.memory_limit), (100_000, 2 * GIB));
}

#[test]
fn invalid_quantity_is_named() {
    let pod = one(json!({"cpu": "many"}), json!({}));
    assert_eq!(
        check_amounts(&pod).expect_err("bad").to_string(),
        "container c resources.requests.cpu: quantity \"many\" does not start with a decimal number"
    );
    assert!(check_amounts(&one(json!({"cpu": "1"}), json!({"memory": "1Gi"}))).is_ok());
}
