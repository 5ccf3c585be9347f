//! Single failures on a virtual clock: the status of the affected pod, its recovery, and no effect
//! on other pods.

#![allow(missing_docs, clippy::expect_used)]

use std::time::Duration;

use serde_json::json;
use windlass_cri::CriCode;
use windlass_testing::fake_runtime::{Behavior, Exec, Fault, Operation};
use windlass_testing::{NodeSim, PodBuilder, simulate};
use windlass_types::PodUid;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn pod(name: &str) -> PodBuilder {
    PodBuilder::new(name).container("app", "busybox:1").grace(5)
}

fn uid(name: &str) -> PodUid {
    format!("{name}-uid").into()
}

fn runs(sim: &NodeSim, name: &str) -> bool {
    sim.runtime.running(&uid(name), "app").is_some()
}

/// Runs a scenario next to a pod that must not be affected.
fn beside_a_bystander(seed: u64, scenario: impl AsyncFnOnce(&mut NodeSim)) {
    simulate(seed, async |sim| {
        sim.runtime.add_image("busybox:1");
        sim.runtime
            .set_latency(Operation::RunPodSandbox, Duration::from_millis(80));
        sim.runtime
            .set_latency(Operation::StartContainer, Duration::from_millis(40));
        sim.desire([pod("bystander").build()]).await;
        sim.until("the bystander runs", SECOND, |sim| runs(sim, "bystander"))
            .await;
        let before = sim.runtime.running(&uid("bystander"), "app");
        scenario(sim).await;
        let after = sim.runtime.running(&uid("bystander"), "app");
        assert_eq!(after, before, "the bystander was touched");
        assert_eq!(sim.blocker("bystander"), "");
        sim.runtime.assert_invariants();
    });
}

async fn desire(sim: &mut NodeSim, pods: impl IntoIterator<Item = PodBuilder>) {
    let pods = pods.into_iter().chain([pod("bystander")]);
    sim.desire(pods.map(PodBuilder::build)).await;
}

#[test]
fn externally_removed_container_is_restarted() {
    beside_a_bystander(1, async |sim| {
        desire(sim, [pod("web")]).await;
        sim.until("web runs", SECOND, |sim| runs(sim, "web")).await;
        for round in 1..4 {
            let app = sim.runtime.running(&uid("web"), "app").expect("runs");
            sim.runtime.lose_container(&app.id);
            sim.until("web runs again", MINUTE, |sim| {
                let now = sim.runtime.running(&uid("web"), "app");
                now.is_some_and(|now| now.id != app.id)
            })
            .await;
            sim.until("its status reports it", MINUTE, |sim| {
                sim.phase("web") == "Running" && sim.blocker("web").is_empty()
            })
            .await;
            let restarts = sim.view("web").and_then(|view| {
                let statuses = view.status.container_statuses.clone()?;
                statuses.first().map(|status| status.restart_count)
            });
            assert_eq!(restarts, Some(round), "restarts are counted");
        }
    });
}

#[test]
fn container_in_unknown_state_is_stopped_before_restart() {
    beside_a_bystander(2, async |sim| {
        desire(sim, [pod("web")]).await;
        sim.until("web runs", SECOND, |sim| runs(sim, "web")).await;
        let app = sim.runtime.running(&uid("web"), "app").expect("runs");
        sim.runtime.set_unknown(&app.id);
        sim.until("web runs again", MINUTE, |sim| {
            let now = sim.runtime.running(&uid("web"), "app");
            now.is_some_and(|now| now.id != app.id)
        })
        .await;
    });
}

#[test]
fn oom_killed_container_is_reported_as_oom_killed() {
    beside_a_bystander(3, async |sim| {
        desire(sim, [pod("web").restart_policy("Never")]).await;
        sim.until("web runs", SECOND, |sim| runs(sim, "web")).await;
        let app = sim.runtime.running(&uid("web"), "app").expect("runs");
        sim.runtime.oom_kill(&app.id);
        sim.until("web failed", MINUTE, |sim| sim.phase("web") == "Failed")
            .await;
        assert_eq!(sim.blocker("web"), "OOMKilled");
    });
}

