//! Combined failures on a virtual clock: agent kills during API server outages, reordered messages
//! and lost responses.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all are tests

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use windlass_actors::SourceSnapshot;
use windlass_cri::CriCode;
use windlass_fake_api::On;
use windlass_testing::fake_runtime::{Behavior, Fault, Operation};
use windlass_testing::{NodeSim, PodBuilder, simulate_cluster};
use windlass_types::corev1::{ConfigMap, Node, PodCondition, PodStatus, ServiceAccount};
use windlass_types::{Pod, PodExt, PodOp, PodSource, PodUid, names};

const NODE: &str = "sim";
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn on_a_ready_node<R>(seed: u64, scenario: impl AsyncFnOnce(&mut NodeSim) -> R) -> R {
    simulate_cluster(seed, async |sim| {
        sim.runtime.add_image("busybox:1");
        sim.start_agent().await;
        sim.until("the node is ready", 3 * SECOND, node_ready).await;
        scenario(sim).await
    })
}

fn node_ready(sim: &NodeSim) -> bool {
    let node = sim.api.get::<Node>(None, NODE);
    let conditions = node.and_then(|node| node.status?.conditions);
    let mut all = conditions.into_iter().flatten();
    all.any(|c| c.type_ == "Ready" && c.status == "True")
}

fn pod(name: &str) -> PodBuilder {
    static_pod(name).bound_to(NODE)
}

fn static_pod(name: &str) -> PodBuilder {
    PodBuilder::new(name).container("app", "busybox:1").grace(5)
}

fn create(sim: &NodeSim, pod: PodBuilder) -> PodUid {
    sim.api.create(&pod.build()).uid()
}

fn get(sim: &NodeSim, name: &str) -> Option<Pod> {
    sim.api.get::<Pod>(Some("default"), name)
}

fn status(sim: &NodeSim, name: &str) -> PodStatus {
    get(sim, name)
        .and_then(|pod| pod.status)
        .unwrap_or_default()
}

fn phase(sim: &NodeSim, name: &str) -> String {
    status(sim, name).phase.unwrap_or_default()
}

fn condition(sim: &NodeSim, name: &str, type_: &str) -> Option<PodCondition> {
    let conditions = status(sim, name).conditions.unwrap_or_default();
    conditions.into_iter().find(|c| c.type_ == type_)
}

fn ready(sim: &NodeSim, name: &str) -> bool {
    condition(sim, name, "Ready").is_some_and(|c| c.status == "True")
}

/// Requests that changed the status of a pod.
fn patches(sim: &NodeSim, name: &str) -> usize {
    let path = format!("/api/v1/namespaces/default/pods/{name}/status");
    let requests = sim.api.requests().into_iter();
    requests
        .filter(|r| r.method == "PATCH" && r.path == path && r.status == 200)
        .count()
}

#[test]
fn manifest_edit_during_downtime_replaces_running_pod() {
    // the API server is a static pod, so its recovery must not require it
    on_a_ready_node(1, async |sim| {
        let broken = static_pod("kube-apiserver").uid("broken");
        sim.desire([broken.build()]).await;
        sim.until("it runs", 5 * SECOND, |sim| {
            sim.runtime.running(&"broken".into(), "app").is_some()
        })
        .await;
        sim.kill_agent().await;
        sim.api.faults().outage();
        sim.desire([static_pod("kube-apiserver").uid("mended").build()])
            .await;
        sim.start_agent().await;
        sim.until("the new one runs", 30 * SECOND, |sim| {
            sim.runtime.running(&"mended".into(), "app").is_some()
        })
        .await;
        assert!(sim.runtime.running(&"broken".into(), "app").is_none());
    });
}

#[test]
fn manifest_edit_during_mirror_deletion_creates_one_mirror_pod() {
    on_a_ready_node(12, async |sim| {
        let mirrored = |sim: &NodeSim| {
            let hash = get(sim, "etcd").filter(|m| m.metadata.deletion_timestamp.is_none());
            hash.and_then(|m| m.annotation(names::ANN_CONFIG_MIRROR).map(str::to_owned))
        };
        let etcd = |uid: &str| {
            let pod = static_pod("etcd").uid(uid);
            pod.annotation(names::ANN_CONFIG_HASH, uid).build()
        };
        sim.runtime
            .set_behavior("default/etcd/app", Behavior::stubborn());
        sim.desire([etcd("one")]).await;
        sim.until("its mirror is ready", 5 * SECOND, |sim| ready(sim, "etcd"))
            .await;
        sim.api.delete::<Pod>(Some("default"), "etcd", Some(30));
        sim.desire([etcd("two")]).await;
        sim.api.delete::<Pod>(Some("default"), "etcd", Some(0));
        sim.until("the new one is mirrored", 30 * SECOND, |sim| {
            mirrored(sim).as_deref() == Some("two") && ready(sim, "etcd")
        })
        .await;
        // and back, with a replaced node object
        sim.desire([etcd("one")]).await;
        sim.api.delete::<Node>(None, NODE, None);
        sim.until("the old one is back", MINUTE, |sim| {
            mirrored(sim).as_deref() == Some("one") && ready(sim, "etcd") && node_ready(sim)
        })
        .await;
        sim.runtime.assert_invariants();
    });
}

