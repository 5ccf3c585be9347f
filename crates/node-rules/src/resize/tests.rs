//! Tables of resizes.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use windlass_types::corev1::Node;

use super::*;
use crate::admission::{AdmissionPolicy, NodeLoad, Pressure, SysctlAllowList};

const SINCE: &str = "2026-11-21T04:00:00Z";

fn node() -> Node {
    let allocatable = json!({"cpu": "4", "memory": "4Gi", "pods": "9"});
    serde_json::from_value(json!({"status": {"allocatable": allocatable}})).expect("a node")
}

fn policy(resize: ResizePolicy) -> AdmissionPolicy {
    AdmissionPolicy {
        sysctls: SysctlAllowList::new((6, 1), &[]).expect("patterns"),
        app_armor: false,
        pod_level_resources: true,
        declared_features: Some(BTreeSet::new()),
        resize,
    }
}

/// A pod from `cpu[/limit] memory[/limit]`; `-` is not set.
fn pod(sizes: &str) -> Pod {
    pod_with(sizes, json!({}))
}

fn pod_with(sizes: &str, patch: Value) -> Pod {
    let mut container = json!({"name": "c", "resources": resources(sizes)});
    for (key, value) in patch.as_object().expect("an object") {
        container[key] = value.clone();
    }
    with_spec(json!({"containers": [container]}))
}

fn with_spec(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": spec})).expect("a pod")
}

fn resources(sizes: &str) -> Value {
    let mut resources = json!({"requests": {}, "limits": {}});
    for (name, size) in ["cpu", "memory"].iter().zip(sizes.split(' ')) {
        let (request, limit) = size.split_once('/').unwrap_or((size, "-"));
        for (list, amount) in [("requests", request), ("limits", limit)] {
            if amount != "-" {
                resources[list][name] = amount.into();
            }
        }
    }
    resources
}

/// Another pod requests 1 CPU and 1 Gi.
fn decide(allocated: &Pod, live: &Pod, resize: ResizePolicy) -> ResizeDecision {
    let mut load = NodeLoad::default();
    load.add(allocated);
    let mut other = pod("1 1Gi");
    other.metadata.uid = Some("other".to_owned());
    load.add(&other);
    let input = AdmissionInput {
        pod: live,
        node: &node(),
        load: &load,
        policy: &policy(resize),
        strict_groups: None,
        pressure: Pressure::default(),
        shutting_down: false,
    };
    decide_resize(input, allocated)
}

fn check_pods(allocated: &Pod, live: &Pod, resize: ResizePolicy, expected: &str) {
    let decision = decide(allocated, live, resize);
    assert_eq!(decision.to_string(), expected, "{:?}", live.spec);
}

#[test]
fn resize_is_allocated_if_the_node_has_room() {
    let check = |allocated: &str, live: &str, expected: &str| {
        let policy = ResizePolicy::default();
        check_pods(&pod(allocated), &pod(live), policy, expected);
    };
    check("1 1Gi", "1 1Gi", "unchanged");
    check("1 1Gi", "1000m 1024Mi", "unchanged");
    check("1 1Gi", "3 3Gi", "allocate");
    check("1 1Gi/2Gi", "1 1Gi", "allocate");
    check("1 1Gi", "3001m 1Gi", "deferred(OutOfcpu)");
    check("1 1Gi", "1 3073Mi", "deferred(OutOfmemory)");
    // more than the node has
    check("1 1Gi", "100 1Gi", "deferred(OutOfcpu)");
    check("1 1Gi", "1 1e30", "deferred(OutOfmemory)");
    // an overcommitted node
    check("5 1Gi", "4500m 1Gi", "deferred(OutOfcpu)");
    check("1 1Gi", "-1 1Gi", "infeasible(invalid_resources)");
    check("1 1Gi", "many 1Gi", "infeasible(invalid_resources)");
    check("1/1 1Gi/1Gi", "1/2 1Gi/1Gi", "infeasible(qos_class)");
    check("- -", "1 -", "infeasible(qos_class)");
}

