//! Operation without failures.

use serde_json::json;
use windlass_testing::NodeSim;
use windlass_testing::fake_runtime::{Behavior, Operation};
use windlass_types::corev1::{Node, ResourceRequirements};
use windlass_types::{Pod, PodExt};

use crate::fixture::*;
use crate::{MINUTE, SECOND};

#[test]
fn bound_pod_runs_is_reported_and_is_deleted() {
    on_a_ready_node(1, async |sim| {
        let uid = create(sim, pod("web"));
        sim.until("web is ready", SECOND, |sim| ready(sim, "web"))
            .await;
        assert!(runs(sim, &uid));
        delete(sim, "web", None);
        sim.until("web is gone", 10 * SECOND, |sim| get(sim, "web").is_none())
            .await;
        assert!(!runs(sim, &uid));
        sim.until("the agent forgot it", MINUTE, |sim| {
            sim.view("web").is_none()
        })
        .await;
        sim.runtime.assert_invariants();
    });
}

#[test]
fn container_without_resources_has_empty_resources_in_status() {
    on_a_ready_node(3, async |sim| {
        create(sim, pod("web"));
        sim.until("web is ready", SECOND, |sim| ready(sim, "web"))
            .await;
        let status = get(sim, "web").and_then(|pod| pod.status);
        let containers = status.and_then(|status| status.container_statuses);
        let resources = containers.expect("a container")[0].resources.clone();
        assert_eq!(resources, Some(ResourceRequirements::default()));
    });
}

#[test]
fn pod_start_sends_two_status_patches() {
    on_a_ready_node(2, async |sim| {
        sim.runtime
            .set_latency(Operation::RunPodSandbox, 2 * SECOND);
        create(sim, pod("web"));
        sim.until("its container is being made", 2 * SECOND, |sim| {
            waiting_for(sim, "web") == "ContainerCreating"
        })
        .await;
        sim.until("web is ready", 5 * SECOND, |sim| ready(sim, "web"))
            .await;
        sim.pass(10 * MINUTE).await;
        assert_eq!(patches(sim, "web").len(), 2, "{:#?}", patches(sim, "web"));
    });
}

#[test]
fn burst_of_100_pods_sends_two_patches_each() {
    on_a_ready_node(3, async |sim| {
        let names: Vec<_> = (0..100).map(|i| format!("p{i}")).collect();
        for name in &names {
            create(sim, pod(name));
        }
        sim.until("all are ready", MINUTE, |sim| {
            names.iter().all(|name| ready(sim, name))
        })
        .await;
        sim.pass(10 * MINUTE).await;
        let counts = patch_counts(sim);
        assert_eq!(counts.len(), 100);
        assert!(counts.values().all(|count| *count <= 2), "{counts:?}");
        for name in &names {
            delete(sim, name, None);
        }
        sim.until("all are gone", MINUTE, |sim| {
            sim.api.list::<Pod>().is_empty()
        })
        .await;
        sim.runtime.assert_invariants();
    });
}

#[test]
fn finished_pod_does_not_run_again_after_state_loss() {
    on_a_ready_node(4, async |sim| {
        sim.runtime
            .set_behavior("default/done/app", Behavior::exits(SECOND, 0));
        sim.runtime
            .set_behavior("default/broken/app", Behavior::exits(SECOND, 3));
        for name in ["done", "broken"] {
            create(sim, pod(name).restart_policy("Never"));
        }
        let finished =
            |sim: &NodeSim| phase(sim, "done") == "Succeeded" && phase(sim, "broken") == "Failed";
        sim.until("both ended", MINUTE, finished).await;
        for loses_containers in [false, true] {
            sim.kill_agent().await;
            if loses_containers {
                for container in sim.runtime.all_containers() {
                    sim.runtime.lose_container(&container.id);
                }
            }
            let before = sim.api.version();
            sim.start_agent().await;
            sim.pass(10 * MINUTE).await;
            assert!(finished(sim));
            for name in ["done", "broken"] {
                let uid = get(sim, name).expect("still there").uid();
                assert_eq!(sim.runtime.starts(&uid, "app"), 1);
                assert_eq!(sandbox_calls(sim, name), 1);
                let version = get(sim, name).and_then(|pod| pod.metadata.resource_version);
                let version: u64 = version.expect("a version").parse().expect("a number");
                assert!(version <= before, "the status of {name} was changed");
            }
        }
        delete(sim, "done", None);
        assert!(get(sim, "done").is_none(), "finished pods have no grace");
    });
}

