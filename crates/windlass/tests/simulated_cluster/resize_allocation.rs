//! Resizes: a changed spec changes nothing until the node has allocated it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use windlass_cgroups::MemoryTree;
use windlass_runtime::CgroupSettings;
use windlass_runtime_config::pod_cgroup::NodeLimits;
use windlass_status::PodExplainer;
use windlass_store::{PodResourceFiles, Store};
use windlass_testing::fake_runtime::{Behavior, Operation};
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::corev1::{Event, Node};
use windlass_types::cri::CgroupDriver;
use windlass_types::{AllocatedResources, Pod, PodExt, PodUid};

use crate::fixture::*;
use crate::{MINUTE, SECOND};

/// A pod that requests CPUs (of 1000 on the node) and as much memory as it may use.
fn sized(name: &str, cpus: &str, memory: &str) -> PodBuilder {
    pod(name).with(|pod| resize(pod, cpus, memory))
}

fn resize(pod: &mut Pod, cpus: &str, memory: &str) {
    let resources = json!({
        "requests": { "cpu": cpus, "memory": memory },
        "limits": { "memory": memory },
    });
    let spec = pod.spec.get_or_insert_default();
    spec.containers[0].resources = serde_json::from_value(resources).expect("resources");
}

/// Changes the sizes at the API server.
fn request_resize(sim: &NodeSim, name: &str, cpus: &str, memory: &str) {
    sim.api
        .modify::<Pod>(Some("default"), name, |pod| resize(pod, cpus, memory));
}

fn cgroups(tree: &MemoryTree) -> CgroupSettings {
    CgroupSettings {
        tree: Arc::new(tree.clone()),
        slices: None,
        root: String::new(),
        driver: CgroupDriver::Cgroupfs,
        node: NodeLimits {
            milli_cpu: 1_000_000,
            memory: 1 << 42,
            pids: 1000,
        },
        pids_limit: None,
        reserved: Vec::new(),
        qos_memory: None,
    }
}

/// CPU shares and memory limit of the container and of the cgroup of its pod.
fn sizes(sim: &NodeSim, tree: &MemoryTree, uid: &PodUid) -> [String; 2] {
    let running = sim.runtime.running(uid, "app").expect("a container");
    let config = sim.runtime.container_config(&running.id).expect("a config");
    let resources = config.resources;
    let file = |name: &str| {
        let path = format!("/kubepods/burstable/pod{uid}/{name}");
        tree.file(&path).unwrap_or_default()
    };
    [
        format!("{} {}", resources.cpu_shares, resources.memory_limit),
        format!("{} {}", file("cpu.shares"), file("memory.limit_in_bytes")),
    ]
}

async fn restart_container(sim: &NodeSim, uid: &PodUid) {
    let running = sim.runtime.running(uid, "app").expect("a container");
    sim.runtime.kill_container(&running.id, 1);
    sim.until("it restarts", 2 * MINUTE, |sim| {
        let now = sim.runtime.running(uid, "app");
        now.is_some_and(|now| now.id != running.id)
    })
    .await;
}

#[test]
fn sizes_that_are_not_allocated_change_nothing() {
    on_a_ready_node(201, async |sim| {
        let dir = tempfile::tempdir().expect("a directory");
        let tree = MemoryTree::v1(&["cpu", "memory", "pids"]);
        sim.kill_agent().await;
        sim.cgroups = Some(cgroups(&tree));
        sim.admitted_pods = Some(dir.path().to_owned());
        sim.start_agent().await;
        let web = create(sim, sized("web", "2", "64Mi"));
        sim.until("it runs", 10 * SECOND, |sim| ready(sim, "web"))
            .await;
        let allocated = ["2048 67108864", "2048 67108864"].map(str::to_owned);
        assert_eq!(sizes(sim, &tree, &web), allocated);

        // more than the node has
        request_resize(sim, "web", "2000", "32Mi");
        sim.pass(5 * SECOND).await;
        restart_container(sim, &web).await;
        assert_eq!(sizes(sim, &tree, &web), allocated);
        // the allocated value is counted
        create(sim, sized("large", "900", "1Gi"));
        sim.until("another runs", 5 * SECOND, |sim| ready(sim, "large"))
            .await;

        sim.kill_agent().await;
        sim.start_agent().await;
        sim.until("the agent knows it", MINUTE, |sim| {
            sim.phase("web") == "Running"
        })
        .await;
        restart_container(sim, &web).await;
        assert_eq!(sizes(sim, &tree, &web), allocated);
        let next = create(sim, sized("next", "98", "1Gi"));
        sim.until("another runs", 5 * SECOND, |sim| runs(sim, &next))
            .await;
    });
}

