//! The whole agent on a virtual clock: named scenarios, and random ones by seed.

#![allow(missing_docs, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use rand::seq::IndexedRandom;
use windlass_actors::SourceSnapshot;
use windlass_cri::CriCode;
use windlass_testing::fake_runtime::{Behavior, EventMode, Fault, Operation};
use windlass_testing::{NodeSim, PodBuilder, simulate};
use windlass_types::{ContainerState, Pod, PodOp, PodSource};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn pod(name: &str) -> PodBuilder {
    PodBuilder::new(name).container("app", "busybox:1")
}

fn latencies(sim: &NodeSim) {
    sim.runtime.add_image("busybox:1");
    sim.runtime
        .set_latency(Operation::RunPodSandbox, Duration::from_millis(80));
    sim.runtime
        .set_latency(Operation::CreateContainer, Duration::from_millis(20));
    sim.runtime
        .set_latency(Operation::StartContainer, Duration::from_millis(40));
}

#[test]
fn pod_starts_without_agent_delay_and_stops_on_removal() {
    simulate(1, async |sim| {
        latencies(sim);
        sim.desire([pod("web").build()]).await;
        sim.until("web runs", SECOND, |sim| sim.phase("web") == "Running")
            .await;
        assert_eq!(sim.blocker("web"), "");
        sim.desire([]).await;
        sim.until("web is gone", 40 * SECOND, |sim| sim.view("web").is_none())
            .await;
        assert!(
            sim.runtime
                .sandboxes()
                .iter()
                .all(|(_, _, _, ready)| !ready)
        );
    });
}

#[test]
fn crash_loop_back_off_doubles_and_spares_other_container() {
    simulate(2, async |sim| {
        latencies(sim);
        sim.runtime
            .set_behavior("crash", Behavior::exits(SECOND, 1));
        sim.desire([pod("loop").container("crash", "busybox:1").build()])
            .await;
        let uid = "loop-uid".into();
        sim.until("five starts", 10 * MINUTE, |sim| {
            sim.runtime.starts(&uid, "crash") == 5
        })
        .await;
        let starts = sim.runtime.calls_of(Operation::StartContainer, "");
        let crash: Vec<_> = starts
            .iter()
            .filter(|call| call.subject.contains("/crash#"))
            .map(|c| c.at)
            .collect();
        let gaps: Vec<_> = crash
            .windows(2)
            .map(|pair| pair[1].duration_since(pair[0]).as_secs())
            .collect();
        // one second of life, then the delay; the first restart is immediate, as upstream
        assert_eq!(gaps, [1, 11, 21, 41], "{:?}", sim.log());
        assert_eq!(sim.runtime.starts(&uid, "app"), 1);
        sim.until("blocked", MINUTE, |sim| {
            sim.blocker("loop") == "CrashLoopBackOff"
        })
        .await;
        sim.runtime.assert_invariants();
    });
}

#[test]
fn agent_kill_restarts_no_container() {
    simulate(3, async |sim| {
        latencies(sim);
        let pods: Vec<Pod> = (0..20).map(|i| pod(&format!("p{i}")).build()).collect();
        sim.desire(pods).await;
        let all_run = |sim: &NodeSim| (0..20).all(|i| sim.phase(&format!("p{i}")) == "Running");
        sim.until("all run", MINUTE, all_run).await;
        let before = sim.runtime.all_containers();
        for _ in 0..10 {
            sim.kill_agent().await;
            sim.pass(SECOND).await;
            sim.start_agent().await;
            sim.until("all run", MINUTE, all_run).await;
            sim.pass(3 * SECOND).await;
        }
        assert_eq!(sim.runtime.all_containers(), before);
    });
}

#[test]
fn runtime_outage_of_a_minute_changes_no_pod() {
    simulate(4, async |sim| {
        latencies(sim);
        sim.desire([pod("a").build(), pod("b").build()]).await;
        let both = |sim: &NodeSim| sim.phase("a") == "Running" && sim.phase("b") == "Running";
        sim.until("both run", MINUTE, both).await;
        let before = sim.runtime.all_containers();
        sim.runtime.set_down(true);
        sim.until("blocker", MINUTE, |sim| {
            sim.blocker("a") == "RuntimeNotReady"
        })
        .await;
        sim.pass(MINUTE).await;
        sim.runtime.set_down(false);
        sim.until("clear", MINUTE, |sim| sim.blocker("a").is_empty())
            .await;
        sim.pass(MINUTE).await;
        assert_eq!(sim.runtime.all_containers(), before);
    });
}