#[test]
fn unstoppable_pod_is_reported_and_blocks_only_same_name() {
    beside_a_bystander(4, async |sim| {
        desire(sim, [pod("web")]).await;
        sim.until("web runs", SECOND, |sim| runs(sim, "web")).await;
        // stopping the sandbox would stop its containers
        for operation in [Operation::StopContainer, Operation::StopPodSandbox] {
            let stuck = Fault::fail(operation, usize::MAX, CriCode::Other, "task is stuck");
            sim.runtime.inject(stuck.on("default/web"));
        }
        let edited = || pod("web").uid("edited");
        desire(sim, [edited(), pod("next")]).await;
        sim.until("next runs", SECOND, |sim| runs(sim, "next"))
            .await;
        sim.pass(10 * MINUTE).await;
        assert!(runs(sim, "web"), "it could not be stopped");
        assert!(sim.runtime.running(&"edited".into(), "app").is_none());
        let tries = sim.runtime.calls_of(Operation::StopContainer, "").len();
        assert!((10..=1000).contains(&tries), "{tries} tries in 10 minutes");
        let view = sim.agent().expect("agent").status_store.get(&uid("web"));
        let events = view.expect("still there").events;
        assert!(
            events.iter().any(|e| e.message.contains("task is stuck")),
            "{events:?}"
        );
        sim.runtime.clear_faults();
        sim.until("its successor runs", 2 * MINUTE, |sim| {
            sim.runtime.running(&"edited".into(), "app").is_some()
        })
        .await;
        assert!(!runs(sim, "web"));
    });
}

#[test]
fn hung_sandbox_creation_results_in_one_pod() {
    beside_a_bystander(5, async |sim| {
        sim.runtime
            .inject(Fault::hang(Operation::RunPodSandbox).on("default/web"));
        desire(sim, [pod("web")]).await;
        sim.pass(20 * MINUTE).await;
        assert_eq!(sim.phase("web"), "Pending");
        assert_eq!(sim.blocker("web"), "RuntimeCallHung");
        sim.runtime.clear_faults();
        sim.until("web runs", 5 * MINUTE, |sim| runs(sim, "web"))
            .await;
        sim.pass(10 * MINUTE).await;
        let ready = sim.runtime.sandboxes();
        let ready = ready
            .iter()
            .filter(|(_, of, _, ready)| *ready && *of == uid("web"));
        assert_eq!(ready.count(), 1);
        assert_eq!(sim.runtime.starts(&uid("web"), "app"), 1);
    });
}

#[test]
fn pod_directory_error_is_reported_until_resolved() {
    beside_a_bystander(6, async |sim| {
        sim.files.fail_pod(&uid("web"), Some("no space left"));
        desire(sim, [pod("web")]).await;
        sim.until("web reports why", MINUTE, |sim| {
            sim.blocker("web") == "Failed"
        })
        .await;
        sim.pass(10 * MINUTE).await;
        sim.files.fail_pod(&uid("web"), None);
        sim.until("web runs", MINUTE, |sim| runs(sim, "web")).await;
        assert_eq!(sim.runtime.starts(&uid("web"), "app"), 1);
    });
}

#[test]
fn hung_volume_does_not_block_pod_removal() {
    beside_a_bystander(7, async |sim| {
        sim.files.hang_pod(&uid("web"), true);
        desire(sim, [pod("web")]).await;
        sim.pass(MINUTE).await;
        assert_eq!(sim.phase("web"), "Pending");
        desire(sim, [pod("next")]).await;
        sim.until("next runs", SECOND, |sim| runs(sim, "next"))
            .await;
        sim.files.hang_pod(&uid("web"), false);
        sim.until("web is gone", MINUTE, |sim| sim.view("web").is_none())
            .await;
    });
}

#[test]
fn failed_garbage_collection_is_retried_without_delays() {
    beside_a_bystander(8, async |sim| {
        desire(sim, [pod("web")]).await;
        sim.until("web runs", SECOND, |sim| runs(sim, "web")).await;
        sim.runtime
            .inject(Fault::hang(Operation::RemoveContainer).on("default/web"));
        desire(sim, []).await;
        sim.until("web is stopped", MINUTE, |sim| !runs(sim, "web"))
            .await;
        sim.pass(5 * MINUTE).await;
        desire(sim, [pod("next")]).await;
        sim.until("next runs", SECOND, |sim| runs(sim, "next"))
            .await;
        sim.runtime.clear_faults();
        sim.until("web is collected", 5 * MINUTE, |sim| {
            sim.runtime.containers(&uid("web")).is_empty()
        })
        .await;
    });
}

#[test]
fn lost_event_stream_is_reopened_without_loss() {
    beside_a_bystander(9, async |sim| {
        desire(sim, [pod("web")]).await;
        sim.until("web runs", SECOND, |sim| runs(sim, "web")).await;
        for _ in 0..5 {
            sim.runtime.disconnect_events();
            let app = sim.runtime.running(&uid("web"), "app").expect("runs");
            sim.runtime.kill_container(&app.id, 1);
            sim.until("web runs again", 7 * MINUTE, |sim| {
                let now = sim.runtime.running(&uid("web"), "app");
                now.is_some_and(|now| now.id != app.id)
            })
            .await;
            sim.pass(11 * MINUTE).await;
        }
        assert_eq!(sim.runtime.starts(&uid("web"), "app"), 6);
    });
}