#[test]
fn infeasible_resize_has_cause_of_upstream() {
    let check = |allocated: Pod, live: Pod, policy, expected: &str| {
        let message = match decide(&allocated, &live, policy) {
            ResizeDecision::Infeasible(infeasible) => infeasible.message,
            other => other.to_string(),
        };
        assert_eq!(message, expected);
    };
    let exclusive = ResizePolicy {
        exclusive_cpus: true,
        exclusive_memory: true,
        ..ResizePolicy::default()
    };
    check(
        pod("1/1 1Gi/1Gi"),
        pod("2/2 1Gi/1Gi"),
        exclusive,
        "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"",
    );
    check(
        pod("1/1 1Gi/1Gi"),
        pod("1/1 2Gi/2Gi"),
        exclusive,
        "Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\"",
    );
    check(pod("1 1Gi"), pod("2 2Gi"), exclusive, "allocate");
    let swap = ResizePolicy {
        swap: true,
        ..ResizePolicy::default()
    };
    let text = "In-place resize of containers with swap is not supported.";
    check(pod("1 1Gi"), pod("1 2Gi"), swap, text);
    check(pod("1 1Gi"), pod("2 1Gi"), swap, "allocate");
    check(pod("1 1Gi/1Gi"), pod("1 2Gi/2Gi"), swap, "allocate");
    let restarts = json!({"resizePolicy": [
        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
    ]});
    let restarted = |sizes| pod_with(sizes, restarts.clone());
    check(restarted("1 1Gi"), restarted("1 2Gi"), swap, "allocate");
}

#[test]
fn gates_exclude_init_containers_and_pod_level() {
    let init = |cpu: &str| {
        let container = json!({"name": "i", "resources": {"requests": {"cpu": cpu}}});
        with_spec(json!({"containers": [{"name": "c"}], "initContainers": [container]}))
    };
    let sidecar = |cpu: &str| {
        let container = json!({
            "name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}},
        });
        with_spec(json!({"containers": [{"name": "c"}], "initContainers": [container]}))
    };
    let whole = |cpu: &str| {
        let requests = json!({"requests": {"cpu": cpu}});
        with_spec(json!({"containers": [{"name": "c"}], "resources": requests}))
    };
    let off = ResizePolicy {
        init_containers: false,
        pod_level: false,
        ..ResizePolicy::default()
    };
    for (policy, expected) in [
        (ResizePolicy::default(), ["allocate"; 3]),
        (
            off,
            ["unchanged", "allocate", "infeasible(plr_feature_gate_off)"],
        ),
    ] {
        check_pods(&init("1"), &init("2"), policy, expected[0]);
        check_pods(&sidecar("1"), &sidecar("2"), policy, expected[1]);
        check_pods(&whole("1"), &whole("2"), policy, expected[2]);
    }
}

#[test]
fn resizes_are_ordered_by_growth_priority_class_and_age() {
    let waiting = |sizes: &str, priority: i32, since: Option<&str>| {
        let mut pod = pod(sizes);
        pod.spec.get_or_insert_default().priority = Some(priority);
        let mut pod = Arc::new(pod);
        let pending = since.map(|since| pending(PendingReason::Deferred, since));
        PendingResize::set(pending.as_ref(), &mut pod);
        pod
    };
    let in_order = [
        (waiting("2 1Gi", 0, None), "1 1Gi"),
        (waiting("1 1Gi", 9, None), "2 1Gi"),
        (waiting("1/1 1Gi/1Gi", 1, None), "2/2 1Gi/1Gi"),
        (waiting("1 1Gi", 1, Some("2026-11-21T04:00:00Z")), "2 1Gi"),
        (waiting("1 1Gi", 1, Some("2026-11-21T04:01:00Z")), "1 2Gi"),
        (waiting("1 1Gi", 1, None), "2 1Gi"),
    ];
    let keys = in_order.iter().map(|(allocated, sizes)| {
        let mut live = pod(sizes);
        live.spec.get_or_insert_default().priority =
            allocated.spec.clone().and_then(|s| s.priority);
        resize_order(&live, allocated)
    });
    assert!(keys.is_sorted_by(|a, b| a < b));
}

fn pending(reason: PendingReason, since: &str) -> PendingResize {
    PendingResize {
        reason,
        message: "no room".to_owned(),
        generation: Some(2),
        since: since.parse().expect("a time"),
    }
}