/// CPU request of a pod in a checkpoint that the Go kubelet reads, too.
fn checkpointed_cpu(dir: &Path, file: &str, uid: &PodUid) -> Option<String> {
    let text = std::fs::read_to_string(dir.join(file)).expect("a checkpoint");
    let checkpoint: Value = serde_json::from_str(&text).expect("JSON");
    let data: Value = serde_json::from_str(checkpoint["data"].as_str()?).expect("JSON");
    let container = &data["entries"][uid.as_str()]["ContainerResources"]["app"];
    Some(container["requests"]["cpu"].as_str()?.to_owned())
}

#[test]
fn go_kubelet_finds_and_leaves_allocated_sizes() {
    on_a_ready_node(212, async |sim| {
        let dir = tempfile::tempdir().expect("a directory");
        let cpu = |file: &str, uid: &PodUid| checkpointed_cpu(dir.path(), file, uid);
        sim.kill_agent().await;
        sim.admitted_pods = Some(dir.path().to_owned());
        sim.start_agent().await;
        let [web, gone] = ["web", "gone"].map(|name| create(sim, sized(name, "2", "64Mi")));
        sim.until("both run", 10 * SECOND, |sim| {
            ready(sim, "web") && ready(sim, "gone")
        })
        .await;
        request_resize(sim, "web", "2000", "64Mi");
        let message = lacks_cpu(2000, 2);
        until_pending(sim, "web", &format!("Deferred 2: {message}")).await;
        request_resize(sim, "web", "3", "64Mi");
        until_allocated(sim, "web", "3").await;
        sim.runtime.set_latency(Operation::UpdateContainer, MINUTE);
        request_resize(sim, "web", "1", "64Mi");
        until_allocated(sim, "web", "1").await;
        sim.pass(SECOND).await;
        assert_eq!(cpu("allocated_pods_state", &web).as_deref(), Some("1"));
        assert_eq!(cpu("actuated_pods_state", &web).as_deref(), Some("3"));
        sim.pass(2 * MINUTE).await;
        assert_eq!(cpu("actuated_pods_state", &web).as_deref(), Some("1"));
        request_resize(sim, "web", "2000", "64Mi");
        until_pending(sim, "web", &format!("Deferred 5: {message}")).await;
        sim.kill_agent().await;

        // the Go kubelet allocates another size, and does not know the checkpoint of this agent
        delete(sim, "gone", Some(0));
        let store = Store::open(dir.path()).expect("a directory");
        let (files, allocated) = PodResourceFiles::open(&store).expect("checkpoints");
        let mut resources = allocated[&web].clone();
        let container = resources.containers.get_mut("app").expect("a container");
        let requests = container.requests.get_or_insert_default();
        requests.insert("cpu".to_owned(), Quantity("4".to_owned()));
        files.allocated.record(&web, &resources);
        files.allocated.flush().await.expect("written");

        sim.start_agent().await;
        sim.until("the agent knows it", MINUTE, |sim| {
            sim.phase("web") == "Running"
        })
        .await;
        assert_eq!(allocated_cpu(sim, "web"), "4");
        sim.pass(3 * MINUTE).await;
        assert_eq!(allocated_cpu(sim, "web"), "4");
        assert_eq!(cpu("actuated_pods_state", &web).as_deref(), Some("4"));
        for file in ["allocated_pods_state", "actuated_pods_state"] {
            assert_eq!(cpu(file, &gone), None, "{file}");
        }
        assert_eq!(restarts(sim, "web"), 0);
    });
}