#[test]
fn hung_sandbox_start_delays_no_other_pod() {
    simulate(5, async |sim| {
        latencies(sim);
        sim.runtime
            .inject(Fault::hang(Operation::RunPodSandbox).on("default/sick"));
        let mut pods = vec![pod("sick").build()];
        pods.extend((0..10).map(|i| pod(&format!("well{i}")).build()));
        sim.desire(pods).await;
        let well = |sim: &NodeSim| (0..10).all(|i| sim.phase(&format!("well{i}")) == "Running");
        sim.until("the others run", 2 * SECOND, well).await;
        assert_eq!(sim.phase("sick"), "Pending");
        sim.desire((0..10).map(|i| pod(&format!("well{i}")).build()))
            .await;
        sim.until("a hanging start can be removed", MINUTE, |sim| {
            sim.view("sick").is_none()
        })
        .await;
    });
}

#[test]
fn hung_sandbox_status_delays_no_other_pod() {
    simulate(6, async |sim| {
        latencies(sim);
        sim.runtime
            .inject(Fault::hang(Operation::PodSandboxStatus).on("default/sick"));
        let mut pods = vec![pod("sick").build()];
        pods.extend((0..10).map(|i| pod(&format!("well{i}")).build()));
        sim.desire(pods).await;
        let well = |sim: &NodeSim| (0..10).all(|i| sim.phase(&format!("well{i}")) == "Running");
        sim.until("the others run", 5 * SECOND, well).await;
        sim.pass(10 * MINUTE).await;
        assert!(well(sim));
        sim.runtime.release(Operation::PodSandboxStatus);
        sim.runtime.clear_faults();
        sim.until("it recovers", 10 * MINUTE, |sim| {
            sim.phase("sick") == "Running"
        })
        .await;
        sim.runtime.assert_invariants();
    });
}

#[test]
fn pod_with_unreadable_status_can_be_stopped() {
    simulate(11, async |sim| {
        latencies(sim);
        sim.desire([pod("sick").build()]).await;
        sim.until("runs", MINUTE, |sim| sim.phase("sick") == "Running")
            .await;
        sim.runtime
            .inject(Fault::hang(Operation::PodSandboxStatus).on("default/sick"));
        sim.desire([]).await;
        let stopped = |sim: &NodeSim| sim.runtime.running(&"sick-uid".into(), "app").is_none();
        sim.until("stopped", SECOND, stopped).await;
        sim.until("forgotten", MINUTE, |sim| sim.view("sick").is_none())
            .await;
    });
}

#[test]
fn pod_added_while_its_predecessor_ends_is_counted() {
    simulate(12, async |sim| {
        latencies(sim);
        sim.runtime.set_behavior("app", Behavior::stubborn());
        let restarted = |sim: &NodeSim| {
            let counts = &sim.metrics.workers.restarted_pods;
            counts.with_label_values(&["true"]).get()
        };
        let running = |sim: &NodeSim| sim.phase("web") == "Running";
        let web = || pod("web").build();
        sim.desire([web()]).await;
        sim.until("it runs", MINUTE, running).await;
        sim.kill_agent().await;
        sim.start_agent().await;
        sim.desire([web()]).await;
        sim.until("it still runs", MINUTE, running).await;
        assert_eq!(restarted(sim), 0.0);
        sim.desire([]).await;
        sim.pass(SECOND).await;
        sim.desire([web()]).await;
        sim.until("it runs again", MINUTE, |sim| {
            sim.runtime.starts(&"web-uid".into(), "app") == 2 && running(sim)
        })
        .await;
        assert_eq!(restarted(sim), 1.0);
        sim.desire([]).await;
        sim.until("it is gone", MINUTE, |sim| sim.view("web").is_none())
            .await;
        sim.desire([web()]).await;
        sim.until("it runs", MINUTE, running).await;
        assert_eq!(restarted(sim), 1.0);
    });
}

