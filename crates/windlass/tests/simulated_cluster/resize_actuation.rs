//! Resizes of running pods: order, faults of the runtime, restarts, kills of the agent.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_cgroups::{CgroupTree, MemoryTree};
use windlass_cri::CriCode;
use windlass_fake_api::On;
use windlass_runtime::CgroupSettings;
use windlass_runtime_config::pod_cgroup::NodeLimits;
use windlass_testing::fake_runtime::{Fault, Operation, ReportedResources};
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::corev1::{ConfigMap, Container, Event, PodCondition};
use windlass_types::cri::CgroupDriver;
use windlass_types::{Pod, PodExt, PodUid};

use crate::fixture::*;
use crate::{MINUTE, SECOND};

const MIB: i64 = 1 << 20;

/// CPU (thousandths) and memory (MiB) of a container: request and limit are equal.
type Size = (i64, i64);

fn resources((cpu, memory): Size) -> Value {
    let amounts = json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")});
    json!({"requests": amounts, "limits": amounts})
}

/// A Guaranteed pod with containers `app` and `peer`.
fn sized(name: &str, size: Size) -> PodBuilder {
    let set = move |c: &mut Container| c.resources = parse(resources(size));
    PodBuilder::new(name)
        .bound_to(NODE)
        .container_with("app", "busybox:1", set)
        .container_with("peer", "busybox:1", set)
        .grace(5)
}

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).expect("a value")
}

/// Memory changes with a restart of the container, CPU without.
fn restarting(pod: PodBuilder) -> PodBuilder {
    let policy = json!([
        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
    ]);
    pod.with(|pod| spec(pod, "app").resize_policy = parse(policy))
}

fn spec<'a>(pod: &'a mut Pod, container: &str) -> &'a mut Container {
    let spec = pod.spec.get_or_insert_default();
    let init = spec.init_containers.iter_mut().flatten();
    let mut all = spec.containers.iter_mut().chain(init);
    all.find(|c| c.name == container).expect("a container")
}

/// Requests other sizes for a container.
fn resize(sim: &NodeSim, pod: &str, container: &str, size: Size) {
    sim.api.modify::<Pod>(Some("default"), pod, |pod| {
        spec(pod, container).resources = parse(resources(size));
    });
}

/// A node with a checkpoint, whose pods have cgroups.
fn on_a_node_with_cgroups(seed: u64, scenario: impl AsyncFnOnce(&mut NodeSim, &MemoryTree)) {
    on_a_ready_node(seed, async |sim| {
        let tree = MemoryTree::v1(&["cpu", "memory", "pids"]);
        let dir = tempfile::tempdir().expect("a directory");
        sim.kill_agent().await;
        sim.admitted_pods = Some(dir.path().to_owned());
        sim.cgroups = Some(CgroupSettings {
            tree: Arc::new(tree.clone()),
            slices: None,
            root: String::new(),
            driver: CgroupDriver::Cgroupfs,
            node: NodeLimits::default(),
            pids_limit: None,
            reserved: Vec::new(),
            qos_memory: None,
        });
        sim.start_agent().await;
        scenario(sim, &tree).await;
    });
}

async fn running(sim: &NodeSim, pod: PodBuilder) -> PodUid {
    let built = pod.build();
    let uid = sim.api.create(&built).uid();
    sim.until("it is ready", 20 * SECOND, |sim| ready(sim, built.name()))
        .await;
    uid
}

/// Sizes in the runtime and the pod's cgroup: CPU (thousandths of the quota) and MiB.
fn actual(sim: &NodeSim, tree: &MemoryTree, uid: &PodUid) -> String {
    let of = |name: &str| {
        let Some(it) = sim.runtime.running(uid, name) else {
            return format!("{name}: -");
        };
        let set = sim.runtime.resources(&it.id).expect("resources");
        let (cpu, memory) = (set.cpu_quota / 100, set.memory_limit / MIB);
        format!("{name}#{}: {cpu}m {memory}Mi", it.attempt)
    };
    let (cpu, memory) = pod_cgroup(tree, uid);
    format!("{}, {}, pod: {cpu}m {memory}Mi", of("app"), of("peer"))
}