#[test]
fn pods_of_silent_source_survive_api_server_outage() {
    on_a_ready_node(2, async |sim| {
        let web = create(sim, pod("web"));
        sim.desire([static_pod("etcd").build()]).await;
        sim.until("both run", 5 * SECOND, |sim| {
            ready(sim, "web") && sim.phase("etcd") == "Running"
        })
        .await;
        let before = sim.runtime.running(&web, "app");
        sim.kill_agent().await;
        sim.api.faults().outage();
        sim.start_agent().await;
        sim.pass(10 * MINUTE).await;
        assert_eq!(sim.runtime.running(&web, "app"), before);
        assert_eq!(sim.runtime.starts(&"etcd-uid".into(), "app"), 1);
    });
}

#[test]
fn failed_stop_is_retried_after_clock_set_back() {
    on_a_ready_node(3, async |sim| {
        let uid = create(sim, pod("web"));
        sim.until("it runs", 5 * SECOND, |sim| ready(sim, "web"))
            .await;
        for operation in [Operation::StopContainer, Operation::StopPodSandbox] {
            let busy = Fault::fail(operation, 1, CriCode::Unavailable, "busy");
            sim.runtime.inject(busy);
        }
        sim.api.delete::<Pod>(Some("default"), "web", None);
        sim.pass(Duration::from_millis(300)).await;
        assert!(sim.runtime.running(&uid, "app").is_some(), "not stopped");
        sim.step_clock(-3600);
        sim.until("it is gone", 20 * SECOND, |sim| get(sim, "web").is_none())
            .await;
    });
}

#[test]
fn pod_replaced_during_outage_terminates_and_new_pod_runs() {
    on_a_ready_node(13, async |sim| {
        sim.runtime
            .set_behavior("default/db/app", Behavior::stubborn());
        let old = create(sim, pod("db").grace(30));
        sim.until("it runs", 5 * SECOND, |sim| ready(sim, "db"))
            .await;
        let down = sim.api.faults().outage();
        sim.pass(MINUTE).await;
        sim.api.delete::<Pod>(Some("default"), "db", Some(0));
        let new = create(sim, pod("db"));
        sim.api.faults().lift(down);
        sim.until("the new one runs", MINUTE, |sim| {
            sim.runtime.running(&new, "app").is_some() && ready(sim, "db")
        })
        .await;
        sim.until("the old one ended", MINUTE, |sim| {
            sim.runtime.running(&old, "app").is_none()
        })
        .await;
        sim.pass(MINUTE).await;
        assert_eq!(get(sim, "db").map(|pod| pod.uid()), Some(new));
        assert_eq!(
            sim.agent().expect("an agent").status_store.snapshot().len(),
            1
        );
    });
}

#[test]
fn rejected_pod_does_not_run_after_update() {
    on_a_ready_node(4, async |sim| {
        let mut greedy = Vec::new();
        for i in 0..20 {
            let name = format!("hog{i}");
            let uid = create(
                sim,
                pod(&name).with(|pod| {
                    let container = &mut pod.spec.as_mut().expect("spec").containers[0];
                    let resources = json!({ "requests": { "cpu": "100000" } });
                    container.resources = serde_json::from_value(resources).expect("resources");
                }),
            );
            // a controller that labels every pod it sees
            sim.api.modify::<Pod>(Some("default"), &name, |pod| {
                let labels = pod.metadata.labels.get_or_insert_default();
                labels.insert("seen".to_owned(), "yes".to_owned());
            });
            greedy.push((name, uid));
        }
        sim.until("all are refused", 10 * SECOND, |sim| {
            greedy.iter().all(|(name, _)| phase(sim, name) == "Failed")
        })
        .await;
        sim.pass(MINUTE).await;
        for (name, uid) in &greedy {
            assert_eq!(status(sim, name).reason.as_deref(), Some("OutOfcpu"));
            assert_eq!(sim.runtime.starts(uid, "app"), 0);
        }
    });
}