#[test]
fn idle_pod_syncs_change_no_status() {
    simulate(11, async |sim| {
        sim.runtime.add_image("busybox:1");
        let names: Vec<String> = (0..20).map(|i| format!("pod-{i}")).collect();
        sim.start_agent().await;
        sim.desire(names.iter().map(|name| pod(name).build())).await;
        sim.until("all run", 60 * SECOND, |sim| {
            names.iter().all(|name| sim.phase(name) == "Running")
        })
        .await;
        sim.pass(10 * SECOND).await;
        let changes = sim.agent().expect("agent").status_store.changes();
        let version = *changes.borrow();
        let jobs = sim
            .metrics
            .workers
            .sync_duration
            .with_label_values(&["sync"]);
        let syncs = jobs.get_sample_count();
        sim.pass(300 * SECOND).await;
        assert!(jobs.get_sample_count() >= syncs + 60, "pods synchronized");
        assert_eq!(*changes.borrow(), version, "versions of the status_store");
    });
}

#[test]
fn edited_static_pod_starts_after_old_one_stopped() {
    simulate(7, async |sim| {
        latencies(sim);
        sim.runtime.set_behavior("app", Behavior::stubborn());
        sim.desire([pod("web").grace(5).build()]).await;
        sim.until("runs", MINUTE, |sim| sim.phase("web") == "Running")
            .await;
        sim.desire([pod("web").uid("edited").grace(5).build()])
            .await;
        sim.until("waits", SECOND, |sim| {
            let agent = sim.agent().expect("agent");
            let held = agent
                .status_store
                .get(&"edited".into())
                .and_then(|entry| entry.blocker);
            held.is_some_and(|b| b.reason.as_str() == "WaitingForPodTermination")
        })
        .await;
        sim.until("replaced", MINUTE, |sim| {
            sim.runtime.running(&"edited".into(), "app").is_some()
        })
        .await;
        assert!(sim.runtime.running(&"web-uid".into(), "app").is_none());
    });
}

#[test]
fn job_completes_and_sandbox_is_stopped() {
    simulate(8, async |sim| {
        latencies(sim);
        sim.runtime
            .set_behavior("app", Behavior::exits(2 * SECOND, 0));
        sim.desire([pod("job").restart_policy("Never").build()])
            .await;
        sim.until("done", MINUTE, |sim| sim.phase("job") == "Succeeded")
            .await;
        let stopped = |sim: &NodeSim| {
            sim.runtime
                .sandboxes()
                .iter()
                .all(|(_, _, _, ready)| !ready)
        };
        sim.until("stopped", MINUTE, stopped).await;
        sim.pass(10 * MINUTE).await;
        assert_eq!(sim.runtime.starts(&"job-uid".into(), "app"), 1);
        assert_eq!(sim.phase("job"), "Succeeded");
        sim.kill_agent().await;
        sim.start_agent().await;
        sim.until("still done", MINUTE, |sim| sim.phase("job") == "Succeeded")
            .await;
        sim.pass(10 * MINUTE).await;
        assert_eq!(sim.runtime.starts(&"job-uid".into(), "app"), 1);
    });
}

#[test]
fn pod_removed_during_downtime_is_stopped_as_orphan() {
    simulate(9, async |sim| {
        latencies(sim);
        sim.desire([pod("gone").build(), pod("kept").build()]).await;
        sim.until("runs", MINUTE, |sim| sim.phase("gone") == "Running")
            .await;
        sim.kill_agent().await;
        sim.desire([pod("kept").build()]).await;
        sim.start_agent().await;
        let gone = |sim: &NodeSim| sim.runtime.running(&"gone-uid".into(), "app").is_none();
        sim.until("orphan stopped", MINUTE, gone).await;
        assert!(sim.runtime.running(&"kept-uid".into(), "app").is_some());
        let left = |sim: &NodeSim| sim.runtime.containers(&"gone-uid".into()).is_empty();
        sim.until("collected", 5 * MINUTE, left).await;
    });
}

#[test]
fn exit_without_event_is_detected_by_relist() {
    simulate(10, async |sim| {
        latencies(sim);
        sim.runtime.set_event_mode(EventMode::Off);
        sim.kill_agent().await;
        sim.start_agent().await;
        sim.desire([pod("web").build()]).await;
        sim.until("runs", MINUTE, |sim| sim.phase("web") == "Running")
            .await;
        sim.pass(MINUTE).await;
        let app = sim.runtime.running(&"web-uid".into(), "app").expect("runs");
        sim.runtime.kill_container(&app.id, 1);
        sim.until("restarted", 2 * SECOND, |sim| {
            sim.runtime.starts(&"web-uid".into(), "app") == 2
        })
        .await;
    });
}