fn pod_cgroup(tree: &MemoryTree, uid: &PodUid) -> Size {
    let file = |name: &str| {
        let text = tree.file(&format!("/kubepods/pod{uid}/{name}"));
        text.and_then(|text| text.parse::<i64>().ok())
            .unwrap_or_default()
    };
    (
        file("cpu.cfs_quota_us") / 100,
        file("memory.limit_in_bytes") / MIB,
    )
}

/// Sets the memory usage of the running containers, in MiB; the pod's is the sum.
fn use_memory(sim: &NodeSim, tree: &MemoryTree, uid: &PodUid, each: i64) {
    let pod = format!("/kubepods/pod{uid}");
    let mut sum = 0;
    for (pid, name) in [(7001, "app"), (7002, "peer")] {
        let id = sim.runtime.running(uid, name).expect("a container").id;
        let path = format!("{pod}/{id}");
        tree.enter("memory", &path, pid, false);
        let bytes = (each * MIB).to_string();
        tree.write("memory", &path, "memory.usage_in_bytes", &bytes)
            .expect("a file");
        sum += each * MIB;
    }
    tree.write("memory", &pod, "memory.usage_in_bytes", &sum.to_string())
        .expect("a file");
}

fn condition(sim: &NodeSim, pod: &str) -> Option<PodCondition> {
    let conditions = get(sim, pod)?.status?.conditions?;
    { conditions.into_iter() }.find(|c| c.type_ == "PodResizeInProgress")
}

/// True if the status is that of the current spec. A short resize has no condition.
fn is_observed(sim: &NodeSim, pod: &str) -> bool {
    let pod = get(sim, pod).expect("a pod");
    let observed = pod.status.and_then(|status| status.observed_generation);
    observed == pod.metadata.generation
}

/// Reason and message of the resize in progress in the API.
fn in_progress(sim: &NodeSim, pod: &str) -> Option<String> {
    let condition = condition(sim, pod)?;
    let text = |text: Option<String>| text.unwrap_or_default();
    Some(format!(
        "{} {}",
        text(condition.reason),
        text(condition.message)
    ))
}

/// Messages of the events with this reason.
fn events(sim: &NodeSim, pod: &str, reason: &str) -> Vec<String> {
    let events = sim.view(pod).map(|view| view.events).unwrap_or_default();
    let events = events.into_iter().filter(|e| e.reason.as_str() == reason);
    events.map(|e| e.message).collect()
}

/// `resources` and `allocatedResources` of a container in the API.
fn reported(sim: &NodeSim, pod: &str, container: &str) -> String {
    let status = get(sim, pod).and_then(|pod| pod.status).unwrap_or_default();
    let lists = [status.container_statuses, status.init_container_statuses];
    let mut all = lists.into_iter().flatten().flatten();
    let status = all.find(|c| c.name == container).expect("a status");
    let resources = status.resources.unwrap_or_default();
    let text = |amounts: Option<std::collections::BTreeMap<String, _>>| {
        serde_json::to_string(&amounts.unwrap_or_default()).expect("JSON")
    };
    format!(
        "{} {} {}",
        text(resources.requests),
        text(resources.limits),
        text(status.allocated_resources)
    )
}

/// `kubelet_pod_in_progress_resizes`.
fn resizes(sim: &NodeSim) -> i64 {
    sim.metrics.workers.resizes_in_progress.get() as i64
}

fn updates(sim: &NodeSim, pod: &str) -> usize {
    let subject = format!("default/{pod}/");
    let calls = sim.runtime.calls_of(Operation::UpdateContainer, &subject);
    calls.len()
}

async fn settled(sim: &NodeSim, tree: &MemoryTree, uid: &PodUid, pod: &str, expected: &str) {
    sim.until(expected, 3 * MINUTE, |sim| {
        let is_reported = in_progress(sim, pod).is_none() && is_observed(sim, pod);
        actual(sim, tree, uid) == expected && is_reported
    })
    .await;
}