/// The condition `PodResizePending` of a pod in the API, as `reason generation: message`.
fn pending(sim: &NodeSim, name: &str) -> String {
    let conditions = get(sim, name).and_then(|pod| pod.status?.conditions);
    let mut conditions = conditions.into_iter().flatten();
    let Some(condition) = conditions.find(|c| c.type_ == "PodResizePending") else {
        return String::new();
    };
    format!(
        "{} {}: {}",
        condition.reason.unwrap_or_default(),
        condition.observed_generation.unwrap_or_default(),
        condition.message.unwrap_or_default(),
    )
}

/// CPU request that is allocated to the container.
fn allocated_cpu(sim: &NodeSim, name: &str) -> String {
    let pod = sim.view(name).expect("an entry").pod;
    let spec = pod.spec.clone().unwrap_or_default();
    let resources = spec.containers[0].resources.clone().unwrap_or_default();
    let requests = resources.requests.unwrap_or_default();
    requests
        .get("cpu")
        .map_or_else(String::new, |cpu| cpu.0.clone())
}

async fn until_allocated(sim: &NodeSim, name: &str, cpus: &str) {
    sim.until("it is allocated", 10 * SECOND, |sim| {
        allocated_cpu(sim, name) == cpus && pending(sim, name).is_empty()
    })
    .await;
}

async fn until_pending(sim: &NodeSim, name: &str, expected: &str) {
    sim.until(expected, 5 * SECOND, |sim| pending(sim, name) == expected)
        .await;
}

/// Messages of the events of a pod with a reason, with their counts.
fn events(sim: &NodeSim, name: &str, reason: &str) -> Vec<(i32, String)> {
    let events = sim.api.list::<Event>().into_iter();
    let of_pod = events.filter(|event| event.involved_object.name.as_deref() == Some(name));
    let with_reason = of_pod.filter(|event| event.reason.as_deref() == Some(reason));
    with_reason
        .map(|event| (event.count.unwrap_or(1), event.message.unwrap_or_default()))
        .collect()
}

fn lacks_cpu(requested: u32, used: u32) -> String {
    format!(
        "Node didn't have enough resource: cpu, requested: {}, used: {}, capacity: 1000000",
        requested * 1000,
        used * 1000
    )
}

async fn run_all(sim: &NodeSim, pods: impl IntoIterator<Item = PodBuilder>) {
    for pod in pods {
        create(sim, pod);
    }
    sim.until("all run", 20 * SECOND, |sim| {
        let pods = sim.api.list::<Pod>();
        pods.iter()
            .all(|pod| phase_of(pod) == "Running" && is_ready(pod))
    })
    .await;
}

#[test]
fn deferred_resize_is_allocated_when_pod_is_removed() {
    on_a_ready_node(202, async |sim| {
        run_all(
            sim,
            [sized("web", "2", "64Mi"), sized("large", "900", "1Gi")],
        )
        .await;
        request_resize(sim, "web", "200", "64Mi");
        let message = lacks_cpu(200, 900);
        until_pending(sim, "web", &format!("Deferred 2: {message}")).await;
        assert_eq!(allocated_cpu(sim, "web"), "2");
        let status = get(sim, "web").and_then(|pod| pod.status);
        assert_eq!(
            status.and_then(|status| status.observed_generation),
            Some(2)
        );
        let metrics = sim.metrics.sync_loop.clone();
        let deferred = || {
            metrics
                .pending_resizes
                .with_label_values(&["deferred"])
                .get()
        };
        assert_eq!(deferred(), 1.0);
        let requested = metrics
            .requested_resizes
            .with_label_values(&["cpu", "requests", "increase"]);
        assert_eq!(requested.get(), 1.0);

        // unsuccessful retries change nothing
        sim.pass(10 * MINUTE).await;
        let sizes = "\"resources\":{\"limits\":{\"memory\":\"64Mi\"},\
                     \"requests\":{\"cpu\":\"200\",\"memory\":\"64Mi\"}}";
        let text = format!(
            "Pod resize OutOfcpu: {{\"containers\":[{{\"name\":\"app\",{sizes}}}],\
             \"generation\":2,\"error\":\"{message}\"}}"
        );
        assert_eq!(events(sim, "web", "ResizeDeferred"), [(1, text)]);

        delete(sim, "large", Some(0));
        until_allocated(sim, "web", "200").await;
        let accepted = &metrics.deferred_accepted_resizes;
        let accepted = ["pods_removed", "pod_terminated"]
            .map(|trigger| accepted.with_label_values(&[trigger]).get());
        assert_eq!(accepted.iter().sum::<f64>(), 1.0);
        assert_eq!(deferred(), 0.0);
        assert_eq!(restarts(sim, "web"), 0);
    });
}