#[test]
fn agent_started_before_runtime_reports_and_waits() {
    simulate(11, async |sim| {
        latencies(sim);
        sim.kill_agent().await;
        sim.runtime.set_down(true);
        sim.start_agent().await;
        sim.desire([pod("a").build(), pod("b").build()]).await;
        sim.until("blocker", MINUTE, |sim| {
            sim.blocker("a") == "RuntimeNotReady"
        })
        .await;
        sim.pass(10 * MINUTE).await;
        assert_eq!(sim.blocker("b"), "RuntimeNotReady");
        sim.runtime.set_down(false);
        let both = |sim: &NodeSim| sim.phase("a") == "Running" && sim.phase("b") == "Running";
        sim.until("both run", 15 * SECOND, both).await;
        assert_eq!(sim.runtime.starts(&"a-uid".into(), "app"), 1);
        sim.runtime.assert_invariants();
    });
}

#[test]
fn agent_restarted_without_runtime_adopts_pods_later() {
    simulate(12, async |sim| {
        latencies(sim);
        sim.desire([pod("kept").build(), pod("gone").build()]).await;
        let both = |sim: &NodeSim| sim.phase("kept") == "Running" && sim.phase("gone") == "Running";
        sim.until("both run", MINUTE, both).await;
        let kept = sim.runtime.running(&"kept-uid".into(), "app");
        sim.runtime.set_down(true);
        sim.kill_agent().await;
        sim.desire([pod("kept").build()]).await;
        sim.start_agent().await;
        sim.pass(10 * MINUTE).await;
        sim.runtime.set_down(false);
        sim.until("the orphan is stopped", MINUTE, |sim| {
            sim.runtime.running(&"gone-uid".into(), "app").is_none()
        })
        .await;
        sim.pass(5 * MINUTE).await;
        assert_eq!(sim.runtime.running(&"kept-uid".into(), "app"), kept);
        assert_eq!(sim.phase("kept"), "Running");
    });
}

#[test]
fn never_pulled_image_blocks_only_its_pod() {
    simulate(13, async |sim| {
        latencies(sim);
        let never = PodBuilder::new("never").container_with("app", "private:1", |c| {
            c.image_pull_policy = Some("Never".to_owned());
        });
        sim.desire([never.build(), pod("well").build()]).await;
        sim.until("well runs", SECOND, |sim| sim.phase("well") == "Running")
            .await;
        sim.until("never reports why", MINUTE, |sim| {
            sim.blocker("never") == "ErrImageNeverPull"
        })
        .await;
        sim.pass(10 * MINUTE).await;
        assert!(sim.runtime.calls_of(Operation::PullImage, "").is_empty());
        assert_eq!(sim.runtime.starts(&"well-uid".into(), "app"), 1);
        sim.runtime.add_image("private:1");
        sim.until("never runs", MINUTE, |sim| sim.phase("never") == "Running")
            .await;
    });
}

#[test]
fn hung_pulls_delay_no_pod_with_present_image() {
    simulate(14, async |sim| {
        latencies(sim);
        sim.runtime.inject(Fault::hang(Operation::PullImage));
        // as many as may start concurrently
        let mut pods: Vec<Pod> = (0..4)
            .map(|i| {
                let name = format!("pulling{i}");
                PodBuilder::new(&name).container("app", "slow:1").build()
            })
            .collect();
        sim.desire(pods.clone()).await;
        sim.pass(SECOND).await;
        pods.push(pod("well").build());
        sim.desire(pods).await;
        sim.until("well runs", 10 * SECOND, |sim| {
            sim.phase("well") == "Running"
        })
        .await;
        sim.pass(10 * MINUTE).await;
        assert_eq!(sim.phase("pulling0"), "Pending");
        sim.runtime.release(Operation::PullImage);
        sim.until("they run", MINUTE, |sim| {
            (0..4).all(|i| sim.phase(&format!("pulling{i}")) == "Running")
        })
        .await;
    });
}

