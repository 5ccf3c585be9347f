//! Pod deletion: graceful, forced, during start and during downtime.

use std::time::Duration;

use serde_json::json;
use windlass_fake_api::RequestRecord;
use windlass_testing::NodeSim;
use windlass_testing::fake_runtime::{Behavior, Operation};
use windlass_types::{Pod, PodExt, PodUid};

use crate::fixture::*;
use crate::{MINUTE, SECOND};

/// The deletion by the agent must be the last request for a pod.
fn assert_finished_as_upstream(sim: &NodeSim, name: &str, uid: &PodUid) {
    let path = format!("/api/v1/namespaces/default/pods/{name}");
    let requests = sim.api.requests().into_iter();
    let deletions: Vec<_> = requests
        .filter(|r| r.method == "DELETE" && r.path == path)
        .filter(|r| r.body["preconditions"]["uid"] == json!(uid.as_str()))
        .collect();
    assert_eq!(deletions.len(), 1, "{deletions:#?}");
    let deletion = &deletions[0];
    assert_eq!(deletion.body["gracePeriodSeconds"], json!(0));
    for container in sim.runtime.containers(uid) {
        let ended = container.finished_at;
        assert!(ended.is_some_and(|at| at <= deletion.at), "{container}");
    }
}

#[test]
fn stubborn_pod_is_killed_before_object_is_deleted() {
    on_a_ready_node(1, async |sim| {
        sim.runtime.set_behavior("app", Behavior::stubborn());
        let uid = create(sim, pod("web").grace(30));
        sim.until("web is ready", SECOND, |sim| ready(sim, "web"))
            .await;
        delete(sim, "web", None);
        sim.pass(29 * SECOND).await;
        assert!(runs(sim, &uid), "its grace is not over");
        sim.until("gone", 3 * SECOND, |sim| get(sim, "web").is_none())
            .await;
        assert_finished_as_upstream(sim, "web", &uid);
    });
}

#[test]
fn second_deletion_only_shortens_grace_period() {
    on_a_ready_node(2, async |sim| {
        sim.runtime.set_behavior("app", Behavior::stubborn());
        let uid = create(sim, pod("web").grace(30));
        sim.until("web is ready", SECOND, |sim| ready(sim, "web"))
            .await;
        delete(sim, "web", Some(60));
        sim.pass(5 * SECOND).await;
        delete(sim, "web", Some(120));
        sim.pass(5 * SECOND).await;
        delete(sim, "web", Some(10));
        sim.pass(8 * SECOND).await;
        assert!(runs(sim, &uid), "ten seconds from the last deletion");
        sim.until("killed after ten seconds", 3 * SECOND, |sim| {
            !runs(sim, &uid)
        })
        .await;
        sim.until("gone", 2 * SECOND, |sim| get(sim, "web").is_none())
            .await;
        let graces: Vec<_> = stops(sim, "web");
        assert!(
            graces.len() >= 2,
            "the stop was requested again: {graces:?}"
        );
        assert_finished_as_upstream(sim, "web", &uid);
    });
}

/// Times of StopContainer calls of the pod.
fn stops(sim: &NodeSim, name: &str) -> Vec<windlass_types::Timestamp> {
    let subject = format!("default/{name}/");
    let calls = sim.runtime.calls_of(Operation::StopContainer, &subject);
    calls.into_iter().map(|call| call.at).collect()
}

#[test]
fn force_deleted_pod_has_containers_killed() {
    on_a_ready_node(3, async |sim| {
        sim.runtime.set_behavior("app", Behavior::stubborn());
        let uid = create(sim, pod("web").grace(600));
        sim.until("web is ready", SECOND, |sim| ready(sim, "web"))
            .await;
        delete(sim, "web", Some(0));
        assert!(get(sim, "web").is_none());
        sim.until("killed", 4 * SECOND, |sim| !runs(sim, &uid))
            .await;
        sim.until("forgotten", MINUTE, |sim| sim.view("web").is_none())
            .await;
        sim.pass(MINUTE).await;
        let deletions = sim.api.requests().into_iter();
        let of_pods = |r: &RequestRecord| r.method == "DELETE" && r.path.contains("/pods/");
        let deletions = deletions.filter(of_pods).count();
        assert_eq!(deletions, 0, "there is nothing left to delete");
    });
}