#[test]
fn pod_grows_and_shrinks_without_a_restart() {
    on_a_node_with_cgroups(2101, async |sim, tree| {
        let uid = running(sim, sized("web", (100, 50))).await;
        let small = "app#0: 100m 50Mi, peer#0: 100m 50Mi, pod: 200m 100Mi";
        assert_eq!(actual(sim, tree, &uid), small);
        use_memory(sim, tree, &uid, 10);

        // the pod's cgroup grows before its containers
        let hang = || Fault::hang(Operation::UpdateContainer);
        sim.runtime.inject(hang());
        resize(sim, "web", "app", (200, 80));
        sim.pass(2 * SECOND).await;
        assert_eq!(pod_cgroup(tree, &uid), (300, 130));
        assert_eq!(in_progress(sim, "web").as_deref(), Some(" "));
        let generation = get(sim, "web").and_then(|pod| pod.metadata.generation);
        let observed = condition(sim, "web").and_then(|it| it.observed_generation);
        assert_eq!(observed, generation);
        let old = r#"{"cpu":"100m","memory":"50Mi"}"#;
        let new = r#"{"cpu":"200m","memory":"80Mi"}"#;
        assert_eq!(reported(sim, "web", "app"), format!("{old} {old} {new}"));
        assert_eq!(resizes(sim), 1);
        sim.runtime.release(Operation::UpdateContainer);
        let large = "app#0: 200m 80Mi, peer#0: 100m 50Mi, pod: 300m 130Mi";
        settled(sim, tree, &uid, "web", large).await;
        assert_eq!(reported(sim, "web", "app"), format!("{new} {new} {new}"));
        assert_eq!(updates(sim, "web"), 1);
        assert_eq!(resizes(sim), 0);

        // it shrinks after them
        sim.runtime.inject(hang());
        resize(sim, "web", "app", (100, 50));
        sim.pass(SECOND).await;
        assert_eq!(pod_cgroup(tree, &uid), (300, 130));
        sim.runtime.release(Operation::UpdateContainer);
        settled(sim, tree, &uid, "web", small).await;

        for (reason, title) in [
            ("ResizeStarted", "Pod resize started: {\"containers\":"),
            ("ResizeCompleted", "Pod resize completed: {\"containers\":"),
        ] {
            let events = events(sim, "web", reason);
            assert!(events.iter().all(|e| e.starts_with(title)), "{events:?}");
            assert_eq!(events.len(), 2, "{events:?}");
        }
        assert_eq!(events(sim, "web", "ResizeError"), Vec::<String>::new());
        sim.runtime.assert_no_duplicate_live_instances();
    });
}

/// Patches of a pod's status since the requests were cleared.
fn status_patches(sim: &NodeSim, pod: &str) -> usize {
    let path = format!("/api/v1/namespaces/default/pods/{pod}/status");
    let requests = sim.api.requests();
    let patches = requests.iter().filter(|it| it.method == "PATCH");
    patches.filter(|it| it.path == path).count()
}

