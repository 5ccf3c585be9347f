//! Status, grace period and texts of an evicted pod.

use serde_json::json;
use windlass_types::{Phase, Pod};

use super::Victim;
use crate::pod::{ContainerUsage, PodFigures, PodUsage};
use crate::state::EvictionState;
use crate::test_figures::{now, observations, pod, settings};

fn victim(thresholds: &str, observed: &str, pods: &[PodFigures]) -> Victim {
    let settings = settings(thresholds);
    let observed = observations(observed, 0);
    let pass = EvictionState::default().pass(now(0), &observed, &settings);
    let met = pass.due.first().expect("a threshold is due");
    settings.choose_victim(met, pods).expect("a victim")
}

/// Message, annotations in order, and explanation.
fn check(thresholds: &str, observed: &str, figures: PodFigures, expected: [&str; 3]) {
    let victim = victim(thresholds, observed, &[figures]);
    let annotations: Vec<String> = victim
        .annotations
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let got = [
        victim.message.clone(),
        annotations.join(" "),
        victim.explanation.to_string(),
    ];
    assert_eq!(got, expected);
}

#[test]
fn memory_message_is_that_of_upstream() {
    check(
        "hard memory.available=100Mi",
        "memory.available=90Mi/1Gi",
        pod("web memory=312Mi/100Mi"),
        [
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. \
             Container c was using 312Mi, request is 100Mi, has larger consumption of memory. ",
            "offending_containers=c offending_containers_usage=312Mi starved_resource=memory",
            "memory.available was 90Mi, 10Mi below the threshold of 100Mi; ranked because it uses \
             312Mi of memory, 212Mi above its request of 100Mi, at priority 0, first of 1 pods",
        ],
    );
    // without a request, and an odd amount
    check(
        "hard memory.available=100Mi",
        "memory.available=94371841/1Gi",
        pod("web memory=1025 priority=7"),
        [
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 94371841. \
             Container c was using 1025, request is 0, has larger consumption of memory. ",
            "offending_containers=c offending_containers_usage=1025 starved_resource=memory",
            "memory.available was 94371841, 10485759 below the threshold of 100Mi; ranked because \
             it uses 1025 of memory, without a request, at priority 7, first of 1 pods",
        ],
    );
}

#[test]
fn storage_message_sums_layer_and_logs() {
    check(
        "hard nodefs.available=10%",
        "nodefs.available=1Gi/20Gi",
        pod("web storage=0/1Gi layer=1.5Gi logs=512Mi"),
        [
            "The node was low on resource: ephemeral-storage. Threshold quantity: 2147483680, \
             available: 1Gi. Container c was using 2Gi, request is 1Gi, has larger consumption of \
             ephemeral-storage. ",
            "offending_containers=c offending_containers_usage=2Gi \
             starved_resource=ephemeral-storage",
            "nodefs.available was 1Gi, 1073741856 below the threshold of 2147483680; ranked \
             because it uses 2Gi of ephemeral-storage, 1Gi above its request of 1Gi, at priority \
             0, first of 1 pods",
        ],
    );
    // the logs were not measured
    check(
        "hard nodefs.available=2Gi",
        "nodefs.available=1Gi/20Gi",
        pod("web storage=0/1Gi layer=512Mi"),
        [
            "The node was low on resource: ephemeral-storage. Threshold quantity: 2Gi, \
             available: 1Gi. ",
            "offending_containers= offending_containers_usage= \
             starved_resource=ephemeral-storage",
            "nodefs.available was 1Gi, 1Gi below the threshold of 2Gi; ranked because it uses \
             512Mi of ephemeral-storage, within its request of 1Gi, at priority 0, first of 1 pods",
        ],
    );
}

#[test]
fn inode_and_process_messages_name_no_container() {
    check(
        "hard nodefs.inodesFree=5%",
        "nodefs.inodesFree=2000/100k",
        pod("web layer=1Gi:90000"),
        [
            "The node was low on resource: inodes. Threshold quantity: 5000, available: 2k. ",
            "offending_containers= offending_containers_usage= starved_resource=inodes",
            "nodefs.inodesFree was 2k, 3k below the threshold of 5000; ranked because it uses 90k \
             inodes, at priority 0, first of 1 pods",
        ],
    );
    check(
        "hard pid.available=1k",
        "pid.available=999/32768",
        pod("web processes=30000"),
        [
            "The node was low on resource: pids. Threshold quantity: 1k, available: 999. ",
            "offending_containers= offending_containers_usage= starved_resource=pids",
            "pid.available was 999, 1 below the threshold of 1k; ranked because it runs 30k \
             processes, at priority 0, first of 1 pods",
        ],
    );
}

#[test]
fn unmeasured_pod_has_no_annotations() {
    check(
        "hard memory.available=100Mi",
        "memory.available=90Mi/1Gi",
        pod("web unmeasured"),
        [
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. ",
            "",
            "memory.available was 90Mi, 10Mi below the threshold of 100Mi; ranked because its \
             usage is not known, at priority 0, first of 1 pods",
        ],
    );
}