#[test]
fn immediate_exit_restarts_with_back_off() {
    simulate(15, async |sim| {
        latencies(sim);
        sim.runtime
            .set_behavior("crash", Behavior::exits(Duration::ZERO, 3));
        let loops = (0..5).map(|i| {
            let name = format!("loop{i}");
            PodBuilder::new(&name)
                .container("crash", "busybox:1")
                .build()
        });
        sim.desire(loops.chain([pod("well").build()])).await;
        sim.pass(10 * MINUTE).await;
        for i in 0..5 {
            // at 0, again at once, then after 10, 20, 40, 80, 160 and 300 s
            let starts = sim.runtime.starts(&format!("loop{i}-uid").into(), "crash");
            assert!((7..=8).contains(&starts), "{starts} starts of loop{i}");
            assert_eq!(sim.blocker(&format!("loop{i}")), "CrashLoopBackOff");
        }
        assert_eq!(sim.runtime.starts(&"well-uid".into(), "app"), 1);
        assert_eq!(sim.phase("well"), "Running");
        sim.runtime.assert_invariants();
    });
}

#[test]
fn stubborn_container_is_killed_and_delays_no_other_pod() {
    simulate(16, async |sim| {
        latencies(sim);
        let stubborn = || {
            PodBuilder::new("stubborn")
                .container("stubborn", "busybox:1")
                .grace(20)
                .build()
        };
        sim.runtime.set_behavior("stubborn", Behavior::stubborn());
        sim.desire([stubborn()]).await;
        sim.until("runs", MINUTE, |sim| sim.phase("stubborn") == "Running")
            .await;
        sim.desire([pod("next").build()]).await;
        sim.until("the next runs", SECOND, |sim| {
            sim.phase("next") == "Running"
        })
        .await;
        let runs = |sim: &NodeSim| {
            let uid = "stubborn-uid".into();
            sim.runtime.running(&uid, "stubborn").is_some()
        };
        sim.pass(18 * SECOND).await;
        assert!(runs(sim), "killed before its grace period ended");
        sim.until("killed", 2 * SECOND, |sim| !runs(sim)).await;
        sim.until("gone", 2 * SECOND, |sim| sim.view("stubborn").is_none())
            .await;
    });
}

#[test]
fn only_host_network_pods_start_without_pod_network() {
    simulate(17, async |sim| {
        latencies(sim);
        sim.runtime
            .set_network_error(Some("cni plugin not initialized"));
        sim.kill_agent().await;
        sim.start_agent().await;
        sim.desire([pod("pod").build(), pod("host").host_network().build()])
            .await;
        sim.until("host runs", MINUTE, |sim| sim.phase("host") == "Running")
            .await;
        sim.until("pod reports why", MINUTE, |sim| {
            sim.blocker("pod") == "NetworkNotReady"
        })
        .await;
        sim.runtime.set_network_error(None);
        sim.until("pod runs", 10 * SECOND, |sim| sim.phase("pod") == "Running")
            .await;
    });
}

#[test]
fn failing_init_container_blocks_only_its_pod() {
    simulate(18, async |sim| {
        latencies(sim);
        let twice = vec![Behavior::exits(SECOND, 1), Behavior::exits(SECOND, 0)];
        sim.runtime.script("default/retry/init", twice);
        sim.runtime
            .set_behavior("default/never/init", Behavior::exits(SECOND, 1));
        let with_init = |name: &str| pod(name).init_container("init", "busybox:1");
        sim.desire([
            with_init("retry").restart_policy("OnFailure").build(),
            with_init("never").restart_policy("Never").build(),
            pod("well").build(),
        ])
        .await;
        sim.until("well runs", SECOND, |sim| sim.phase("well") == "Running")
            .await;
        sim.until("retry runs", MINUTE, |sim| sim.phase("retry") == "Running")
            .await;
        assert_eq!(sim.runtime.starts(&"retry-uid".into(), "init"), 2);
        sim.until("never failed", MINUTE, |sim| sim.phase("never") == "Failed")
            .await;
        sim.pass(10 * MINUTE).await;
        assert_eq!(sim.runtime.starts(&"never-uid".into(), "app"), 0);
        assert_eq!(sim.runtime.starts(&"retry-uid".into(), "app"), 1);
    });
}