#[test]
fn short_resize_is_two_status_patches_and_one_call() {
    on_a_node_with_cgroups(2110, async |sim, tree| {
        let uid = running(sim, sized("web", (100, 50))).await;
        // as containerd before 2.0
        let operation = Operation::UpdatePodSandbox;
        let unknown = Fault::fail(operation, 100, CriCode::Unimplemented, "unknown method");
        sim.runtime.inject(unknown);
        for (cpu, attempts, pause) in [
            (200, 1, 10 * SECOND),
            (300, 0, 2 * MINUTE),
            // the runtime may have been replaced
            (400, 1, SECOND),
        ] {
            sim.pass(10 * SECOND).await;
            sim.api.clear_requests();
            sim.runtime.clear_calls();
            resize(sim, "web", "app", (cpu, 50));
            let pod = cpu + 100;
            let done = format!("app#0: {cpu}m 50Mi, peer#0: 100m 50Mi, pod: {pod}m 100Mi");
            settled(sim, tree, &uid, "web", &done).await;
            sim.pass(5 * SECOND).await;
            let amounts = format!(r#"{{"cpu":"{cpu}m","memory":"50Mi"}}"#);
            let amounts = format!("{amounts} {amounts} {amounts}");
            assert_eq!(reported(sim, "web", "app"), amounts);
            // its begin and its end
            assert_eq!((status_patches(sim, "web"), updates(sim, "web")), (2, 1));
            assert_eq!(sim.runtime.calls_of(operation, "").len(), attempts);
            sim.pass(pause).await;
        }
        let all = ["ResizeCompleted x1", "ResizeStarted x1"];
        assert_eq!(sent(sim), [all[0], all[0], all[0], all[1], all[1], all[1]]);
    });
}

#[test]
fn memory_is_not_shrunk_below_its_use() {
    on_a_node_with_cgroups(2102, async |sim, tree| {
        let uid = running(sim, sized("web", (100, 50))).await;
        use_memory(sim, tree, &uid, 40);
        resize(sim, "web", "app", (100, 30));
        let error = "Error cannot decrease memory limits: [attempting to set pod memory limit \
                     (83886080) below current usage (83886080), attempting to set container \
                     \"app\" memory limit (31457280) below current usage (41943040)]";
        sim.until("an error", 10 * SECOND, |sim| {
            in_progress(sim, "web").as_deref() == Some(error)
        })
        .await;
        let before = "app#0: 100m 50Mi, peer#0: 100m 50Mi, pod: 200m 100Mi";
        sim.pass(MINUTE).await;
        assert_eq!(actual(sim, tree, &uid), before);
        assert_eq!((updates(sim, "web"), restarts(sim, "web")), (0, 0));
        let errors = events(sim, "web", "ResizeError");
        assert_eq!(errors.len(), 1, "{errors:?}");
        use_memory(sim, tree, &uid, 20);
        let after = "app#0: 100m 30Mi, peer#0: 100m 50Mi, pod: 200m 80Mi";
        sim.until("it is tried again", 15 * SECOND, |sim| {
            actual(sim, tree, &uid) == after && in_progress(sim, "web").is_none()
        })
        .await;
    });
}

/// Reasons and counts of all events of resizes in the API.
fn sent(sim: &NodeSim) -> Vec<String> {
    let events = sim.api.list::<Event>().into_iter();
    let resizes = events.filter_map(|event| {
        let reason = event.reason.filter(|reason| reason.starts_with("Resize"))?;
        Some(format!("{reason} x{}", event.count.unwrap_or(1)))
    });
    let mut resizes: Vec<_> = resizes.collect();
    resizes.sort();
    resizes
}

/// The agent restarts during a resize and after it, also without its checkpoint, as after another
/// kubelet.
#[test]
fn agent_restart_repeats_no_event_of_a_resize() {
    for has_checkpoint in [true, false] {
        on_a_node_with_cgroups(2105, async |sim, tree| {
            let restart = async |sim: &mut NodeSim| {
                sim.kill_agent().await;
                let dir = sim.admitted_pods.clone().expect("a directory");
                if !has_checkpoint {
                    std::fs::remove_file(dir.join("admitted_pods")).expect("removed");
                }
                sim.start_agent().await;
                sim.pass(MINUTE).await;
            };
            let uid = running(sim, sized("web", (100, 50))).await;
            use_memory(sim, tree, &uid, 40);
            resize(sim, "web", "app", (100, 30));
            sim.until("an error", 10 * SECOND, |sim| {
                in_progress(sim, "web").is_some_and(|it| it.starts_with("Error"))
            })
            .await;
            // recorded in the checkpoint, with the condition
            sim.api.modify::<Pod>(Some("default"), "web", |pod| {
                let labels = pod.metadata.labels.get_or_insert_default();
                labels.insert("tier".to_owned(), "front".to_owned());
            });
            sim.pass(10 * SECOND).await;
            restart(sim).await;
            assert_eq!(sent(sim), ["ResizeError x1", "ResizeStarted x1"]);
            assert_eq!(resizes(sim), 1);
            use_memory(sim, tree, &uid, 20);
            sim.until("it is done", MINUTE, |sim| {
                in_progress(sim, "web").is_none()
            })
            .await;
            sim.pass(10 * SECOND).await;
            let all = ["ResizeCompleted x1", "ResizeError x1", "ResizeStarted x1"];
            assert_eq!(sent(sim), all);
            restart(sim).await;
            assert_eq!(sent(sim), all, "with a checkpoint: {has_checkpoint}");
            assert_eq!((resizes(sim), restarts(sim, "web")), (0, 0));
        });
    }
}

/// The checkpoint has an older status than the API, and the first sync waits for a ConfigMap.
#[test]
fn agent_restart_keeps_reported_resources() {
    on_a_node_with_cgroups(2111, async |sim, _| {
        let mut settings = ConfigMap::default();
        settings.metadata.name = Some("settings".to_owned());
        settings.metadata.namespace = Some("default".to_owned());
        sim.api.create(&settings);
        let with_settings = |pod: &mut Pod| {
            let volume = json!([{"name": "conf", "configMap": {"name": "settings"}}]);
            pod.spec.get_or_insert_default().volumes = parse(volume);
        };
        running(sim, sized("web", (100, 50)).with(with_settings)).await;
        sim.pass(10 * SECOND).await;
        sim.kill_agent().await;
        sim.api.clear_requests();
        for (path, delay) in [("/api/v1/pods", SECOND), ("*/configmaps*", 3 * SECOND)] {
            sim.api.faults().slow(On::path(path), delay);
        }
        sim.start_agent().await;
        sim.pass(MINUTE).await;
        let requests = sim.api.requests();
        let changes = requests.iter().filter(|it| it.method == "PATCH");
        let changes = changes.filter(|it| it.body["status"]["resources"] != Value::Null);
        let changes: Vec<String> = changes.map(|it| it.body.to_string()).collect();
        assert_eq!(changes, Vec::<String>::new());
    });
}

/// The result of a sync counts only for the sizes with which it began.
#[test]
fn sizes_allocated_during_a_resize_end_with_their_own_sync() {
    on_a_node_with_cgroups(2113, async |sim, tree| {
        let uid = running(sim, sized("web", (100, 50))).await;
        sim.runtime
            .set_latency(Operation::UpdateContainer, 5 * SECOND);
        resize(sim, "web", "app", (200, 50));
        sim.pass(2 * SECOND).await;
        resize(sim, "web", "app", (300, 50));
        sim.until("it is complete", MINUTE, |sim| {
            !events(sim, "web", "ResizeCompleted").is_empty()
        })
        .await;
        let done = "app#0: 300m 50Mi, peer#0: 100m 50Mi, pod: 400m 100Mi";
        assert_eq!(actual(sim, tree, &uid), done);
        sim.pass(MINUTE).await;
        assert_eq!(events(sim, "web", "ResizeCompleted").len(), 1);
        assert_eq!(in_progress(sim, "web"), None);
    });
}

#[test]
fn resize_requested_without_an_agent_has_its_events() {
    let cases = [(false, true), (false, false), (true, true), (true, false)];
    for (is_pod_level, has_checkpoint) in cases {
        on_a_node_with_cgroups(2112, async |sim, tree| {
            let set = |size: Size| {
                move |pod: &mut Pod| match is_pod_level {
                    true => pod.spec.get_or_insert_default().resources = parse(resources(size)),
                    false => spec(pod, "app").resources = parse(resources(size)),
                }
            };
            let pod = PodBuilder::new("web")
                .bound_to(NODE)
                .container("app", "busybox:1")
                .container("peer", "busybox:1")
                .with(set((200, 100)));
            let uid = running(sim, pod).await;
            sim.pass(10 * SECOND).await;
            sim.kill_agent().await;
            let larger = set((400, 300));
            sim.api.modify::<Pod>(Some("default"), "web", larger);
            let dir = sim.admitted_pods.clone().expect("a directory");
            if !has_checkpoint {
                std::fs::remove_file(dir.join("admitted_pods")).expect("removed");
            }
            sim.start_agent().await;
            sim.until("it is done", MINUTE, |sim| {
                actual(sim, tree, &uid).starts_with("app#0: 400m 300Mi")
            })
            .await;
            sim.pass(10 * SECOND).await;
            let all = ["ResizeCompleted x1", "ResizeStarted x1"];
            assert_eq!(sent(sim), all, "{is_pod_level} {has_checkpoint}");
            assert_eq!(in_progress(sim, "web"), None);
        });
    }
}

#[test]
fn container_restarts_if_its_policy_requires_it() {
    on_a_node_with_cgroups(2103, async |sim, tree| {
        let uid = running(sim, restarting(sized("web", (100, 50)))).await;
        resize(sim, "web", "app", (150, 50));
        let cpu = "app#0: 150m 50Mi, peer#0: 100m 50Mi, pod: 250m 100Mi";
        settled(sim, tree, &uid, "web", cpu).await;
        resize(sim, "web", "app", (200, 80));
        let both = "app#1: 200m 80Mi, peer#0: 100m 50Mi, pod: 300m 130Mi";
        settled(sim, tree, &uid, "web", both).await;
        assert_eq!(restarts(sim, "web"), 1);
        let killing = events(sim, "web", "Killing");
        assert_eq!(killing, ["Container app resize requires restart"]);
        // the usage of a container that is restarted does not count
        use_memory(sim, tree, &uid, 45);
        resize(sim, "web", "app", (100, 10));
        sim.until("it restarts", MINUTE, |sim| restarts(sim, "web") == 2)
            .await;
        sim.pass(5 * SECOND).await;
        let kept = "app#2: 100m 10Mi, peer#0: 100m 50Mi, pod: 300m 130Mi";
        assert_eq!(actual(sim, tree, &uid), kept);
        use_memory(sim, tree, &uid, 5);
        let last = "app#2: 100m 10Mi, peer#0: 100m 50Mi, pod: 200m 60Mi";
        settled(sim, tree, &uid, "web", last).await;
        // an agent restart changes nothing
        sim.kill_agent().await;
        sim.runtime.clear_calls();
        sim.start_agent().await;
        sim.pass(2 * MINUTE).await;
        assert_eq!(actual(sim, tree, &uid), last);
        assert_eq!(updates(sim, "web"), 0);
    });
}

#[test]
fn hung_resize_of_one_pod_holds_no_other() {
    on_a_node_with_cgroups(2104, async |sim, tree| {
        let first = running(sim, sized("first", (100, 50))).await;
        let second = running(sim, sized("second", (100, 50))).await;
        sim.runtime
            .inject(Fault::hang(Operation::UpdateContainer).on("default/first"));
        resize(sim, "first", "app", (200, 50));
        sim.pass(SECOND).await;
        resize(sim, "second", "app", (200, 50));
        let large = "app#0: 200m 50Mi, peer#0: 100m 50Mi, pod: 300m 100Mi";
        sim.until("the other is resized", 2 * SECOND, |sim| {
            actual(sim, tree, &second) == large && in_progress(sim, "second").is_none()
        })
        .await;
        sim.until("the cause is shown", MINUTE, |sim| {
            sim.blocker("first") == "RuntimeCallHung"
        })
        .await;
        // another resize replaces the one that hangs
        resize(sim, "first", "app", (300, 50));
        sim.pass(SECOND).await;
        sim.runtime.release(Operation::UpdateContainer);
        let last = "app#0: 300m 50Mi, peer#0: 100m 50Mi, pod: 400m 100Mi";
        settled(sim, tree, &first, "first", last).await;

        // a pod is deleted during its resize
        sim.runtime
            .inject(Fault::hang(Operation::UpdateContainer).on("default/first"));
        resize(sim, "first", "app", (100, 50));
        sim.pass(SECOND).await;
        delete(sim, "first", None);
        sim.until("it is gone", MINUTE, |sim| get(sim, "first").is_none())
            .await;
        assert_eq!(resizes(sim), 0);
    });
}

#[test]
fn refused_and_unanswered_resizes_are_tried_again() {
    on_a_node_with_cgroups(2105, async |sim, tree| {
        let uid = running(sim, sized("web", (100, 50))).await;
        let refusal = "permission denied";
        let refuse = |operation| Fault::fail(operation, 2, CriCode::Other, refusal);
        for operation in [Operation::UpdateContainer, Operation::UpdatePodSandbox] {
            sim.runtime.inject(refuse(operation));
            let cpu = if operation == Operation::UpdateContainer {
                200
            } else {
                250
            };
            resize(sim, "web", "app", (cpu, 50));
            sim.until("the error is reported", 10 * SECOND, |sim| {
                let shown = in_progress(sim, "web").unwrap_or_default();
                shown.starts_with("Error ") && shown.contains(refusal)
            })
            .await;
            let pod = cpu + 100;
            let done = format!("app#0: {cpu}m 50Mi, peer#0: 100m 50Mi, pod: {pod}m 100Mi");
            settled(sim, tree, &uid, "web", &done).await;
        }
        // an older runtime does not know the call
        sim.runtime.inject(Fault::fail(
            Operation::UpdatePodSandbox,
            100,
            CriCode::Unimplemented,
            "unknown method",
        ));
        // applied, but the reply is lost: not set again
        sim.runtime.clear_calls();
        sim.runtime
            .inject(Fault::lose_reply(Operation::UpdateContainer, 1));
        resize(sim, "web", "app", (300, 50));
        let done = "app#0: 300m 50Mi, peer#0: 100m 50Mi, pod: 400m 100Mi";
        settled(sim, tree, &uid, "web", done).await;
        assert_eq!(updates(sim, "web"), 1);
        // and the size before is set again
        resize(sim, "web", "app", (250, 50));
        let done = "app#0: 250m 50Mi, peer#0: 100m 50Mi, pod: 350m 100Mi";
        settled(sim, tree, &uid, "web", done).await;

        // a cgroup that cannot be written
        tree.set_read_only("cpu");
        resize(sim, "web", "app", (400, 50));
        sim.until("the error is reported", 10 * SECOND, |sim| {
            let shown = in_progress(sim, "web").unwrap_or_default();
            shown.starts_with("Error cannot set cgroup cpu:")
        })
        .await;
        tree.set_writable("cpu");
        let done = "app#0: 400m 50Mi, peer#0: 100m 50Mi, pod: 500m 100Mi";
        settled(sim, tree, &uid, "web", done).await;
        assert_eq!(restarts(sim, "web"), 0);
    });
}

#[test]
fn runtime_that_rounds_or_reports_nothing_is_not_asked_again() {
    for (seed, reported) in [
        (2106, ReportedResources::RoundedShares),
        (2107, ReportedResources::Nothing),
    ] {
        on_a_node_with_cgroups(seed, async |sim, tree| {
            sim.runtime.report_resources(reported);
            let uid = running(sim, sized("web", (100, 50))).await;
            sim.pass(3 * MINUTE).await;
            sim.runtime.clear_calls();
            resize(sim, "web", "app", (205, 50));
            let done = "app#0: 205m 50Mi, peer#0: 100m 50Mi, pod: 305m 100Mi";
            settled(sim, tree, &uid, "web", done).await;
            sim.pass(5 * MINUTE).await;
            assert_eq!(updates(sim, "web"), 1, "{reported:?}");
            assert_eq!(in_progress(sim, "web"), None);
            sim.kill_agent().await;
            sim.start_agent().await;
            sim.pass(5 * MINUTE).await;
            assert!(updates(sim, "web") <= 3, "once for each container");
            assert_eq!(actual(sim, tree, &uid), done);
        });
    }
}

#[test]
fn init_containers_and_sidecars_are_resized_while_they_run() {
    on_a_node_with_cgroups(2108, async |sim, tree| {
        let set = |c: &mut Container| c.resources = parse(resources((100, 50)));
        let pod = PodBuilder::new("web")
            .bound_to(NODE)
            .init_container_with("peer", "busybox:1", |c| {
                set(c);
                c.restart_policy = Some("Always".to_owned());
            })
            .init_container_with("app", "busybox:1", set)
            .container_with("main", "busybox:1", set)
            .grace(1);
        let uid = sim.api.create(&pod.build()).uid();
        sim.until("it runs", 10 * SECOND, |sim| {
            ["app", "peer"]
                .iter()
                .all(|name| sim.runtime.running(&uid, name).is_some())
        })
        .await;
        resize(sim, "web", "app", (300, 90));
        settled(
            sim,
            tree,
            &uid,
            "web",
            "app#0: 300m 90Mi, peer#0: 100m 50Mi, pod: 400m 140Mi",
        )
        .await;
        resize(sim, "web", "peer", (200, 60));
        let done = "app#0: 300m 90Mi, peer#0: 200m 60Mi, pod: 500m 150Mi";
        settled(sim, tree, &uid, "web", done).await;
        let new = r#"{"cpu":"200m","memory":"60Mi"}"#;
        assert_eq!(reported(sim, "web", "peer"), format!("{new} {new} {new}"));
    });
}

#[test]
fn pod_level_resize_changes_cgroup_and_unlimited_containers() {
    on_a_node_with_cgroups(2109, async |sim, tree| {
        let pod_level = |size: Size| {
            move |pod: &mut Pod| {
                pod.spec.get_or_insert_default().resources = parse(resources(size));
            }
        };
        let pod = PodBuilder::new("web")
            .bound_to(NODE)
            .container("app", "busybox:1")
            .container("peer", "busybox:1")
            .grace(1);
        let uid = running(sim, pod.with(pod_level((200, 100)))).await;
        let before = "app#0: 200m 100Mi, peer#0: 200m 100Mi, pod: 200m 100Mi";
        assert_eq!(actual(sim, tree, &uid), before);
        let api = &sim.api;
        api.modify::<Pod>(Some("default"), "web", pod_level((400, 300)));
        let done = "app#0: 400m 300Mi, peer#0: 400m 300Mi, pod: 400m 300Mi";
        settled(sim, tree, &uid, "web", done).await;
        let status = get(sim, "web").and_then(|pod| pod.status).expect("status");
        let amounts = json!({"cpu": "400m", "memory": "300Mi"});
        let expected = json!({"requests": amounts, "limits": amounts});
        assert_eq!(json!(status.resources), expected);
        assert_eq!(json!(status.allocated_resources), amounts);
        let sandbox = &sim.runtime.sandboxes()[0].0;
        let told = sim.runtime.sandbox_config(sandbox).expect("a sandbox");
        let told = told.resources.expect("resources");
        assert_eq!((told.cpu_quota, told.memory_limit), (40_000, 300 * MIB));
    });
}

#[test]
fn kill_of_the_agent_at_any_point_of_a_resize_converges() {
    let grown = "app#0: 200m 80Mi, peer#0: 100m 50Mi, pod: 300m 130Mi";
    let shrunk = "app#0: 50m 20Mi, peer#0: 100m 50Mi, pod: 150m 70Mi";
    let restarted = "app#1: 200m 80Mi, peer#0: 100m 50Mi, pod: 300m 130Mi";
    let cases = [
        (false, (200, 80), grown),
        (false, (50, 20), shrunk),
        (true, (200, 80), restarted),
    ];
    for (restart, size, expected) in cases {
        // every call takes 10 ms: a kill in each of them
        for step in 0..30 {
            on_a_node_with_cgroups(2200 + step, async |sim, tree| {
                let pod = sized("web", (100, 50));
                let pod = if restart { restarting(pod) } else { pod };
                let uid = running(sim, pod).await;
                use_memory(sim, tree, &uid, 10);
                sim.pass(10 * SECOND).await;
                for operation in [
                    Operation::UpdatePodSandbox,
                    Operation::UpdateContainer,
                    Operation::StopContainer,
                    Operation::CreateContainer,
                    Operation::StartContainer,
                    Operation::ImageStatus,
                    Operation::ListPodSandboxes,
                    Operation::ListContainers,
                    Operation::PodSandboxStatus,
                    Operation::ContainerStatus,
                ] {
                    sim.runtime
                        .set_latency(operation, Duration::from_millis(10));
                }
                resize(sim, "web", "app", size);
                sim.pass(Duration::from_millis(10 * step + 5)).await;
                sim.kill_agent().await;
                sim.pass(Duration::from_millis(100)).await;
                sim.start_agent().await;
                settled(sim, tree, &uid, "web", expected).await;
                sim.pass(MINUTE).await;
                assert_eq!(actual(sim, tree, &uid), expected, "killed at step {step}");
                assert_eq!(in_progress(sim, "web"), None);
                assert_eq!(restarts(sim, "web"), i32::from(restart), "step {step}");
                let events = sent(sim);
                assert!(
                    events.contains(&"ResizeCompleted x1".to_owned()),
                    "step {step}: {events:?}"
                );
                sim.runtime.assert_no_duplicate_live_instances();
            });
        }
    }
}
