//! Restart rules of one container and of all containers.

use windlass_testing::fake_runtime::{Behavior, Fault, Operation, Outcome};
use windlass_testing::{NodeSim, simulate};
use windlass_types::Pod;

use crate::fixture::{gaps, line, order, pod, prepare, rule, sidecar, starts};
use crate::{IMAGE, MINUTE, SECOND};

#[test]
fn restart_rule_overrides_restart_policy() {
    simulate(9, async |sim| {
        prepare(sim);
        let codes = [42, 42, 7];
        let script = codes.map(|code| Behavior::exits(SECOND, code));
        sim.runtime.script("a", script.to_vec());
        let web = pod("web")
            .restart_policy("Never")
            .container_with("a", IMAGE, |c| rule(c, "Restart", 42))
            .build();
        sim.desire([web]).await;
        sim.until("it fails", 2 * MINUTE, |sim| sim.phase("web") == "Failed")
            .await;
        assert_eq!(gaps(sim, "web", "a"), [1, 11]);
    });
}

/// Two init containers, one of them a sidecar, and `b` beside `a`, whose exit code 88 restarts all
/// containers.
fn trainer() -> Pod {
    pod("web")
        .restart_policy("Never")
        .init_container("i", IMAGE)
        .init_container_with("s", IMAGE, sidecar)
        .container_with("a", IMAGE, |c| rule(c, "RestartAllContainers", 88))
        .container("b", IMAGE)
        .build()
}

#[test]
fn restart_rule_restarts_all_containers_in_sandbox() {
    simulate(10, async |sim| {
        prepare(sim);
        sim.runtime.set_behavior("i", Behavior::exits(SECOND, 0));
        let script = [Behavior::exits(10 * SECOND, 88), Behavior::default()];
        sim.runtime.script("a", script.to_vec());
        sim.runtime.set_behavior("b", Behavior::stubborn());
        sim.desire([trainer()]).await;
        let uid = "web-uid".into();
        let names = ["i", "s", "a", "b"];
        sim.until("all ran twice", 30 * SECOND, |sim| {
            starts(sim, &uid, names) == [2; 4] && sim.phase("web") == "Running"
        })
        .await;
        sim.pass(5 * MINUTE).await;
        assert_eq!(starts(sim, &uid, names), [2; 4]);
        assert_eq!(sim.runtime.sandboxes().len(), 1, "the sandbox stayed");
        let second: Vec<_> = order(sim, Operation::StartContainer, "web").split_off(4);
        assert_eq!(second, ["i#1", "s#1", "a#1", "b#1"]);
        // b would not have exited
        assert!(gaps(sim, "web", "b")[0] < 15);
        let line = line(sim, "web");
        for name in ["a", "b"] {
            assert!(line.contains(&format!("{name}:running<")), "{line}");
            assert!(line.contains("#1*"), "{line}");
        }
        sim.runtime.assert_invariants();
    });
}

#[test]
fn repeated_restart_of_all_containers_backs_off() {
    simulate(11, async |sim| {
        prepare(sim);
        sim.runtime.set_behavior("a", Behavior::exits(SECOND, 88));
        let web = pod("web")
            .container_with("a", IMAGE, |c| rule(c, "RestartAllContainers", 88))
            .container("b", IMAGE)
            .build();
        sim.desire([web]).await;
        let uid = "web-uid".into();
        sim.until("five starts", 5 * MINUTE, |sim| {
            starts(sim, &uid, ["a", "b"]) == [5, 5]
        })
        .await;
        assert_eq!(gaps(sim, "web", "a"), [1, 11, 21, 41]);
        let logs = sim.files.links().len();
        assert!(logs <= 4, "{logs} log links are left of five rounds");
    });
}

#[test]
fn restart_of_all_containers_resumes_after_agent_death() {
    simulate(12, async |sim| {
        prepare(sim);
        sim.runtime.set_behavior("i", Behavior::exits(SECOND, 0));
        let script = [Behavior::exits(10 * SECOND, 88), Behavior::default()];
        sim.runtime.script("a", script.to_vec());
        sim.runtime
            .inject(Fault::hang(Operation::RemoveContainer).on("default/web/b"));
        sim.desire([trainer()]).await;
        let uid = "web-uid".into();
        sim.until("b is killed", 30 * SECOND, |sim| {
            sim.runtime.starts(&uid, "a") == 1
                && sim.runtime.running(&uid, "b").is_none()
                && sim.runtime.starts(&uid, "b") == 1
        })
        .await;
        sim.kill_agent().await;
        sim.runtime.release(Operation::RemoveContainer);
        sim.start_agent().await;
        let names = ["i", "s", "a", "b"];
        sim.until("all ran twice", MINUTE, |sim| {
            starts(sim, &uid, names) == [2; 4] && sim.phase("web") == "Running"
        })
        .await;
        sim.runtime.assert_invariants();
    });
}

/// The runtime does not remove `b#0`, whose start a kill of the agent cut off.
#[test]
fn restart_of_all_containers_beside_a_lost_task() {
    simulate(13, async |sim| {
        prepare(sim);
        sim.runtime.lose_tasks();
        sim.runtime.set_latency(Operation::StartContainer, SECOND);
        let script = [Behavior::exits(10 * SECOND, 88), Behavior::default()];
        sim.runtime.script("a", script.to_vec());
        let web = pod("web")
            .container_with("a", IMAGE, |c| rule(c, "RestartAllContainers", 88))
            .container("b", IMAGE)
            .build();
        sim.desire([web]).await;
        sim.until("b is being started", 5 * SECOND, |sim| {
            let calls = sim
                .runtime
                .calls_of(Operation::StartContainer, "default/web/b#0");
            calls.iter().any(|call| call.outcome == Outcome::Open)
        })
        .await;
        sim.kill_agent().await;
        sim.start_agent().await;
        let uid = "web-uid".into();
        let attempts = |sim: &NodeSim| {
            let running = ["a", "b"].map(|name| sim.runtime.running(&uid, name));
            running.map(|it| it.map(|it| it.attempt))
        };
        sim.until("b runs", 10 * SECOND, |sim| {
            attempts(sim) == [Some(0), Some(1)]
        })
        .await;
        sim.until("all ran again", 30 * SECOND, |sim| {
            attempts(sim) == [Some(1), Some(2)] && sim.phase("web") == "Running"
        })
        .await;
        sim.pass(MINUTE).await;
        assert_eq!(attempts(sim), [Some(1), Some(2)]);
        sim.runtime.assert_invariants();
    });
}