#[test]
fn stop_completes_after_runtime_outage() {
    beside_a_bystander(10, async |sim| {
        sim.runtime
            .set_behavior("default/web/app", Behavior::stubborn());
        desire(sim, [pod("web").grace(30)]).await;
        sim.until("web runs", SECOND, |sim| runs(sim, "web")).await;
        desire(sim, []).await;
        sim.pass(5 * SECOND).await;
        sim.runtime.set_down(true);
        sim.pass(5 * MINUTE).await;
        sim.runtime.set_down(false);
        sim.until("web is gone", 2 * MINUTE, |sim| {
            sim.view("web").is_none() && !runs(sim, "web")
        })
        .await;
        sim.until("the other pod is in its desired state", MINUTE, |sim| {
            sim.blocker("bystander").is_empty()
        })
        .await;
    });
}

/// Message of the kernel about a process that was killed in a container.
fn oom_message(sim: &NodeSim, name: &str, scope: &str) -> String {
    let app = sim.runtime.running(&uid(name), "app").expect("runs");
    let cgroup = format!("/kubepods/burstable/pod{}/{}", uid(name), app.id);
    let limit = match scope {
        "system" => "global_oom".to_owned(),
        _ => format!("oom_memcg={cgroup}"),
    };
    format!(
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,{limit},\
         task_memcg={cgroup}/child,task=dd,pid=42,uid=0"
    )
}

/// Reason of the exit of a container in the state or last state.
fn exit_reason(sim: &NodeSim, name: &str) -> String {
    let view = sim.view(name);
    let statuses = view.and_then(|view| view.status.container_statuses.clone());
    let status = statuses.and_then(|list| list.first().cloned());
    let states = status.map(|it| [it.state, it.last_state]).into_iter();
    let ends = states.flatten().flatten().filter_map(|it| it.terminated);
    let reasons: Vec<String> = ends.filter_map(|it| it.reason).collect();
    reasons.join(" ")
}

#[test]
fn failure_after_oom_kill_of_child_is_oom_killed() {
    beside_a_bystander(12, async |sim| {
        let never = pod("done").restart_policy("Never");
        desire(sim, vec![pod("web"), pod("kept"), never]).await;
        sim.until("they run", SECOND, |sim| {
            ["web", "kept", "done"].iter().all(|name| runs(sim, name))
        })
        .await;
        for name in ["web", "kept", "done"] {
            let message = oom_message(sim, name, "cgroup");
            sim.log_of_kernel(&message).await;
        }
        let app = |sim: &NodeSim, name: &str| sim.runtime.running(&uid(name), "app").expect("runs");
        // the main process fails because of its child; the runtime reports a plain failure
        sim.runtime.kill_container(&app(sim, "web").id, 1);
        sim.runtime.kill_container(&app(sim, "done").id, 0);
        sim.until("web restarts", MINUTE, |sim| runs(sim, "web"))
            .await;
        sim.until("it is reported", SECOND, |sim| {
            exit_reason(sim, "web") == "OOMKilled"
        })
        .await;
        sim.until("success stays", SECOND, |sim| {
            exit_reason(sim, "done") == "Completed"
        })
        .await;
        // its main process survives the child, and fails later for another reason
        sim.pass(MINUTE).await;
        assert_eq!(exit_reason(sim, "kept"), "");
        sim.runtime.kill_container(&app(sim, "kept").id, 1);
        sim.until("kept failed", MINUTE, |sim| {
            exit_reason(sim, "kept") == "Error"
        })
        .await;
    });
}

/// The runtime's reason stands, as upstream.
#[test]
fn container_killed_by_the_agent_is_not_oom_killed() {
    beside_a_bystander(13, async |sim| {
        sim.runtime.set_behavior("app", Behavior::stubborn());
        sim.runtime.set_exec("app", Exec::exits(0));
        let probe = json!({"exec": {"command": ["alive"]}, "periodSeconds": 1,
            "failureThreshold": 1});
        let web = pod("web").with(|pod| {
            let containers = &mut pod.spec.get_or_insert_default().containers;
            containers[0].liveness_probe = serde_json::from_value(probe).ok();
        });
        desire(sim, [web]).await;
        sim.until("it runs", SECOND, |sim| runs(sim, "web")).await;
        sim.pass(2 * SECOND).await;
        let message = oom_message(sim, "web", "cgroup");
        sim.log_of_kernel(&message).await;
        // its grace period is 5 s
        sim.runtime.set_exec("app", Exec::exits(1));
        sim.until("web restarts", 9 * SECOND, |sim| {
            sim.runtime.starts(&uid("web"), "app") == 2
        })
        .await;
        sim.until("it is reported", SECOND, |sim| {
            exit_reason(sim, "web") == "Error"
        })
        .await;
    });
}