fn label_node(sim: &NodeSim, tier: &str) {
    sim.api.modify::<Node>(None, NODE, |node| {
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert("tier".to_owned(), tier.to_owned());
    });
}

#[test]
fn deferred_resize_is_retried_every_three_minutes() {
    on_a_ready_node(203, async |sim| {
        label_node(sim, "front");
        sim.pass(SECOND).await;
        let web = sized("web", "2", "64Mi").with(|pod| {
            let selector = [("tier".to_owned(), "front".to_owned())];
            pod.spec.get_or_insert_default().node_selector = Some(selector.into());
        });
        run_all(sim, [web]).await;
        label_node(sim, "back");
        sim.pass(SECOND).await;
        request_resize(sim, "web", "4", "64Mi");
        let expected = "Deferred 2: Predicate NodeAffinity failed: node(s) didn't match Pod's node \
                        affinity/selector";
        until_pending(sim, "web", expected).await;
        label_node(sim, "front");
        sim.pass(2 * MINUTE).await;
        assert_eq!(allocated_cpu(sim, "web"), "2");
        sim.until("a retry", MINUTE + 5 * SECOND, |sim| {
            allocated_cpu(sim, "web") == "4"
        })
        .await;
        let accepted = &sim.metrics.sync_loop.deferred_accepted_resizes;
        assert_eq!(accepted.with_label_values(&["periodic_retry"]).get(), 1.0);
    });
}

#[test]
fn explanation_says_why_a_resize_waits() {
    on_a_ready_node(211, async |sim| {
        run_all(sim, [sized("web", "2", "64Mi")]).await;
        request_resize(sim, "web", "2000", "64Mi");
        let message = lacks_cpu(2000, 0);
        until_pending(sim, "web", &format!("Deferred 2: {message}")).await;
        let agent = sim.agent().expect("an agent");
        let explainer = PodExplainer {
            status_store: agent.status_store.clone(),
            timelines: agent.timelines.clone(),
            eviction: agent.eviction.clone(),
            node_name: NODE.to_owned(),
        };
        let explain = || explainer.explanation("default", "web").expect("known");
        let resize = explain().resize.expect("a resize");
        assert_eq!((&*resize.reason, &*resize.message), ("Deferred", &*message));
        assert!(resize.next_retry.expect("a retry") > sim.now());
        let store = &agent.status_store;
        let uid = get(sim, "web").expect("a pod").uid();
        let requested = store.requested(&uid).expect("sizes").resources;
        let container = requested.containers.get("app").expect("a container");
        let requests = container.requests.clone().unwrap_or_default();
        assert_eq!(requests["cpu"].0, "2000");
        let failed = format!("admission resize failed: {message}");
        let records = explain()
            .records
            .into_iter()
            .map(|record| record.to_string());
        let decisions = records.filter(|line| line.starts_with("admission resize"));
        assert_eq!(decisions.collect::<Vec<_>>(), [failed]);

        request_resize(sim, "web", "4", "64Mi");
        until_allocated(sim, "web", "4").await;
        assert_eq!(explain().resize, None);
        assert_eq!(store.requested(&uid), None);
    });
}