#[test]
fn pending_resize_is_a_condition_of_the_pod() {
    let mut shared = Arc::new(pod("1 1Gi"));
    assert!(!PendingResize::set(None, &mut shared));
    for reason in [PendingReason::Deferred, PendingReason::Infeasible] {
        let pending = pending(reason, SINCE);
        assert!(PendingResize::set(Some(&pending), &mut shared));
        assert!(!PendingResize::set(Some(&pending), &mut shared));
        assert_eq!(PendingResize::from_pod(&shared), Some(pending));
    }
    let conditions = shared.status.clone().and_then(|status| status.conditions);
    let expected = json!([{
        "type": "PodResizePending", "status": "True", "reason": "Infeasible",
        "message": "no room", "observedGeneration": 2, "lastTransitionTime": SINCE,
    }]);
    assert_eq!(serde_json::to_value(conditions).expect("JSON"), expected);
    assert!(PendingResize::set(None, &mut shared));
    assert_eq!(PendingResize::from_pod(&shared), None);
}

#[test]
fn changes_of_containers_are_named_as_in_the_metric() {
    let check = |before: &str, after: &str, expected: &str| {
        let changes = resize_changes(&pod(before), &pod(after), ResizePolicy::default());
        let line = changes.iter().map(|change| {
            format!(
                "{} {} {}",
                change.operation, change.resource, change.requirement
            )
        });
        assert_eq!(line.collect::<Vec<_>>().join(", "), expected);
    };
    check("1 1Gi", "1000m 1Gi", "");
    check(
        "1 1Gi",
        "2 512Mi",
        "decrease memory requests, increase cpu requests",
    );
    check(
        "1/2 1Gi",
        "1 1Gi/2Gi",
        "add memory limits, remove cpu limits",
    );
}

#[test]
fn changed_sizes_require_declared_features() {
    let pod = |pod_level: &str, init: &str, sidecar: &str| {
        let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
        with_spec(json!({
            "containers": [{"name": "c"}],
            "initContainers": [
                {"name": "i", "resources": requests(init)},
                {"name": "s", "restartPolicy": "Always", "resources": requests(sidecar)},
            ],
            "resources": requests(pod_level),
        }))
    };
    let check = |after: Pod, expected: &[&str]| {
        assert_eq!(required_features(&pod("1", "1", "1"), &after), expected);
    };
    let [pod_level, init] = [
        "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScalingInitContainers",
    ];
    check(pod("1", "1", "1"), &[]);
    check(pod("1", "1", "2"), &[]);
    check(pod("2", "1", "1"), &[pod_level]);
    check(pod("2", "2", "1"), &[pod_level, init]);
}

#[test]
fn shrinking_container_counts_until_its_status_is_smaller() {
    let capacity_left = |actual: &str| {
        let mut shrunk = pod("1 1Gi");
        let container = json!({
            "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "resources": {"requests": {"cpu": actual}},
        });
        let status = json!({"containerStatuses": [container]});
        shrunk.status = serde_json::from_value(status).expect("a status");
        let mut load = NodeLoad::default();
        load.add(&pod("3 1Gi"));
        let freed = load.update(&shrunk);
        let mut new = pod("2 1Gi");
        new.metadata.uid = Some("new".to_owned());
        let fits = admit(AdmissionInput {
            pod: &new,
            node: &node(),
            load: &load,
            policy: &policy(ResizePolicy::default()),
            strict_groups: None,
            pressure: Pressure::default(),
            shutting_down: false,
        });
        (freed, fits.is_ok())
    };
    assert_eq!(capacity_left("3"), (false, false));
    assert_eq!(capacity_left("2500m"), (true, false));
    assert_eq!(capacity_left("1"), (true, true));
    assert_eq!(capacity_left("500m"), (true, true));
}

#[test]
fn pending_resize_keeps_its_time_and_is_new_once_a_generation() {
    let pending = |reason, generation, second| PendingResize {
        reason,
        message: String::new(),
        generation: Some(generation),
        since: Timestamp::from_second(second).expect("a time"),
    };
    let (deferred, infeasible) = (PendingReason::Deferred, PendingReason::Infeasible);
    let before = pending(deferred, 1, 10);
    for (now, before, second, is_new) in [
        (pending(deferred, 1, 20), None, 20, true),
        (pending(deferred, 1, 20), Some(&before), 10, false),
        (pending(deferred, 2, 20), Some(&before), 10, true),
        (pending(infeasible, 1, 20), Some(&before), 20, true),
    ] {
        let (following, new) = now.following(before);
        assert_eq!((following.since.as_second(), new), (second, is_new));
    }
}