#[test]
fn pod_finished_during_outage_does_not_run_again() {
    for restored in [false, true] {
        on_a_ready_node(5, async |sim| {
            sim.runtime
                .set_behavior("default/job/app", Behavior::exits(30 * SECOND, 0));
            let uid = create(sim, pod("job").restart_policy("Never"));
            sim.until("it runs", 5 * SECOND, |sim| ready(sim, "job"))
                .await;
            let checkpoint = get(sim, "job").expect("there");
            let down = sim.api.faults().outage();
            // long enough for the garbage collection
            sim.pass(5 * MINUTE).await;
            sim.kill_agent().await;
            sim.start_agent().await;
            if restored {
                restore(sim, [checkpoint]).await;
            }
            sim.pass(5 * MINUTE).await;
            sim.api.faults().lift(down);
            sim.until("its end is known", MINUTE, |sim| {
                phase(sim, "job") == "Succeeded"
            })
            .await;
            assert_eq!(sim.runtime.starts(&uid, "app"), 1);
        });
    }
}

/// State of the checkpoint when the agent starts.
async fn restore(sim: &NodeSim, pods: impl IntoIterator<Item = Pod>) {
    let unconfirmed = |mut pod: Pod| {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(names::ANN_RESTORED.to_owned(), "true".to_owned());
        Arc::new(pod)
    };
    let snapshot = SourceSnapshot {
        source: PodSource::Api,
        op: PodOp::Restore,
        pods: pods.into_iter().map(unconfirmed).collect(),
        rejected: Vec::new(),
    };
    let agent = sim.agent().expect("an agent");
    agent.sources.send(snapshot).await.expect("a storage");
}

#[test]
fn running_restart_never_pod_survives_start_without_api_server() {
    on_a_ready_node(9, async |sim| {
        let uid = create(sim, pod("job").restart_policy("Never"));
        sim.until("it runs", 5 * SECOND, |sim| ready(sim, "job"))
            .await;
        let known = get(sim, "job").expect("there");
        sim.kill_agent().await;
        let down = sim.api.faults().outage();
        sim.api.clear_requests();
        sim.start_agent().await;
        restore(sim, [known.clone()]).await;
        sim.pass(5 * MINUTE).await;
        sim.api.faults().lift(down);
        sim.pass(2 * MINUTE).await;
        assert!(sim.runtime.running(&uid, "app").is_some());
        assert_eq!(status(sim, "job"), known.status.expect("a status"));
        assert_eq!(patches(sim, "job"), 0);
    });
}

#[test]
fn restored_pod_after_reboot_waits_for_api_server() {
    on_a_ready_node(10, async |sim| {
        let uid = create(sim, pod("db"));
        sim.until("it runs", 5 * SECOND, |sim| ready(sim, "db"))
            .await;
        let known = get(sim, "db").expect("there");
        sim.kill_agent().await;
        let down = sim.api.faults().outage();
        sim.runtime.reboot();
        // force-deleted and running on another node
        sim.api.delete::<Pod>(Some("default"), "db", Some(0));
        sim.start_agent().await;
        restore(sim, [known]).await;
        sim.pass(5 * MINUTE).await;
        assert_eq!(sim.runtime.starts(&uid, "app"), 1);
        sim.api.faults().lift(down);
        sim.until("it is forgotten", 2 * MINUTE, |sim| {
            sim.view("db").is_none()
        })
        .await;
        assert_eq!(sim.runtime.starts(&uid, "app"), 1);
    });
}

#[test]
fn agent_restart_changes_no_status_of_running_pod() {
    on_a_ready_node(6, async |sim| {
        sim.runtime
            .set_behavior("default/crash/app", Behavior::exits(SECOND, 1));
        create(sim, pod("quiet"));
        create(sim, pod("crash"));
        let restarts = |sim: &NodeSim| {
            let all = status(sim, "crash").container_statuses.unwrap_or_default();
            all.first().map_or(0, |c| c.restart_count)
        };
        sim.until("it crashed often", 10 * MINUTE, |sim| restarts(sim) == 4)
            .await;
        let (before, quiet) = (status(sim, "crash"), status(sim, "quiet"));
        sim.kill_agent().await;
        for container in sim.runtime.all_containers() {
            if container.state == windlass_types::ContainerState::Exited {
                sim.runtime.lose_container(&container.id);
            }
        }
        sim.api.clear_requests();
        sim.start_agent().await;
        sim.pass(30 * SECOND).await;
        assert_eq!(patches(sim, "quiet"), 0);
        assert_eq!(status(sim, "quiet"), quiet);
        let now = status(sim, "crash");
        assert!(restarts(sim) >= 4, "{now:?}");
        assert_eq!(now.start_time, before.start_time);
        let container = &now.container_statuses.as_ref().expect("one")[0];
        let last = container.last_state.as_ref().expect("a last state");
        assert!(last.terminated.is_some(), "{container:?}");
    });
}