#[test]
fn waiting_resizes_are_allocated_by_growth_and_priority() {
    on_a_ready_node(204, async |sim| {
        let priority = |builder: PodBuilder, priority: i32| {
            builder.with(|pod| pod.spec.get_or_insert_default().priority = Some(priority))
        };
        let pods = [
            sized("large", "600", "1Gi"),
            priority(sized("low", "100", "1Gi"), 1),
            priority(sized("high", "100", "1Gi"), 2),
        ];
        run_all(sim, pods).await;
        request_resize(sim, "low", "600", "1Gi");
        request_resize(sim, "high", "700", "1Gi");
        for (name, requested, used) in [("low", 600, 700), ("high", 700, 700)] {
            let expected = format!("Deferred 2: {}", lacks_cpu(requested, used));
            until_pending(sim, name, &expected).await;
        }
        // there is room for one of them
        delete(sim, "large", Some(0));
        until_allocated(sim, "high", "700").await;
        assert_eq!(allocated_cpu(sim, "low"), "100");
        until_pending(sim, "low", &format!("Deferred 2: {}", lacks_cpu(600, 700))).await;
        // a shrinking one makes room when it is in effect
        request_resize(sim, "high", "300", "1Gi");
        until_allocated(sim, "high", "300").await;
        until_allocated(sim, "low", "600").await;
    });
}

#[test]
fn reverted_and_replaced_resizes_leave_last_one() {
    on_a_ready_node(205, async |sim| {
        run_all(sim, [sized("web", "2", "64Mi")]).await;
        request_resize(sim, "web", "1001", "64Mi");
        until_pending(sim, "web", &format!("Deferred 2: {}", lacks_cpu(1001, 0))).await;
        request_resize(sim, "web", "2", "64Mi");
        sim.until("nothing is pending", 5 * SECOND, |sim| {
            pending(sim, "web").is_empty()
        })
        .await;
        request_resize(sim, "web", "1002", "64Mi");
        request_resize(sim, "web", "3", "64Mi");
        request_resize(sim, "web", "4", "64Mi");
        until_allocated(sim, "web", "4").await;
        sim.pass(MINUTE).await;
        assert_eq!(pending(sim, "web"), "");
        assert_eq!(restarts(sim, "web"), 0);
    });
}

#[test]
fn absurd_sizes_are_not_allocated() {
    on_a_ready_node(206, async |sim| {
        run_all(sim, [sized("web", "2", "64Mi")]).await;
        for (sizes, expected) in [
            (["-4", "64Mi"], "Infeasible 2: cpu: -4 is negative"),
            (["2", "-1"], "Infeasible 3: memory: -1 is negative"),
            (
                ["0", "0"],
                "Infeasible 4: Pod QOS Class may not change as a result of resizing",
            ),
        ] {
            request_resize(sim, "web", sizes[0], sizes[1]);
            until_pending(sim, "web", expected).await;
        }
        request_resize(sim, "web", "2", "1E");
        sim.until("it is deferred", 5 * SECOND, |sim| {
            pending(sim, "web").starts_with("Deferred 5: Node didn't have enough resource: memory")
        })
        .await;
        let infeasible = &sim.metrics.sync_loop.infeasible_resizes;
        assert_eq!(infeasible.with_label_values(&["qos_class"]).get(), 1.0);
        assert_eq!(events(sim, "web", "ResizeInfeasible").len(), 3);
        assert_eq!(allocated_cpu(sim, "web"), "2");
        // the agent allocates what is possible again
        request_resize(sim, "web", "3", "64Mi");
        until_allocated(sim, "web", "3").await;
        assert_eq!(restarts(sim, "web"), 0);
    });
}