#[test]
fn pod_rejected_by_admission_stays_failed() {
    on_a_ready_node(5, async |sim| {
        let hog = || {
            pod("hog").with(|pod| {
                let container = &mut pod.spec.as_mut().expect("spec").containers[0];
                let resources = json!({ "requests": { "cpu": "100000" } });
                container.resources = serde_json::from_value(resources).expect("resources");
            })
        };
        create(sim, pod("modest"));
        create(sim, hog());
        sim.until("it is rejected", SECOND, |sim| {
            phase(sim, "hog") == "Failed" && ready(sim, "modest")
        })
        .await;
        let reason_and_message = |sim: &NodeSim| {
            let status = get(sim, "hog").and_then(|pod| pod.status);
            let status = status.expect("a status");
            (status.reason, status.message)
        };
        let (reason, message) = reason_and_message(sim);
        assert_eq!(reason.as_deref(), Some("OutOfcpu"));
        let status = get(sim, "hog")
            .and_then(|pod| pod.status)
            .expect("a status");
        assert_eq!(status.conditions.unwrap_or_default(), []);
        assert_eq!(status.container_statuses.unwrap_or_default(), []);
        assert!(
            message.as_deref().is_some_and(|m| m.contains("cpu")),
            "{message:?}"
        );
        let blocker = sim.view("hog").and_then(|view| view.blocker);
        let blocker = blocker.expect("a blocker").message;
        assert!(blocker.contains("Pod was rejected"), "{blocker}");
        sim.kill_agent().await;
        sim.start_agent().await;
        sim.pass(10 * MINUTE).await;
        assert_eq!(phase(sim, "hog"), "Failed");
        assert_eq!(reason_and_message(sim), (reason, message));
        assert_eq!(sandbox_calls(sim, "hog"), 0);
        assert_eq!(patches(sim, "hog").len(), 1);
        delete(sim, "hog", None);
        assert!(get(sim, "hog").is_none());
    });
}

#[test]
fn running_pod_is_not_rejected_after_restart() {
    on_a_ready_node(6, async |sim| {
        let uid = create(
            sim,
            pod("web").with(|pod| {
                let selector = [("zone".to_owned(), "a".to_owned())];
                pod.spec.as_mut().expect("spec").node_selector = Some(selector.into());
            }),
        );
        sim.until("it is rejected", SECOND, |sim| {
            phase(sim, "web") == "Failed"
        })
        .await;
        assert_eq!(sim.runtime.starts(&uid, "app"), 0);
        delete(sim, "web", None);
        label_zone(sim, "a");
        // the agent reads its node every ten seconds
        sim.pass(20 * SECOND).await;
        let uid = create(
            sim,
            pod("web").with(|pod| {
                let selector = [("zone".to_owned(), "a".to_owned())];
                pod.spec.as_mut().expect("spec").node_selector = Some(selector.into());
            }),
        );
        sim.until("it fits", SECOND, |sim| ready(sim, "web")).await;
        let before = sim.runtime.running(&uid, "app");
        label_zone(sim, "b");
        sim.kill_agent().await;
        sim.start_agent().await;
        sim.pass(10 * MINUTE).await;
        assert!(ready(sim, "web"));
        assert_eq!(sim.runtime.running(&uid, "app"), before);
    });
}

fn label_zone(sim: &NodeSim, zone: &str) {
    sim.api.modify::<Node>(None, NODE, |node| {
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert("zone".to_owned(), zone.to_owned());
    });
}

#[test]
fn repeated_agent_kills_change_no_status() {
    on_a_ready_node(7, async |sim| {
        let names: Vec<_> = (0..20).map(|i| format!("p{i}")).collect();
        for name in &names {
            create(sim, pod(name));
        }
        sim.until("all are ready", MINUTE, |sim| {
            names.iter().all(|name| ready(sim, name))
        })
        .await;
        sim.pass(MINUTE).await;
        let before = sim.api.list::<Pod>();
        for _ in 0..5 {
            sim.kill_agent().await;
            sim.pass(10 * SECOND).await;
            sim.start_agent().await;
            sim.pass(2 * MINUTE).await;
        }
        assert_eq!(sim.api.list::<Pod>(), before);
    });
}