#[test]
fn reboot_restarts_pods_except_finished_jobs() {
    simulate(19, async |sim| {
        latencies(sim);
        sim.runtime.set_behavior("job", Behavior::exits(SECOND, 0));
        let job = PodBuilder::new("job")
            .container("job", "busybox:1")
            .restart_policy("Never");
        sim.desire([pod("web").build(), job.build()]).await;
        sim.until("done", MINUTE, |sim| {
            sim.phase("web") == "Running" && sim.phase("job") == "Succeeded"
        })
        .await;
        sim.kill_agent().await;
        sim.runtime.reboot();
        sim.start_agent().await;
        let web = |sim: &NodeSim| sim.runtime.running(&"web-uid".into(), "app");
        sim.until("web runs", MINUTE, |sim| web(sim).is_some())
            .await;
        sim.pass(10 * MINUTE).await;
        assert_eq!(web(sim).map(|app| app.attempt), Some(1));
        assert_eq!(sim.runtime.starts(&"web-uid".into(), "app"), 2);
        assert_eq!(sim.phase("job"), "Succeeded");
        assert_eq!(sim.runtime.starts(&"job-uid".into(), "job"), 1);
        sim.runtime.assert_invariants();
    });
}

/// Random pods, faults and agent kills, then convergence.
async fn storm(sim: &mut NodeSim) -> Vec<String> {
    latencies(sim);
    sim.runtime
        .set_behavior("job", Behavior::exits(20 * SECOND, 0));
    sim.runtime
        .set_behavior("crash", Behavior::exits(5 * SECOND, 1));
    sim.runtime
        .set_behavior("init", Behavior::exits(2 * SECOND, 0));
    sim.runtime.set_behavior("stubborn", Behavior::stubborn());
    let all = || -> Vec<Pod> {
        let image = "busybox:1";
        vec![
            pod("web").build(),
            pod("pair").container("second", image).build(),
            PodBuilder::new("job")
                .container("job", image)
                .restart_policy("OnFailure")
                .build(),
            PodBuilder::new("crash").container("crash", image).build(),
            pod("init").init_container("init", image).build(),
            PodBuilder::new("stubborn")
                .container("stubborn", image)
                .grace(5)
                .build(),
            pod("host").host_network().build(),
        ]
    };
    sim.desire(all()).await;
    for _ in 0..30 {
        let time = Duration::from_millis(sim.dice.random_range(10..8000));
        sim.pass(time).await;
        disturb(sim, &all).await;
        sim.runtime.assert_invariants();
    }
    sim.note("peace");
    sim.runtime.set_down(false);
    sim.runtime.clear_faults();
    sim.start_agent().await;
    sim.desire(all()).await;
    let steady = ["web", "pair", "init", "stubborn", "host"];
    sim.until("steady pods run", 30 * MINUTE, |sim| {
        steady
            .iter()
            .all(|name| sim.phase(name) == "Running" && sim.blocker(name).is_empty())
    })
    .await;
    sim.until("the job is done", 30 * MINUTE, |sim| {
        sim.phase("job") == "Succeeded"
    })
    .await;
    sim.pass(10 * MINUTE).await;
    assert!(
        steady.iter().all(|name| sim.phase(name) == "Running"),
        "not steady"
    );
    let wanted: Vec<_> = all().iter().map(windlass_types::PodExt::uid).collect();
    let strays: Vec<_> = sim
        .runtime
        .all_containers()
        .into_iter()
        .filter(|c| c.state == ContainerState::Running && !wanted.contains(&c.uid))
        .collect();
    assert!(strays.is_empty(), "{strays:?}");
    sim.runtime.assert_invariants();
    sim.log()
}

async fn disturb(sim: &mut NodeSim, all: &dyn Fn() -> Vec<Pod>) {
    let operations = [
        Operation::RunPodSandbox,
        Operation::CreateContainer,
        Operation::StartContainer,
        Operation::StopContainer,
        Operation::StopPodSandbox,
        Operation::ContainerStatus,
        Operation::PodSandboxStatus,
        Operation::ListContainers,
    ];
    let operation = *operations.choose(&mut sim.dice).expect("not empty");
    let containers = sim.runtime.all_containers();
    let running: Vec<_> = containers
        .iter()
        .filter(|c| c.state == ContainerState::Running)
        .collect();
    let victim = running.choose(&mut sim.dice).map(|c| c.id.clone());
    match sim.dice.random_range(0..12) {
        0 => {
            if let Some(id) = victim {
                sim.note(format!("kill container {id}"));
                sim.runtime.kill_container(&id, 137);
            }
        }
        1 => {
            let sandboxes = sim.runtime.sandboxes();
            if let Some((id, ..)) = sandboxes.choose(&mut sim.dice) {
                sim.note(format!("kill sandbox {id}"));
                sim.runtime.kill_sandbox(id);
            }
        }
        2 => sim
            .runtime
            .inject(Fault::fail(operation, 2, CriCode::Other, "dice")),
        3 => sim.runtime.inject(Fault::lose_reply(operation, 1)),
        4 => sim.runtime.set_down(true),
        5 => sim.runtime.set_down(false),
        6 => sim.runtime.drop_events(3),
        7 => sim.runtime.duplicate_events(3),
        8 => sim.kill_agent().await,
        9 => sim.start_agent().await,
        10 => {
            let keep: Vec<_> = all()
                .into_iter()
                .filter(|_| sim.dice.random_bool(0.6))
                .collect();
            sim.desire(keep).await;
        }
        _ => {
            let edited = all().into_iter().map(|mut pod| {
                if sim.dice.random_bool(0.3) {
                    let uid = format!("{}-{}", windlass_types::PodExt::uid(&pod), "edited");
                    pod.metadata.uid = Some(uid);
                }
                pod
            });
            let edited: Vec<_> = edited.collect();
            sim.desire(edited).await;
        }
    }
}

