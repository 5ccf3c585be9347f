//! Tables of limits and messages.

use serde_json::json;

use super::*;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    pairs.collect()
}

#[test]
fn reserved_cgroups_get_their_reservation() {
    let system = map(&[("cpu", "100m"), ("memory", "100Mi"), ("pid", "1000")]);
    let kube = map(&[("cpu", "1"), ("ephemeral-storage", "1Gi")]);
    let none = BTreeMap::new();
    let check_qos = |enforced: &[&str], kube: &BTreeMap<_, _>, memory_qos, expected: &[&str]| {
        let enforced: Vec<String> = enforced.iter().map(|word| (*word).to_owned()).collect();
        let limits = reserved_limits(
            &enforced,
            Reservations {
                system: &system,
                kube,
                system_cgroup: "/system",
                kube_cgroup: "/kube",
                memory_qos,
            },
        );
        let lines: Vec<String> = limits
            .iter()
            .map(|limit| match limit {
                NodeLimit::Reserved { cgroup, values, .. } => {
                    let values = values.map_or("unset".to_owned(), |values| values.to_string());
                    format!("{cgroup} {values}")
                }
                NodeLimit::Pods(_) => panic!("not a reservation"),
            })
            .collect();
        assert_eq!(lines, expected, "{enforced:?}");
    };
    let check = |enforced: &[&str], kube: &BTreeMap<String, String>, expected: &[&str]| {
        check_qos(enforced, kube, false, expected);
    };
    let protected = "/system shares=102 memory=104857600 pids=1000 min=104857600";
    let both = ["system-reserved", "system-reserved-compressible"];
    check_qos(&both, &kube, true, &[protected, "/system shares=102"]);
    check(&["none"], &kube, &[]);
    check(&["pods"], &kube, &[]);
    let system_line = "/system shares=102 memory=104857600 pids=1000";
    check(&["pods", "system-reserved"], &kube, &[system_line]);
    check(
        &["kube-reserved", "system-reserved"],
        &kube,
        &[system_line, "/kube shares=1024"],
    );
    check(
        &["system-reserved-compressible", "kube-reserved"],
        &kube,
        &["/kube shares=1024", "/system shares=102"],
    );
    check(&["kube-reserved-compressible"], &none, &["/kube unset"]);
    check(
        &["kube-reserved"],
        &map(&[("memory", "1Ki")]),
        &["/kube memory=1024"],
    );
}

#[test]
fn events_have_the_messages_of_upstream() {
    let check = |limit: NodeLimit, enforced: &str, failed: &str| {
        assert_eq!(limit.enforced(), enforced);
        assert_eq!(limit.failed(&"why"), failed);
    };
    check(
        NodeLimit::Pods(vec!["a".to_owned(), "kubepods".to_owned()]),
        "Updated Node Allocatable limit across pods",
        "Failed to update Node Allocatable Limits [\"a\" \"kubepods\"]: why",
    );
    let reserved = |daemons, compressible| NodeLimit::Reserved {
        daemons,
        compressible,
        cgroup: "/x".to_owned(),
        values: None,
    };
    check(
        reserved(Daemons::System, false),
        "Updated limits on system reserved cgroup /x",
        "Failed to enforce System Reserved Cgroup Limits on \"/x\": why",
    );
    check(
        reserved(Daemons::Kube, true),
        "Updated limits on kube reserved cgroup /x",
        "Failed to enforce Kube Reserved Compressible Cgroup Limits on \"/x\": why",
    );
}

#[test]
fn reserved_cpus_replace_both_cpu_reservations() {
    let mut system = map(&[("cpu", "100m"), ("memory", "1Gi")]);
    let mut kube = map(&[("cpu", "200m"), ("pid", "5")]);
    reserve_cpus(3, &mut system, &mut kube);
    assert_eq!(system, map(&[("cpu", "3"), ("memory", "1Gi")]));
    assert_eq!(kube, map(&[("pid", "5")]));
}

/// A pod from `class memory`, or `class memory phase`.
fn pod(text: &str) -> Pod {
    let words: Vec<&str> = text.split_whitespace().collect();
    let amounts = json!({"cpu": "1", "memory": words[1]});
    let resources = match words[0] {
        "guaranteed" => json!({"requests": amounts, "limits": amounts}),
        "burstable" => json!({"requests": amounts}),
        _ => json!({}),
    };
    let pod = json!({
        "metadata": {"uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
        "status": {"phase": words.get(2).unwrap_or(&"Running")},
    });
    serde_json::from_value(pod).expect("a pod")
}

#[test]
fn classes_keep_memory_for_requests_of_higher_classes() {
    let check = |percent: Option<i64>, allocatable, pods: &[&str], expected: &str| {
        let pods: Vec<Pod> = pods.iter().map(|text| pod(text)).collect();
        let memory = percent.map(|percent| QosMemory {
            percent,
            allocatable,
        });
        let memory = ClassMemory {
            reserved: memory,
            protects_requests: None,
        };
        let values = class_values(pods.iter(), memory);
        assert_eq!(values.to_string(), expected, "{percent:?}");
    };
    let pods = [
        "guaranteed 100",
        "guaranteed 50 Failed",
        "burstable 200",
        "besteffort 0",
    ];
    check(
        None,
        1000,
        &pods,
        "burstable(shares=1024) besteffort(shares=2)",
    );
    check(
        Some(100),
        1000,
        &pods,
        "burstable(shares=1024 memory=900) besteffort(shares=2 memory=700)",
    );
    check(
        Some(50),
        1000,
        &pods,
        "burstable(shares=1024 memory=950) besteffort(shares=2 memory=850)",
    );
    check(
        Some(0),
        1000,
        &pods,
        "burstable(shares=1024 memory=1000) besteffort(shares=2 memory=1000)",
    );
    check(
        Some(100),
        250,
        &pods,
        "burstable(shares=1024 memory=150) besteffort(shares=2 memory=0)",
    );
    // unknown allocatable
    check(
        Some(100),
        0,
        &pods,
        "burstable(shares=1024) besteffort(shares=2)",
    );
}

#[test]
fn requests_of_classes_are_protected() {
    let check = |protects: bool, protected: (i64, i64), expected: &str| {
        let pods = ["guaranteed 100", "guaranteed 50 Failed", "burstable 200"];
        let pods: Vec<Pod> = pods.iter().map(|text| pod(text)).collect();
        let memory = ClassMemory {
            reserved: None,
            protects_requests: Some(protects),
        };
        let values = class_values(pods.iter(), memory);
        assert_eq!(values.to_string(), expected);
        assert_eq!(values.protected(), Some(protected));
    };
    check(
        true,
        (100, 200),
        "all(min=300) burstable(shares=1024 low=200) besteffort(shares=2)",
    );
    // what a previous policy has set is reset
    check(
        false,
        (0, 0),
        "all(min=0) burstable(shares=1024 low=0) besteffort(shares=2)",
    );
}