#[test]
fn resize_during_deletion_is_not_allocated() {
    on_a_ready_node(207, async |sim| {
        sim.runtime
            .set_behavior("default/web/app", Behavior::stubborn());
        run_all(sim, [sized("web", "2", "64Mi").grace(20)]).await;
        delete(sim, "web", None);
        sim.pass(SECOND).await;
        request_resize(sim, "web", "4", "64Mi");
        sim.pass(5 * SECOND).await;
        assert_eq!(allocated_cpu(sim, "web"), "2");
        sim.until("it is gone", 30 * SECOND, |sim| get(sim, "web").is_none())
            .await;
    });
}

#[test]
fn changed_size_in_manifest_is_a_new_pod() {
    on_a_ready_node(208, async |sim| {
        let manifest = |uid: &str, cpus: &str| {
            let pod = static_pod("web").uid(uid);
            pod.with(|pod| resize(pod, cpus, "64Mi")).build()
        };
        sim.desire([manifest("first", "2")]).await;
        sim.until("it runs", 10 * SECOND, |sim| sim.phase("web") == "Running")
            .await;
        // a UID is the hash of the manifest
        sim.desire([manifest("second", "4")]).await;
        sim.until("the new one runs", 30 * SECOND, |sim| {
            runs(sim, &"second".into()) && !runs(sim, &"first".into())
        })
        .await;
        let events = sim.api.list::<Event>();
        let resizes = events.iter().filter(|event| {
            let reason = event.reason.as_deref().unwrap_or_default();
            reason.starts_with("Resize")
        });
        assert_eq!(resizes.count(), 0);
        assert_eq!(sim.runtime.starts(&"second".into(), "app"), 1);
    });
}

#[test]
fn critical_pod_preempts_others_to_grow() {
    on_a_ready_node(209, async |sim| {
        let vital = sized("vital", "2", "64Mi").with(|pod| {
            pod.spec.get_or_insert_default().priority = Some(2_000_000_000);
        });
        run_all(sim, [vital, sized("large", "900", "1Gi")]).await;
        request_resize(sim, "vital", "200", "64Mi");
        until_allocated(sim, "vital", "200").await;
        sim.until("the other has failed", 10 * SECOND, |sim| {
            phase(sim, "large") == "Failed"
        })
        .await;
        assert_eq!(restarts(sim, "vital"), 0);
    });
}

/// Starts the agent again, with the checkpoint of admitted pods in a directory.
async fn keep_admitted_pods(sim: &mut NodeSim) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    sim.kill_agent().await;
    sim.admitted_pods = Some(dir.path().to_owned());
    sim.start_agent().await;
    dir
}

/// Kills the agent at many moments after the request of a resize that it allocates.
#[test]
fn agent_kill_around_allocation_ends_in_the_same_state() {
    for moment in 0..25 {
        on_a_ready_node(210 + moment, async |sim| {
            let _dir = keep_admitted_pods(sim).await;
            run_all(
                sim,
                [sized("web", "2", "64Mi"), sized("other", "900", "1Gi")],
            )
            .await;
            request_resize(sim, "web", "4", "128Mi");
            request_resize(sim, "other", "2000", "1Gi");
            sim.pass(Duration::from_millis(4 * moment)).await;
            sim.kill_agent().await;
            sim.start_agent().await;
            sim.until("the agent knows it", MINUTE, |sim| {
                sim.phase("web") == "Running"
            })
            .await;
            until_allocated(sim, "web", "4").await;
            until_pending(sim, "other", &format!("Deferred 2: {}", lacks_cpu(2000, 4))).await;
            assert_eq!(allocated_cpu(sim, "other"), "900");
            assert_eq!([restarts(sim, "web"), restarts(sim, "other")], [0, 0]);
            // again if the agent was killed before it had sent the condition
            let events = events(sim, "other", "ResizeDeferred");
            assert!((1..=2).contains(&events.len()), "{events:?}");
        });
    }
}

