//! The JSON, field by field.

use serde_json::{Value, json};

use super::Summary;
use crate::test_figures::{node, pod};

fn summary() -> Value {
    serde_json::to_value(Summary::new("n1", node(), vec![pod()])).expect("json")
}

#[test]
fn node_summary_matches_upstream() {
    let node = &summary()["node"];
    assert_eq!(node["nodeName"], "n1");
    assert_eq!(node["startTime"], "1970-01-01T00:00:10Z");
    let none = json!({"total": 0, "avg10": 0.0, "avg60": 0.0, "avg300": 0.0});
    let no_psi = json!({"some": none, "full": none});
    let psi = json!({
        "some": {"total": 4_000_000_000_u64, "avg10": 1.5, "avg60": 2.5, "avg300": 3.5},
        "full": none,
    });
    let time = "1970-01-01T00:16:40Z";
    assert_eq!(
        node["cpu"],
        json!({"time": time, "usageNanoCores": 100_000, "usageCoreNanoSeconds": 100_000_000_000_u64, "psi": psi})
    );
    // the machine's memory less what is in use
    assert_eq!(
        node["memory"],
        json!({
            "time": time, "availableBytes": (1 << 20) - 100_000, "usageBytes": 102_400,
            "workingSetBytes": 100_000, "rssBytes": 90_000, "pageFaults": 103, "majorPageFaults": 104,
            "psi": no_psi,
        })
    );
    assert_eq!(node["swap"], json!({"time": time, "swapUsageBytes": 100}));
    assert_eq!(node["io"], json!({"time": time, "psi": no_psi}));
    assert_eq!(
        node["rlimit"],
        json!({"time": time, "maxpid": 32768, "curproc": 123})
    );
    assert_eq!(node["network"]["name"], "eth0");
    assert_eq!(node["network"]["rxBytes"], 7);
    assert_eq!(
        node["network"]["interfaces"],
        json!([{"name": "eth0", "rxBytes": 7, "rxErrors": 3, "txBytes": 14, "txErrors": 3}])
    );
    assert_eq!(node["fs"]["usedBytes"], 4096);
    assert_eq!(node["runtime"]["imageFs"]["usedBytes"], 8192);
    assert!(node["runtime"].get("containerFs").is_none());
    assert_eq!(node["systemContainers"][0]["name"], "pods");
}

#[test]
fn pod_summary_has_containers_volumes_and_storage() {
    let pod = &summary()["pods"][0];
    assert_eq!(
        pod["podRef"],
        json!({"name": "web", "namespace": "default", "uid": "u1"})
    );
    assert_eq!(pod["process_stats"], json!({"process_count": 20}));
    assert_eq!(pod["swap"]["swapAvailableBytes"], 270);
    assert_eq!(pod["ephemeral-storage"]["usedBytes"], 3072);
    assert_eq!(
        pod["volume"][0],
        json!({
            "name": "data", "pvcRef": {"name": "claim", "namespace": "default"},
            "volumeHealthStats": {"abnormal": false}, "time": "1970-01-01T00:16:41Z",
            "availableBytes": 1 << 29, "capacityBytes": 1 << 30, "usedBytes": 3072,
            "inodesFree": 900, "inodes": 1000, "inodesUsed": 3,
        })
    );
    let container = &pod["containers"][0];
    assert_eq!(container["name"], "app");
    assert_eq!(container["startTime"], "1970-01-01T00:00:21Z");
    assert_eq!(container["memory"]["availableBytes"], 20 * 3096);
    assert_eq!(container["rootfs"]["usedBytes"], 2048);
    assert_eq!(container["logs"]["usedBytes"], 1024);
}

#[test]
fn unknown_values_are_absent_and_containers_always_a_list() {
    let mut pod = pod();
    pod.containers.clear();
    (pod.cgroup, pod.network, pod.ephemeral) = (None, None, None);
    pod.volumes.clear();
    let summary = serde_json::to_value(Summary::new("n1", node(), vec![pod])).expect("json");
    let pod = summary["pods"][0].as_object().expect("object");
    let keys: Vec<_> = pod.keys().map(String::as_str).collect();
    assert_eq!(keys, ["containers", "podRef", "startTime"]);
    assert_eq!(pod["containers"], json!([]));
}

#[test]
fn pod_process_count_is_sum_of_containers() {
    let mut pod = pod();
    let (mut second, mut unknown) = (pod.containers[0].clone(), pod.containers[0].clone());
    second.name = "side".to_owned();
    (unknown.name, unknown.cgroup) = ("starts".to_owned(), None);
    pod.containers.extend([second, unknown]);
    let summary = serde_json::to_value(Summary::new("n1", node(), vec![pod])).expect("json");
    let processes = &summary["pods"][0]["process_stats"];
    assert_eq!(*processes, json!({"process_count": 40}));
}