#[test]
fn pod_level_request_is_named_before_containers() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": {
            "resources": {"requests": {"memory": "200Mi"}},
            "overhead": {"memory": "10Mi"},
            "initContainers": [{"name": "i", "resources": {"requests": {"memory": "50Mi"}}}],
            "containers": [{"name": "a"}, {"name": "b"}],
        },
    }))
    .expect("a pod");
    let mut figures = PodFigures::from_pod(&pod);
    assert_eq!(figures.memory_request.to_string(), "210Mi");
    let container = |name: &str, mebibytes: u64| ContainerUsage {
        name: name.to_owned(),
        memory: Some(mebibytes << 20),
        ..ContainerUsage::default()
    };
    let containers = [("b", 100), ("debugger", 100), ("i", 60), ("a", 0)];
    figures.usage = Some(PodUsage {
        memory: Some(260 << 20),
        containers: containers
            .map(|(name, amount)| container(name, amount))
            .to_vec(),
        ..PodUsage::default()
    });
    check(
        "hard memory.available=100Mi",
        "memory.available=90Mi/1Gi",
        figures,
        [
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. \
             Pod web was using 260Mi, request is 200Mi, has larger consumption of memory. \
             Container b was using 100Mi, request is 0, has larger consumption of memory. \
             Container i was using 60Mi, request is 50Mi, has larger consumption of memory. ",
            "offending_containers=b,i offending_containers_usage=100Mi,60Mi offending_pod=web \
             offending_pod_usage=260Mi starved_resource=memory",
            "memory.available was 90Mi, 10Mi below the threshold of 100Mi; ranked because it uses \
             260Mi of memory, 50Mi above its request of 210Mi, at priority 0, first of 1 pods",
        ],
    );
}

#[test]
fn minimum_reclaim_is_named_in_explanation() {
    let settings = settings("hard memory.available=100Mi; reclaim memory.available=50Mi");
    let mut state = EvictionState::default();
    for (second, observed) in ["memory.available=90Mi/1Gi", "memory.available=120Mi/1Gi"]
        .into_iter()
        .enumerate()
    {
        let second = second as u64;
        let pass = state.pass(now(second), &observations(observed, second), &settings);
        let victim = settings.choose_victim(&pass.due[0], &[pod("web memory=1Mi")]);
        let text = victim.expect("a victim").explanation.to_string();
        let (start, _) = text.split_once(';').expect("two parts");
        let expected = [
            "memory.available was 90Mi, 10Mi below the threshold of 100Mi",
            "memory.available was 120Mi, 30Mi less than the threshold and its minimum reclaim \
             require (150Mi)",
        ];
        assert_eq!(start, expected[second as usize]);
    }
}

#[test]
fn grace_period_is_shortened_by_soft_threshold() {
    let soft = "soft memory.available=100Mi; grace memory.available=0s";
    let check = |thresholds: &str, max: u64, line: &str, expected: u64| {
        let mut settings = settings(thresholds);
        settings.max_pod_grace_period = std::time::Duration::from_secs(max);
        let mut state = EvictionState::default();
        let observed = observations("memory.available=90Mi/1Gi", 0);
        state.pass(now(0), &observed, &settings);
        let pass = state.pass(
            now(60),
            &observations("memory.available=90Mi/1Gi", 60),
            &settings,
        );
        let victim = settings
            .choose_victim(&pass.due[0], &[pod(line)])
            .expect("a victim");
        assert_eq!(
            victim.grace.as_secs(),
            expected,
            "{thresholds} {max} {line}"
        );
    };
    let waits = "soft memory.available=100Mi; grace memory.available=30s";
    check("hard memory.available=100Mi", 20, "web grace=60", 1);
    check(soft, 20, "web grace=60", 1);
    check(waits, 20, "web grace=60", 20);
    check(waits, 20, "web grace=5", 5);
    check(waits, 20, "web", 20);
    // at least one second, as when the pod is killed
    check(waits, 20, "web grace=0", 1);
    check(waits, 0, "web grace=60", 1);
}

#[test]
fn status_and_event_are_those_of_upstream() {
    let victim = victim(
        "hard memory.available=100Mi",
        "memory.available=90Mi/1Gi",
        &[pod("web memory=1Gi")],
    );
    let status = victim.phase_override();
    assert_eq!(
        (status.phase, status.reason.as_str()),
        (Phase::Failed, "Evicted")
    );
    assert_eq!(status.message, victim.message);
    assert_eq!(status.disruption.as_deref(), Some(victim.message.as_str()));
    let met = victim.explanation.met;
    assert_eq!(met.event_message(), "Attempting to reclaim memory");
    assert_eq!(met.to_string(), "memory.available<100Mi (90Mi)");
}