#[test]
fn old_or_damaged_checkpoint_allocates_nothing() {
    for damage in ["none", "", "torn", "older"] {
        on_a_ready_node(240, async |sim| {
            let dir = keep_admitted_pods(sim).await;
            run_all(sim, [sized("web", "2", "64Mi")]).await;
            let admitted = get(sim, "web").expect("a pod");
            request_resize(sim, "web", "2000", "64Mi");
            let deferred = format!("Deferred 2: {}", lacks_cpu(2000, 0));
            until_pending(sim, "web", &deferred).await;
            sim.kill_agent().await;
            let path = dir.path().join("admitted_pods");
            match damage {
                "none" => {}
                "" => std::fs::remove_file(path).expect("removed"),
                "torn" => std::fs::write(path, "{\"version\":1,").expect("written"),
                _ => {
                    let pods = BTreeMap::from([(admitted.uid(), admitted)]);
                    let store = Store::open(dir.path()).expect("a directory");
                    store.save("admitted_pods", &pods).expect("written");
                }
            }
            sim.start_agent().await;
            sim.until("the agent knows it", MINUTE, |sim| {
                sim.phase("web") == "Running"
            })
            .await;
            sim.pass(MINUTE).await;
            until_pending(sim, "web", &deferred).await;
            assert_eq!(allocated_cpu(sim, "web"), "2", "{damage}");
            assert_eq!(restarts(sim, "web"), 0);
            let events = events(sim, "web", "ResizeDeferred");
            assert_eq!(events.len(), 1, "{damage}: {events:?}");
        });
    }
}

/// What the API server says of a pending resize changes while the agent is down.
#[test]
fn pending_resize_is_decided_again_when_the_agent_starts() {
    let without_condition = |pod: &mut Pod| {
        let status = pod.status.get_or_insert_default();
        let conditions = status.conditions.get_or_insert_default();
        conditions.retain(|condition| condition.type_ != "PodResizePending");
    };
    let decided = |pod: &mut Pod| {
        let conditions = pod
            .status
            .iter_mut()
            .flat_map(|it| it.conditions.iter_mut());
        let mut conditions = conditions.flatten();
        let condition = conditions.find(|it| it.type_ == "PodResizePending");
        let condition = condition.expect("a pending resize");
        condition.observed_generation = Some(3);
        condition.message = Some(lacks_cpu(300, 900));
    };
    for change in ["removed", "newer", "decided", "room"] {
        on_a_ready_node(270, async |sim| {
            let _dir = keep_admitted_pods(sim).await;
            let pods = [sized("web", "2", "64Mi"), sized("large", "900", "1Gi")];
            run_all(sim, pods).await;
            request_resize(sim, "web", "200", "64Mi");
            until_pending(sim, "web", &format!("Deferred 2: {}", lacks_cpu(200, 900))).await;
            sim.kill_agent().await;
            match change {
                // as the Go kubelet does with a pod that it has not decided on
                "removed" => {
                    sim.api
                        .modify::<Pod>(Some("default"), "web", without_condition);
                }
                "newer" => request_resize(sim, "web", "300", "64Mi"),
                // by another kubelet
                "decided" => {
                    request_resize(sim, "web", "300", "64Mi");
                    sim.api.modify::<Pod>(Some("default"), "web", decided);
                }
                _ => delete(sim, "large", Some(0)),
            }
            sim.start_agent().await;
            sim.until("the agent knows it", MINUTE, |sim| {
                sim.phase("web") == "Running"
            })
            .await;
            match change {
                "removed" => {
                    let expected = format!("Deferred 2: {}", lacks_cpu(200, 900));
                    until_pending(sim, "web", &expected).await;
                }
                "newer" => {
                    let expected = format!("Deferred 3: {}", lacks_cpu(300, 900));
                    until_pending(sim, "web", &expected).await;
                    sim.kill_agent().await;
                    sim.start_agent().await;
                    // never the older one again
                    for _ in 0..100 {
                        sim.pass(Duration::from_millis(100)).await;
                        assert_eq!(pending(sim, "web"), expected);
                    }
                    let events = events(sim, "web", "ResizeDeferred").into_iter();
                    let counts: Vec<i32> = events.map(|(count, _)| count).collect();
                    assert_eq!(counts, [1, 1]);
                }
                "decided" => {
                    sim.pass(MINUTE).await;
                    let expected = format!("Deferred 3: {}", lacks_cpu(300, 900));
                    assert_eq!(pending(sim, "web"), expected);
                    let events = events(sim, "web", "ResizeDeferred");
                    assert_eq!(events.len(), 1, "{events:?}");
                }
                _ => until_allocated(sim, "web", "200").await,
            }
        });
    }
}

