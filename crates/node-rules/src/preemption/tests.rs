//! Victims of a critical pod.

use serde_json::{Value, json};

use super::*;

const CRITICAL: i32 = 2_000_000_000;

/// A pod from `class cpu memory [priority]`; a Guaranteed one has equal limits.
fn pod(uid: &str, text: &str) -> Pod {
    let words: Vec<&str> = text.split_whitespace().collect();
    let amounts = |words: &[&str]| json!({"cpu": words[1], "memory": words[2]});
    let resources = match words[0] {
        "guaranteed" => json!({"requests": amounts(&words), "limits": amounts(&words)}),
        "burstable" => json!({"requests": amounts(&words)}),
        _ => json!({}),
    };
    let priority: Value = match words.get(3) {
        Some(priority) => priority.parse::<i32>().expect("a priority").into(),
        None => Value::Null,
    };
    let pod = json!({
        "metadata": {"uid": uid},
        "spec": {"priority": priority, "containers": [{"name": "c", "resources": resources}]},
    });
    serde_json::from_value(pod).expect("a pod")
}

/// `resource amount` pairs.
fn lacks(text: &str) -> Vec<Insufficient> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let pairs = words.chunks(2).map(|pair| Insufficient {
        resource: pair[0].to_owned(),
        requested: pair[1].parse::<i64>().expect("an amount") + 5,
        used: 95,
        capacity: 100,
    });
    pairs.collect()
}

fn check_for(preemptor: &Pod, pods: &[(&str, &str)], lacking: &str, expected: &str) {
    let pods: Vec<Pod> = pods.iter().map(|(uid, text)| pod(uid, text)).collect();
    let plan = plan_preemption(preemptor, &pods, &lacks(lacking));
    let line = plan.map_or_else(|error| error.to_string(), |plan| plan.to_string());
    assert_eq!(line, expected, "{lacking}");
}

fn check(pods: &[(&str, &str)], lacking: &str, expected: &str) {
    let critical = pod("critical", &format!("burstable 1 1 {CRITICAL}"));
    check_for(&critical, pods, lacking, expected);
}

#[test]
fn lower_classes_are_preempted_first() {
    let pods = [
        ("best", "besteffort"),
        ("burst", "burstable 100m 100"),
        ("guar", "guaranteed 100m 100"),
    ];
    check(&pods, "pods 1", "preempt(best for pods)");
    check(&pods, "pods 2", "preempt(best burst for pods)");
    check(&pods, "pods 3", "preempt(best burst guar for pods)");
    check(&pods, "cpu 100", "preempt(burst for cpu)");
    check(&pods, "cpu 101", "preempt(burst guar for cpu)");
    check(&pods, "memory 100 pods 2", "preempt(best burst for memory)");
    // the Guaranteed pod that is needed makes the Burstable one unnecessary
    let pods = [
        ("burst", "burstable 100m 100"),
        ("guar", "guaranteed 300m 100"),
    ];
    check(&pods, "cpu 300", "preempt(guar for cpu)");
    check(&pods, "cpu 301", "preempt(burst guar for cpu)");
}

#[test]
fn closest_and_smallest_pod_of_a_class_is_preempted() {
    let pods = [
        ("small", "burstable 100m 100"),
        ("large", "burstable 900m 900"),
        ("middle", "burstable 300m 300"),
    ];
    check(&pods, "cpu 90", "preempt(small for cpu)");
    check(&pods, "cpu 200", "preempt(middle for cpu)");
    check(&pods, "cpu 901", "preempt(large small for cpu)");
    check(&pods, "cpu 1101", "preempt(large middle for cpu)");
    check(
        &pods,
        "memory 1300",
        "preempt(large middle small for memory)",
    );
    // two resources have the same weight
    let pods = [
        ("cpu", "burstable 1000m 1"),
        ("memory", "burstable 1m 1000"),
        ("both", "burstable 600m 600"),
    ];
    check(&pods, "cpu 600 memory 600", "preempt(both for cpu)");
    check(
        &pods,
        "memory 1000 cpu 900",
        "preempt(both memory cpu for memory)",
    );
    // equal distance: less memory, then less CPU
    let pods = [
        ("a", "burstable 500m 200"),
        ("b", "burstable 700m 100"),
        ("c", "burstable 600m 100"),
    ];
    check(&pods, "cpu 500", "preempt(c for cpu)");
}

#[test]
fn critical_pods_and_those_of_higher_priority_stay() {
    let top = format!("burstable 1 1 {CRITICAL}");
    let higher = format!("burstable 1 1 {}", CRITICAL + 1000);
    let pods = [("top", top.as_str()), ("higher", higher.as_str())];
    let why = "no set of running pods found to reclaim resources: [(res: cpu, q: 10), ]";
    check(&pods, "cpu 10", why);
    let node_critical = pod("critical", &higher);
    check_for(&node_critical, &pods, "cpu 10", "preempt(top for cpu)");
    // of a pod without a priority, only whether it is critical counts
    let mut fixed = pod("static", "burstable 1 1");
    let source = (
        windlass_types::names::ANN_CONFIG_SOURCE.to_owned(),
        "file".to_owned(),
    );
    fixed.metadata.annotations = Some([source].into());
    check_for(&fixed, &pods, "cpu 10", why);
    let pods = [("plain", "burstable 1 1"), ("low", "burstable 1 1 -5")];
    check_for(&fixed, &pods, "cpu 1001", "preempt(plain low for cpu)");
}

#[test]
fn too_few_resources_preempt_nothing() {
    let pods = [
        ("burst", "burstable 100m 100"),
        ("guar", "guaranteed 100m 100"),
    ];
    let why = "no set of running pods found to reclaim resources: \
               [(res: cpu, q: 50), (res: nvidia.com/gpu, q: 1), ]";
    check(&pods, "cpu 250 memory 20 nvidia.com/gpu 1", why);
    let none: [(&str, &str); 0] = [];
    let why = "no set of running pods found to reclaim resources: [(res: pods, q: 1), ]";
    check(&none, "pods 1", why);
}

#[test]
fn preempted_pod_has_the_status_of_upstream() {
    let status = preempted();
    assert_eq!(status.phase, Phase::Failed);
    assert_eq!(status.reason, "Preempting");
    assert_eq!(status.message, "Preempted in order to admit critical pod");
    assert_eq!(
        status.disruption.as_deref(),
        Some("Pod was preempted by Kubelet to accommodate a critical pod.")
    );
}