#[test]
fn random_storm_converges_to_desired_state() {
    for seed in 0..25 {
        simulate(seed, storm);
    }
}

#[test]
fn same_seed_produces_same_log() {
    let first = simulate(42, storm);
    let second = simulate(42, storm);
    for (i, (a, b)) in first.iter().zip(&second).enumerate() {
        assert_eq!(a, b, "line {i}");
    }
    assert_eq!(first.len(), second.len());
    assert!(first.len() > 100, "too little happened");
}

#[test]
fn source_updates_are_merged_by_uid_and_content() {
    simulate(40, async |sim| {
        sim.runtime.add_image("busybox:1");
        let update = async |sim: &NodeSim, op: PodOp, pods: Vec<Pod>| {
            let snapshot = SourceSnapshot {
                source: PodSource::File,
                op,
                pods: pods.into_iter().map(Arc::new).collect(),
                rejected: Vec::new(),
            };
            let agent = sim.agent().expect("an agent");
            agent.sources.send(snapshot).await.expect("sent");
            sim.pass(Duration::from_secs(20)).await;
        };
        let of = |name: &str| PodBuilder::new(name).container("app", "busybox:1").grace(1);
        let runs = |sim: &NodeSim, uid: &str| sim.runtime.running(&uid.into(), "app").is_some();
        let starts = |sim: &NodeSim, uid: &str| sim.runtime.starts(&uid.into(), "app");

        // the first pod of a name wins
        let twice = vec![of("web").build(), of("web").uid("other-uid").build()];
        update(sim, PodOp::Set, twice).await;
        assert!(runs(sim, "web-uid") && starts(sim, "other-uid") == 0);
        let status_store = &sim.agent().expect("an agent").status_store;
        assert_eq!(status_store.find("default", "web").len(), 1);
        // a partial update keeps other pods
        update(sim, PodOp::Add, vec![of("db").build()]).await;
        assert!(runs(sim, "web-uid") && runs(sim, "db-uid"));
        // an equal pod is not an update
        let again = of("web").annotation("kubernetes.io/config.seen", "later");
        update(sim, PodOp::Set, vec![again.build(), of("db").build()]).await;
        let timelines = &sim.agent().expect("an agent").timelines;
        let timeline = timelines.find("default", "web").expect("a timeline");
        let lines = timeline.records.iter().map(ToString::to_string);
        let source: Vec<String> = lines.filter(|line| line.starts_with("source")).collect();
        assert_eq!(source, ["source ADD file"]);
        assert_eq!((starts(sim, "web-uid"), starts(sim, "db-uid")), (1, 1));
        // a changed one is
        let changed = of("web").label("tier", "front").build();
        update(sim, PodOp::Update, vec![changed]).await;
        let labels = sim
            .view("web")
            .and_then(|view| view.pod.metadata.labels.clone());
        assert!(labels.is_some_and(|labels| labels["tier"] == "front"));
        // the old pod of a name is removed before the new one is added
        let renewed = of("web").uid("new-uid").build();
        update(sim, PodOp::Set, vec![renewed, of("db").build()]).await;
        assert!(!runs(sim, "web-uid") && runs(sim, "new-uid") && runs(sim, "db-uid"));
        update(sim, PodOp::Remove, vec![of("db").build()]).await;
        assert!(runs(sim, "new-uid") && !runs(sim, "db-uid"));
    });
}