/// The checkpoint has an older size than the API server when the agent starts.
#[test]
fn size_changed_while_the_agent_is_down_has_one_event() {
    on_a_ready_node(260, async |sim| {
        let _dir = keep_admitted_pods(sim).await;
        run_all(sim, [sized("web", "2", "64Mi")]).await;
        request_resize(sim, "web", "2000", "64Mi");
        until_pending(sim, "web", &format!("Deferred 2: {}", lacks_cpu(2000, 0))).await;
        sim.kill_agent().await;
        request_resize(sim, "web", "3000", "64Mi");
        // is delivered before the update
        create(sim, sized("new", "1", "64Mi"));
        sim.start_agent().await;
        until_pending(sim, "web", &format!("Deferred 3: {}", lacks_cpu(3000, 1))).await;
        sim.pass(MINUTE).await;
        let events = events(sim, "web", "ResizeDeferred").into_iter();
        let mut generations: Vec<_> = events
            .filter_map(|(count, text)| {
                let (_, rest) = text.split_once("\"generation\":")?;
                Some(format!("{} x{count}", &rest[..1]))
            })
            .collect();
        generations.sort();
        assert_eq!(generations, ["2 x1", "3 x1"]);
    });
}

#[test]
fn sidecars_init_containers_and_pod_level_are_allocated() {
    on_a_ready_node(250, async |sim| {
        let resources = |cpus: &str| serde_json::from_value(json!({"requests": {"cpu": cpus}}));
        let set = |pod: &mut Pod, cpus: [&str; 4]| {
            let spec = pod.spec.get_or_insert_default();
            spec.resources = resources(cpus[0]).expect("resources");
            let inits = spec.init_containers.iter_mut().flatten();
            for (container, cpus) in spec.containers.iter_mut().chain(inits).zip(&cpus[1..]) {
                container.resources = resources(cpus).expect("resources");
            }
        };
        sim.runtime
            .set_behavior("default/web/init", Behavior::exits(SECOND, 0));
        let web = pod("web").init_container("init", "busybox:1");
        let web = web.init_container_with("sidecar", "busybox:1", |container| {
            container.restart_policy = Some("Always".to_owned());
        });
        run_all(sim, [web.with(|pod| set(pod, ["9", "1", "1", "1"]))]).await;
        let live = sim.api.modify::<Pod>(Some("default"), "web", |pod| {
            set(pod, ["12", "2", "3", "4"]);
        });
        sim.until("all are allocated", 10 * SECOND, |sim| {
            let pod = sim.view("web").expect("an entry").pod;
            AllocatedResources::from_pod(&pod) == AllocatedResources::from_pod(&live)
        })
        .await;
        assert_eq!(restarts(sim, "web"), 0);
    });
}

#[test]
fn container_in_back_off_restarts_with_new_sizes() {
    on_a_ready_node(251, async |sim| {
        run_all(sim, [sized("web", "2", "64Mi")]).await;
        let web = get(sim, "web").expect("a pod").uid();
        restart_container(sim, &web).await;
        let running = sim.runtime.running(&web, "app").expect("a container");
        sim.runtime.kill_container(&running.id, 1);
        sim.until("it waits", 5 * SECOND, |sim| {
            waiting_for(sim, "web") == "CrashLoopBackOff"
        })
        .await;
        request_resize(sim, "web", "4", "64Mi");
        until_allocated(sim, "web", "4").await;
        sim.until("it restarts", 2 * MINUTE, |sim| runs(sim, &web))
            .await;
        let running = sim.runtime.running(&web, "app").expect("a container");
        let config = sim.runtime.container_config(&running.id).expect("a config");
        assert_eq!(config.resources.cpu_shares, 4096);
    });
}