#[test]
fn pod_deleted_during_sandbox_creation_never_runs() {
    on_a_ready_node(4, async |sim| {
        sim.runtime
            .set_latency(Operation::RunPodSandbox, 30 * SECOND);
        let uid = create(sim, pod("web").grace(30));
        sim.until("its sandbox is requested", SECOND, |sim| {
            sandbox_calls(sim, "web") == 1
        })
        .await;
        delete(sim, "web", None);
        sim.until("gone", 40 * SECOND, |sim| get(sim, "web").is_none())
            .await;
        assert_eq!(sim.runtime.starts(&uid, "app"), 0);
        sim.pass(MINUTE).await;
        let ready = |sim: &NodeSim| {
            let mut sandboxes = sim.runtime.sandboxes().into_iter();
            sandboxes.any(|(_, of, _, ready)| of == uid && ready)
        };
        sim.until("no sandbox is left", MINUTE, |sim| !ready(sim))
            .await;
        assert_finished_as_upstream(sim, "web", &uid);
    });
}

#[test]
fn pod_deleted_before_start_is_removed_within_a_second() {
    on_a_ready_node(5, async |sim| {
        sim.runtime.set_down(true);
        sim.pass(10 * SECOND).await;
        let uid = create(sim, pod("web"));
        sim.pass(SECOND).await;
        delete(sim, "web", None);
        sim.pass(MINUTE).await;
        sim.runtime.set_down(false);
        sim.until("gone", 15 * SECOND, |sim| get(sim, "web").is_none())
            .await;
        assert_eq!(sandbox_calls(sim, "web"), 0);
        assert_finished_as_upstream(sim, "web", &uid);
    });
}

#[test]
fn pod_deleted_during_downtime_is_stopped_after_restart() {
    on_a_ready_node(6, async |sim| {
        let mut uids = Vec::new();
        for name in ["marked", "forced", "kept", "never-started"] {
            if name == "never-started" {
                sim.kill_agent().await;
            }
            uids.push(create(sim, pod(name)));
            if name != "never-started" {
                sim.until("it runs", SECOND, |sim| ready(sim, name)).await;
            }
        }
        delete(sim, "marked", None);
        delete(sim, "forced", Some(0));
        delete(sim, "never-started", None);
        sim.pass(MINUTE).await;
        assert!(
            runs(sim, &uids[0]) && runs(sim, &uids[1]),
            "they keep running"
        );
        sim.start_agent().await;
        sim.until("both are stopped", 10 * SECOND, |sim| {
            !runs(sim, &uids[0]) && !runs(sim, &uids[1])
        })
        .await;
        sim.until("their objects are gone", 10 * SECOND, |sim| {
            get(sim, "marked").is_none() && get(sim, "never-started").is_none()
        })
        .await;
        assert_eq!(sim.runtime.starts(&uids[3], "app"), 0);
        assert_finished_as_upstream(sim, "marked", &uids[0]);
        assert_finished_as_upstream(sim, "never-started", &uids[3]);
        assert_eq!(sim.runtime.starts(&uids[2], "app"), 1);
        assert!(ready(sim, "kept"));
    });
}

#[test]
fn recreated_pod_name_belongs_to_new_pod() {
    on_a_ready_node(7, async |sim| {
        sim.runtime.script(
            "default/web/app",
            vec![Behavior::stubborn(), Behavior::default()],
        );
        let old = create(sim, pod("web").grace(5));
        sim.until("the old one is ready", SECOND, |sim| ready(sim, "web"))
            .await;
        for force in [true, false] {
            let grace = force.then_some(0);
            delete(sim, "web", grace);
            if !force {
                sim.until("gone", 10 * SECOND, |sim| get(sim, "web").is_none())
                    .await;
            }
            let new = create(sim, pod("web"));
            sim.until("the new one is ready", 15 * SECOND, |sim| {
                ready(sim, "web") && runs(sim, &new)
            })
            .await;
            sim.until("the old one ends", 2 * SECOND, |sim| !runs(sim, &old))
                .await;
            sim.pass(5 * MINUTE).await;
            assert_eq!(get(sim, "web").expect("there").uid(), new);
            assert_eq!(sim.runtime.starts(&new, "app"), 1);
            assert!(ready(sim, "web"));
        }
        sim.runtime.assert_invariants();
    });
}

#[test]
fn hundred_deleted_pods_are_removed_within_stop_time() {
    on_a_ready_node(8, async |sim| {
        let quick = Behavior {
            stops_after: Duration::from_millis(200),
            ..Behavior::default()
        };
        sim.runtime.set_behavior("app", quick);
        let names: Vec<_> = (0..100).map(|i| format!("p{i}")).collect();
        for name in &names {
            create(sim, pod(name));
        }
        sim.until("all run", MINUTE, |sim| {
            names.iter().all(|name| sim.phase(name) == "Running")
        })
        .await;
        sim.pass(5 * SECOND).await;
        for name in &names {
            delete(sim, name, None);
        }
        sim.until("all are gone", 5 * SECOND, |sim| {
            sim.api.list::<Pod>().is_empty()
        })
        .await;
        sim.runtime.assert_invariants();
    });
}