#[test]
fn crash_loop_with_references_continues_without_api_server() {
    on_a_ready_node(11, async |sim| {
        for name in ["bare", "rich"] {
            let key = format!("default/{name}/app");
            sim.runtime.set_behavior(&key, Behavior::exits(SECOND, 1));
        }
        let config = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { "key": "value" },
            "metadata": { "name": "config", "namespace": "default" },
        });
        let config: ConfigMap = serde_json::from_value(config).expect("a ConfigMap");
        sim.api.create(&config);
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "default", "namespace": "default" } });
        let account: ServiceAccount = serde_json::from_value(account).expect("an account");
        sim.api.create(&account);
        let bare = create(sim, pod("bare"));
        let rich = create(
            sim,
            pod("rich").with(|pod| {
                let spec = pod.spec.as_mut().expect("spec");
                spec.service_account_name = Some("default".to_owned());
                let sources = json!([{ "configMapRef": { "name": "config" } }]);
                let mounts = json!([{ "name": "all", "mountPath": "/all" }]);
                let volumes = json!([{ "name": "all", "projected": { "sources": [
                    { "serviceAccountToken": { "path": "token", "expirationSeconds": 3607 } },
                    { "configMap": { "name": "config" } },
                ] } }]);
                let container = &mut spec.containers[0];
                container.env_from = serde_json::from_value(sources).expect("sources");
                container.volume_mounts = serde_json::from_value(mounts).expect("mounts");
                spec.volumes = serde_json::from_value(volumes).expect("volumes");
            }),
        );
        sim.until("both run", 5 * SECOND, |sim| {
            sim.runtime.starts(&bare, "app") > 0 && sim.runtime.starts(&rich, "app") > 0
        })
        .await;
        let hole = sim.api.faults().hang(On::any());
        sim.api.faults().silence_watches();
        sim.pass(20 * MINUTE).await;
        let starts = [&bare, &rich].map(|uid| sim.runtime.starts(uid, "app"));
        assert!(starts[0] >= 7, "{starts:?}");
        assert_eq!(starts[0], starts[1]);
        sim.api.faults().lift(hole);
    });
}

#[test]
fn cleared_status_is_reported_again() {
    on_a_ready_node(7, async |sim| {
        create(sim, pod("web"));
        sim.until("it runs", 5 * SECOND, |sim| ready(sim, "web"))
            .await;
        let before = status(sim, "web");
        sim.pass(MINUTE).await;
        sim.api
            .modify::<Pod>(Some("default"), "web", |pod| pod.status = None);
        sim.until("it is reported again", 15 * SECOND, |sim| ready(sim, "web"))
            .await;
        let after = status(sim, "web");
        assert_eq!(after.start_time, before.start_time);
        assert_eq!(after.container_statuses, before.container_statuses);
        assert_eq!(after.pod_ip, before.pod_ip);
    });
}

#[test]
fn pod_is_ready_when_readiness_gate_condition_is_true() {
    on_a_ready_node(8, async |sim| {
        let gate = json!([{ "conditionType": "lb" }]);
        create(
            sim,
            pod("web").with(|pod| {
                let gates = serde_json::from_value(gate).expect("gates");
                pod.spec.as_mut().expect("spec").readiness_gates = gates;
            }),
        );
        sim.until("its containers are ready", 5 * SECOND, |sim| {
            condition(sim, "web", "ContainersReady").is_some_and(|c| c.status == "True")
        })
        .await;
        assert!(!ready(sim, "web"));
        for (value, expected) in [("True", true), ("False", false)] {
            sim.api.modify::<Pod>(Some("default"), "web", |pod| {
                let status = pod.status.as_mut().expect("a status");
                let all = status.conditions.get_or_insert_default();
                all.retain(|c| c.type_ != "lb");
                all.push(PodCondition {
                    type_: "lb".to_owned(),
                    status: value.to_owned(),
                    ..PodCondition::default()
                });
            });
            sim.until("Ready follows", 2 * SECOND, |sim| {
                ready(sim, "web") == expected
            })
            .await;
            let kept = condition(sim, "web", "lb").expect("kept");
            assert_eq!(kept.status, value);
        }
    });
}
