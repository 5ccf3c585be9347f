//! Leftovers of pods, after an agent restart and for a pod with the same full name.

use windlass_testing::fake_runtime::{Behavior, Fault, Operation, Pull};
use windlass_testing::{NodeSim, simulate};
use windlass_types::{ContainerState, PodUid};

use crate::fixture::{pod, prepare, sidecar};
use crate::{IMAGE, MINUTE, SECOND};

#[test]
fn container_created_before_agent_death_is_recreated() {
    for name in ["i", "s", "a"] {
        simulate(19, async |sim| {
            prepare(sim);
            sim.runtime.set_behavior("i", Behavior::exits(SECOND, 0));
            sim.runtime
                .inject(Fault::hang(Operation::StartContainer).on(format!("default/web/{name}")));
            let web = pod("web")
                .init_container("i", IMAGE)
                .init_container_with("s", IMAGE, sidecar)
                .container("a", IMAGE)
                .build();
            sim.desire([web]).await;
            let uid: PodUid = "web-uid".into();
            sim.until("it is created", 10 * SECOND, |sim| {
                let containers = sim.runtime.containers(&uid);
                let mut of_it = containers.iter().filter(|c| c.name == name);
                of_it.any(|c| c.state == ContainerState::Created)
            })
            .await;
            sim.pass(SECOND).await;
            sim.kill_agent().await;
            sim.runtime.clear_faults();
            sim.start_agent().await;
            sim.until("web runs", 20 * SECOND, |sim| sim.phase("web") == "Running")
                .await;
            sim.runtime.assert_invariants();
            let all = sim.runtime.containers(&uid);
            let of_it: Vec<_> = all.iter().filter(|c| c.name == name).collect();
            assert!(
                of_it.iter().all(|c| c.state != ContainerState::Created),
                "{of_it:?}"
            );
        });
    }
}

#[test]
fn recreated_pod_starts_after_old_pod_terminated() {
    simulate(20, async |sim| {
        prepare(sim);
        sim.runtime.set_behavior("a", Behavior::stubborn());
        let version = |uid: &str| pod("web").uid(uid).container("a", IMAGE).build();
        sim.desire([version("first")]).await;
        sim.until("it runs", 5 * SECOND, |sim| sim.phase("web") == "Running")
            .await;
        for (old, new) in [("first", "second"), ("second", "third")] {
            sim.desire([version(new)]).await;
            sim.until("the next runs", MINUTE, |sim| {
                sim.runtime.running(&new.into(), "a").is_some()
            })
            .await;
            let ended = sim.runtime.containers(&old.into());
            let started = sim.runtime.running(&new.into(), "a").expect("it runs");
            assert!(ended.iter().all(|c| c.finished_at <= started.started_at));
        }
        sim.runtime.assert_invariants();
    });
}

#[test]
fn pod_put_back_while_it_terminates_counts_a_restart() {
    simulate(22, async |sim| {
        prepare(sim);
        let web = || pod("web").container("a", IMAGE).build();
        sim.desire([web()]).await;
        sim.until("it runs", 5 * SECOND, |sim| sim.phase("web") == "Running")
            .await;
        sim.desire([]).await;
        sim.desire([web()]).await;
        sim.until("it restarts", MINUTE, |sim| {
            let status = sim.view("web").map(|entry| entry.status);
            let containers = status.and_then(|status| status.container_statuses.clone());
            let mut containers = containers.into_iter().flatten();
            containers.any(|it| it.restart_count == 1 && it.ready)
        })
        .await;
    });
}

#[test]
fn pod_in_any_state_is_removed_completely() {
    let states = [
        "pulling",
        "making its sandbox",
        "initializing",
        "waiting for a restart",
        "running",
        "terminating",
        "terminated",
    ];
    for state in states {
        simulate(21, async |sim| {
            prepare(sim);
            let mut builder = pod("web");
            match state {
                "pulling" => {
                    let slow = Pull {
                        takes: 60 * MINUTE,
                        ..Pull::default()
                    };
                    sim.runtime.set_pull("slow:1", slow);
                    builder = builder.container("a", "slow:1");
                }
                "making its sandbox" => {
                    let hang = Fault::hang(Operation::RunPodSandbox);
                    sim.runtime.inject(hang);
                    builder = builder.container("a", IMAGE);
                }
                "initializing" => {
                    builder = builder.init_container("i", IMAGE).container("a", IMAGE)
                }
                "waiting for a restart" => {
                    sim.runtime.set_behavior("a", Behavior::exits(SECOND, 1));
                    builder = builder.container("a", IMAGE);
                }
                "terminated" => {
                    sim.runtime.set_behavior("a", Behavior::exits(SECOND, 0));
                    builder = builder.restart_policy("Never").container("a", IMAGE);
                }
                _ => {
                    sim.runtime.set_behavior("a", Behavior::stubborn());
                    builder = builder.container("a", IMAGE);
                }
            }
            sim.desire([builder.build()]).await;
            sim.pass(30 * SECOND).await;
            assert!(sim.view("web").is_some(), "{state}");
            if state == "terminating" {
                sim.desire([]).await;
                sim.pass(2 * SECOND).await;
                assert!(sim.view("web").is_some(), "{state}");
                sim.desire([pod("web").uid("next").container("a", IMAGE).build()])
                    .await;
                sim.pass(SECOND).await;
            }
            sim.desire([]).await;
            if state == "making its sandbox" {
                sim.pass(SECOND).await;
                sim.runtime.release(Operation::RunPodSandbox);
            }
            sim.until(state, 30 * SECOND, |sim| sim.view("web").is_none())
                .await;
            sim.until("no trace is left", 3 * MINUTE, |sim| {
                sim.runtime.all_containers().is_empty()
                    && sim.runtime.sandboxes().is_empty()
                    && sim.files.links().is_empty()
                    && sim.files.paths().is_empty()
            })
            .await;
            sim.runtime.assert_no_duplicate_live_instances();
        });
    }
}

#[test]
fn crash_loops_leave_bounded_garbage() {
    for (pods, times, starts) in [
        (1000, [80 * SECOND, 100 * SECOND], 5000),
        // the back-off is five minutes
        (20, [30 * MINUTE, 720 * MINUTE], 2800),
    ] {
        simulate(22, async |sim| {
            prepare(sim);
            sim.runtime.set_behavior("a", Behavior::exits(SECOND, 1));
            let all = (0..pods).map(|i| pod(&format!("p{i}")).container("a", IMAGE).build());
            sim.desire(all).await;
            let mut left = Vec::new();
            for time in times {
                sim.pass(time).await;
                left.push(left_behind(sim));
            }
            let begun = sim.runtime.calls_of(Operation::StartContainer, "").len();
            assert!(begun >= starts, "{begun} starts");
            let [containers, sandboxes, links, files] = left[1];
            assert_eq!(sandboxes, pods);
            // the last dead instance of each, and one that runs or has just exited
            let most = 2 * pods;
            assert!(containers <= most && links <= most, "{left:?}");
            assert!(files <= left[0][3] + pods, "{left:?}");
            sim.runtime.assert_invariants();
        });
    }
}

/// Containers, sandboxes, links to logs, files.
fn left_behind(sim: &NodeSim) -> [usize; 4] {
    [
        sim.runtime.all_containers().len(),
        sim.runtime.sandboxes().len(),
        sim.files.links().len(),
        sim.files.paths().len(),
    ]
}
