//! Which containers of a pod run when, on a virtual clock: init containers, sidecars, debuggers,
//! restart rules, deadlines, and pods that are removed in whatever state they are.

#![allow(missing_docs, clippy::expect_used)]

use std::time::Duration;

use windlass_core::status::status_line;
use windlass_testing::fake_runtime::{Behaviour, Exec, Fault, Operation, Pull};
use windlass_testing::{NodeSim, PodBuilder, simulate, simulate_cluster};
use windlass_types::corev1::{
    Container, ContainerRestartRule, ContainerRestartRuleOnExitCodes, EphemeralContainer,
    ExecAction, Node, Probe,
};
use windlass_types::{ContainerState, Pod, PodExt, PodUid, Reason};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const IMAGE: &str = "busybox:1";

fn pod(name: &str) -> PodBuilder {
    PodBuilder::new(name).grace(5)
}

fn sidecar(container: &mut Container) {
    container.restart_policy = Some("Always".to_owned());
}

/// A probe that runs a command, each second.
fn every_second(failures: i32) -> Probe {
    Probe {
        exec: Some(ExecAction {
            command: Some(vec!["check".to_owned()]),
        }),
        period_seconds: Some(1),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

fn rule(container: &mut Container, action: &str, code: i32) {
    container.restart_policy = Some("Never".to_owned());
    container.restart_policy_rules = Some(vec![ContainerRestartRule {
        action: action.to_owned(),
        exit_codes: Some(ContainerRestartRuleOnExitCodes {
            operator: "In".to_owned(),
            values: Some(vec![code]),
        }),
    }]);
}

fn prepare(sim: &NodeSim) {
    sim.runtime.add_image(IMAGE);
    let latency = |operation, time| {
        sim.runtime
            .set_latency(operation, Duration::from_millis(time));
    };
    latency(Operation::RunPodSandbox, 80);
    latency(Operation::CreateContainer, 20);
    latency(Operation::StartContainer, 40);
}

/// `name#attempt` of the calls of one operation, in order.
fn order(sim: &NodeSim, operation: Operation, pod: &str) -> Vec<String> {
    let prefix = format!("default/{pod}/");
    let calls = sim.runtime.calls_of(operation, &prefix);
    let short = |call: &windlass_testing::fake_runtime::Call| {
        let rest = call.subject.strip_prefix(&prefix).unwrap_or_default();
        rest.split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    calls.iter().map(short).collect()
}

fn line(sim: &NodeSim, name: &str) -> String {
    sim.view(name)
        .map_or(String::new(), |view| status_line(&view.status))
}

fn starts<const N: usize>(sim: &NodeSim, uid: &PodUid, names: [&str; N]) -> [u32; N] {
    names.map(|name| sim.runtime.starts(uid, name))
}

/// Whole seconds between the starts of a container.
fn gaps(sim: &NodeSim, pod: &str, container: &str) -> Vec<i64> {
    let prefix = format!("default/{pod}/{container}#");
    let calls = sim.runtime.calls_of(Operation::StartContainer, &prefix);
    let times: Vec<_> = calls.iter().map(|call| call.at).collect();
    let gap = |pair: &[windlass_types::Timestamp]| pair[1].duration_since(pair[0]).as_secs();
    times.windows(2).map(gap).collect()
}

fn nothing_lives(sim: &NodeSim, uid: &PodUid) -> bool {
    let live = |state| matches!(state, ContainerState::Running | ContainerState::Unknown);
    let containers = sim.runtime.containers(uid);
    let sandboxes = sim.runtime.sandboxes();
    !containers.iter().any(|c| live(c.state))
        && !sandboxes
            .iter()
            .any(|(_, of, _, ready)| of == uid && *ready)
}

#[test]
fn sidecars_start_in_order_between_init_containers_and_stop_in_reverse_after_the_rest() {
    simulate(1, async |sim| {
        prepare(sim);
        sim.runtime.set_behaviour("i", Behaviour::exits(SECOND, 0));
        let web = pod("web")
            .init_container_with("s1", IMAGE, sidecar)
            .init_container("i", IMAGE)
            .init_container_with("s2", IMAGE, sidecar)
            .container("a", IMAGE)
            .container("b", IMAGE)
            .build();
        sim.desire([web]).await;
        sim.until("web runs", 5 * SECOND, |sim| sim.phase("web") == "Running")
            .await;
        let started = order(sim, Operation::StartContainer, "web");
        assert_eq!(started, ["s1#0", "i#0", "s2#0", "a#0", "b#0"]);
        sim.desire([]).await;
        sim.until("web is gone", 20 * SECOND, |sim| sim.view("web").is_none())
            .await;
        let stopped = order(sim, Operation::StopContainer, "web");
        assert_eq!(stopped, ["a#0", "b#0", "s2#0", "s1#0"]);
        sim.runtime.assert_invariants();
    });
}

#[test]
fn what_follows_a_sidecar_waits_for_its_startup_probe() {
    simulate(2, async |sim| {
        prepare(sim);
        sim.runtime.set_exec("default/web/s check", Exec::exits(1));
        let web = pod("web")
            .init_container_with("s", IMAGE, |c| {
                sidecar(c);
                c.startup_probe = Some(every_second(1000));
            })
            .container("a", IMAGE)
            .build();
        sim.desire([web]).await;
        let uid = "web-uid".into();
        sim.until("the sidecar runs", 5 * SECOND, |sim| {
            sim.runtime.running(&uid, "s").is_some()
        })
        .await;
        sim.pass(MINUTE).await;
        assert_eq!(starts(sim, &uid, ["s", "a"]), [1, 0]);
        assert_eq!(sim.phase("web"), "Pending");
        sim.runtime.set_exec("default/web/s check", Exec::exits(0));
        sim.until("web runs", 3 * SECOND, |sim| sim.phase("web") == "Running")
            .await;
        assert_eq!(starts(sim, &uid, ["s", "a"]), [1, 1]);
    });
}

#[test]
fn a_sidecar_whose_startup_probe_fails_is_restarted_ever_more_slowly_and_fails_no_pod() {
    simulate(3, async |sim| {
        prepare(sim);
        sim.runtime.set_exec("default/web/s check", Exec::exits(1));
        let web = pod("web")
            .restart_policy("Never")
            .init_container_with("s", IMAGE, |c| {
                sidecar(c);
                c.startup_probe = Some(every_second(3));
            })
            .container("a", IMAGE)
            .build();
        sim.desire([web]).await;
        let uid = "web-uid".into();
        sim.until("restarts", 10 * MINUTE, |sim| {
            sim.runtime.starts(&uid, "s") >= 6
        })
        .await;
        assert_eq!(sim.runtime.starts(&uid, "a"), 0);
        assert_eq!(sim.phase("web"), "Pending");
        let gaps = gaps(sim, "web", "s");
        assert!(gaps[4] > 30, "the back-off grows: {gaps:?}");
        sim.runtime.assert_invariants();
    });
}

#[test]
fn init_containers_end_fail_and_run_again_as_the_policy_says() {
    // policy, exit codes of i and a; phase, starts of i and a
    type Case = (
        &'static str,
        &'static [i32],
        &'static [i32],
        &'static str,
        [u32; 2],
    );
    let cases: [Case; 7] = [
        ("Always", &[1, 0], &[], "Running", [2, 1]),
        ("OnFailure", &[1, 1, 0], &[0], "Succeeded", [3, 1]),
        ("OnFailure", &[0], &[3, 0], "Succeeded", [1, 2]),
        ("Never", &[0], &[0], "Succeeded", [1, 1]),
        ("Never", &[0], &[3], "Failed", [1, 1]),
        ("Never", &[1], &[0], "Failed", [1, 0]),
        ("Never", &[0], &[], "Running", [1, 1]),
    ];
    for (policy, init, app, phase, expected) in cases {
        simulate(4, async |sim| {
            prepare(sim);
            let script = |codes: &[i32]| match codes {
                [] => vec![Behaviour::default()],
                codes => codes.iter().map(|c| Behaviour::exits(SECOND, *c)).collect(),
            };
            sim.runtime.script("i", script(init));
            sim.runtime.script("a", script(app));
            let web = pod("web")
                .restart_policy(policy)
                .init_container("i", IMAGE)
                .container("a", IMAGE)
                .build();
            sim.desire([web]).await;
            let what = format!("{policy} {init:?} {app:?}: {phase}");
            sim.until(&what, 2 * MINUTE, |sim| sim.phase("web") == phase)
                .await;
            sim.pass(MINUTE).await;
            assert_eq!(sim.phase("web"), phase, "{what}");
            let uid = "web-uid".into();
            assert_eq!(starts(sim, &uid, ["i", "a"]), expected, "{what}");
        });
    }
}

#[test]
fn a_sandbox_that_dies_is_replaced_and_everything_runs_again_if_the_policy_lets_it() {
    for (policy, phase, expected) in [
        ("Always", "Running", [2, 2, 2]),
        ("OnFailure", "Running", [2, 2, 2]),
        ("Never", "Failed", [1, 1, 1]),
    ] {
        simulate(5, async |sim| {
            prepare(sim);
            sim.runtime.set_behaviour("i", Behaviour::exits(SECOND, 0));
            let web = pod("web")
                .restart_policy(policy)
                .init_container_with("s", IMAGE, sidecar)
                .init_container("i", IMAGE)
                .container("a", IMAGE)
                .build();
            sim.desire([web]).await;
            sim.until("web runs", 5 * SECOND, |sim| sim.phase("web") == "Running")
                .await;
            let (sandbox, ..) = sim.runtime.sandboxes().remove(0);
            sim.runtime.kill_sandbox(&sandbox);
            sim.pass(MINUTE).await;
            assert_eq!(sim.phase("web"), phase, "{policy}");
            let uid = "web-uid".into();
            assert_eq!(starts(sim, &uid, ["s", "i", "a"]), expected, "{policy}");
            sim.runtime.assert_no_duplicate_live_instances();
        });
    }
}

fn node_ready(sim: &NodeSim) -> bool {
    let node = sim.api.get::<Node>(None, "sim");
    let conditions = node.and_then(|node| node.status?.conditions);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|c| c.type_ == "Ready" && c.status == "True")
}

/// A pod of the API server that runs `a` on a node that has joined.
async fn running_in_a_cluster(sim: &mut NodeSim, builder: PodBuilder) -> PodUid {
    prepare(sim);
    Box::pin(sim.start_agent()).await;
    sim.until("the node is ready", 2 * SECOND, node_ready).await;
    let uid = sim.api.create(&builder.bound_to("sim").build()).uid();
    sim.until("a runs", 5 * SECOND, |sim| {
        sim.runtime.running(&uid, "a").is_some() && sim.phase("web") == "Running"
    })
    .await;
    uid
}

fn add_debugger(sim: &NodeSim, name: &str, image: &str) {
    sim.api.modify::<Pod>(Some("default"), "web", |pod| {
        let spec = pod.spec.get_or_insert_default();
        let debuggers = spec.ephemeral_containers.get_or_insert_default();
        debuggers.push(EphemeralContainer {
            name: name.to_owned(),
            image: Some(image.to_owned()),
            image_pull_policy: Some("IfNotPresent".to_owned()),
            target_container_name: Some("a".to_owned()),
            ..EphemeralContainer::default()
        });
    });
}

#[test]
fn a_debugger_joins_a_running_pod_once_and_leaves_the_others_alone() {
    simulate_cluster(6, async |sim| {
        let uid = running_in_a_cluster(sim, pod("web").container("a", IMAGE)).await;
        let a = sim.runtime.running(&uid, "a").expect("a").id;
        sim.runtime
            .set_behaviour("debug", Behaviour::exits(5 * SECOND, 1));
        add_debugger(sim, "debug", IMAGE);
        sim.until("the debugger runs", 3 * SECOND, |sim| {
            sim.runtime.running(&uid, "debug").is_some()
        })
        .await;
        let debugger = sim.runtime.running(&uid, "debug").expect("it runs").id;
        let config = sim.runtime.container_config(&debugger).expect("config");
        assert_eq!(config.security.pid_target, Some(a.clone()));
        sim.pass(5 * MINUTE).await;
        sim.kill_agent().await;
        sim.start_agent().await;
        sim.pass(5 * MINUTE).await;
        assert_eq!(starts(sim, &uid, ["a", "debug"]), [1, 1]);
        assert_eq!(sim.runtime.running(&uid, "a").expect("a").id, a);
        let line = line(sim, "web");
        assert!(
            line.starts_with("Running ") && line.contains("debug:Error=1"),
            "{line}"
        );
        // one that still runs ends with its pod
        add_debugger(sim, "second", IMAGE);
        sim.until("the second runs", 3 * SECOND, |sim| {
            sim.runtime.running(&uid, "second").is_some()
        })
        .await;
        assert!(sim.api.delete::<Pod>(Some("default"), "web", None));
        sim.until("the pod is gone", 20 * SECOND, |sim| {
            sim.api.get::<Pod>(Some("default"), "web").is_none()
        })
        .await;
        assert!(nothing_lives(sim, &uid));
        sim.runtime.assert_invariants();
    });
}

#[test]
fn a_debugger_that_cannot_start_says_why_and_starts_when_it_can() {
    simulate_cluster(7, async |sim| {
        let uid = running_in_a_cluster(sim, pod("web").container("a", IMAGE)).await;
        sim.runtime.set_pull("tools:1", Pull::not_found("tools:1"));
        add_debugger(sim, "debug", "tools:1");
        sim.until("it says why", 5 * SECOND, |sim| {
            line(sim, "web").contains("debug:ErrImagePull")
                || line(sim, "web").contains("debug:ImagePullBackOff")
        })
        .await;
        assert_eq!(sim.phase("web"), "Running");
        sim.runtime.set_pull("tools:1", Pull::default());
        sim.until("it runs", 2 * MINUTE, |sim| {
            sim.runtime.running(&uid, "debug").is_some()
        })
        .await;
        assert_eq!(starts(sim, &uid, ["a", "debug"]), [1, 1]);
    });
}

#[test]
fn a_debugger_keeps_no_pod_from_succeeding() {
    simulate_cluster(8, async |sim| {
        sim.runtime
            .set_behaviour("a", Behaviour::exits(20 * SECOND, 0));
        let once = pod("web").restart_policy("Never").container("a", IMAGE);
        let uid = running_in_a_cluster(sim, once).await;
        add_debugger(sim, "debug", IMAGE);
        sim.until("it succeeds", MINUTE, |sim| sim.phase("web") == "Succeeded")
            .await;
        sim.until("all has stopped", 20 * SECOND, |sim| {
            nothing_lives(sim, &uid)
        })
        .await;
        assert_eq!(sim.runtime.starts(&uid, "debug"), 1);
    });
}

#[test]
fn a_rule_restarts_a_container_that_would_not_run_again() {
    simulate(9, async |sim| {
        prepare(sim);
        let codes = [42, 42, 7];
        let script = codes.map(|code| Behaviour::exits(SECOND, code));
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

/// Two init containers, one of them a sidecar, and `b` beside `a`, whose exit with 88 begins
/// everything anew.
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
fn one_container_begins_its_whole_pod_anew_in_its_sandbox() {
    simulate(10, async |sim| {
        prepare(sim);
        sim.runtime.set_behaviour("i", Behaviour::exits(SECOND, 0));
        let script = [Behaviour::exits(10 * SECOND, 88), Behaviour::default()];
        sim.runtime.script("a", script.to_vec());
        sim.runtime.set_behaviour("b", Behaviour::stubborn());
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
        // b would not have ended by itself
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
fn a_pod_that_begins_anew_again_and_again_does_so_ever_more_slowly() {
    simulate(11, async |sim| {
        prepare(sim);
        sim.runtime.set_behaviour("a", Behaviour::exits(SECOND, 88));
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
fn an_agent_that_dies_while_a_pod_begins_anew_goes_on_with_it() {
    simulate(12, async |sim| {
        prepare(sim);
        sim.runtime.set_behaviour("i", Behaviour::exits(SECOND, 0));
        let script = [Behaviour::exits(10 * SECOND, 88), Behaviour::default()];
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

fn with_deadline(builder: PodBuilder, seconds: i64) -> PodBuilder {
    builder.with(|pod| pod.spec.get_or_insert_default().active_deadline_seconds = Some(seconds))
}

fn is_past_its_deadline(sim: &NodeSim) -> bool {
    let status = sim.view("web").map(|view| view.status);
    let reason = status.and_then(|status| status.reason.clone());
    sim.phase("web") == "Failed" && reason.as_deref() == Some("DeadlineExceeded")
}

#[test]
fn a_pod_ends_at_its_deadline_to_the_second_and_stays_ended() {
    simulate(13, async |sim| {
        prepare(sim);
        let web = with_deadline(pod("web").container("a", IMAGE), 30).build();
        sim.desire([web]).await;
        let uid = "web-uid".into();
        sim.pass(29 * SECOND).await;
        assert_eq!(sim.phase("web"), "Running");
        sim.until("it is ended", 2 * SECOND, is_past_its_deadline)
            .await;
        sim.until("nothing lives", 10 * SECOND, |sim| nothing_lives(sim, &uid))
            .await;
        let view = sim.view("web").expect("an entry");
        let told = view
            .events
            .iter()
            .filter(|e| e.reason == Reason::DeadlineExceeded);
        let words: Vec<_> = told.map(|e| (e.count, e.message.clone())).collect();
        let text = "Pod was active on the node longer than the specified deadline";
        assert_eq!(words, [(1, text.to_owned())]);
        assert_eq!(view.status.message.as_deref(), Some(text));
        // neither time nor a new agent brings it back
        sim.pass(MINUTE).await;
        sim.kill_agent().await;
        sim.start_agent().await;
        sim.pass(MINUTE).await;
        assert_eq!(sim.runtime.starts(&uid, "a"), 1);
        assert!(is_past_its_deadline(sim), "{}", line(sim, "web"));
    });
}

#[test]
fn a_deadline_counts_on_while_the_agent_is_away() {
    simulate(14, async |sim| {
        prepare(sim);
        let web = with_deadline(pod("web").container("a", IMAGE), 60).build();
        sim.desire([web]).await;
        sim.pass(20 * SECOND).await;
        sim.kill_agent().await;
        sim.pass(20 * SECOND).await;
        sim.start_agent().await;
        sim.pass(15 * SECOND).await;
        assert_eq!(sim.phase("web"), "Running");
        sim.until("it is ended", 6 * SECOND, is_past_its_deadline)
            .await;
        let uid = "web-uid".into();
        assert_eq!(sim.runtime.starts(&uid, "a"), 1);
    });
}

#[test]
fn a_deadline_that_passed_while_the_agent_was_away_starts_nothing() {
    simulate(15, async |sim| {
        prepare(sim);
        sim.runtime
            .set_behaviour("a", Behaviour::exits(10 * SECOND, 1));
        let web = with_deadline(pod("web").container("a", IMAGE), 60).build();
        sim.desire([web]).await;
        sim.pass(5 * SECOND).await;
        sim.kill_agent().await;
        sim.pass(MINUTE).await;
        sim.start_agent().await;
        sim.until("it is ended", 5 * SECOND, is_past_its_deadline)
            .await;
        sim.pass(MINUTE).await;
        let uid = "web-uid".into();
        assert_eq!(sim.runtime.starts(&uid, "a"), 1);
    });
}

#[test]
fn a_deadline_ends_a_pod_that_never_got_anywhere() {
    for what in ["pull", "sandbox", "create"] {
        simulate(16, async |sim| {
            prepare(sim);
            let image = match what {
                "pull" => "slow:1",
                _ => IMAGE,
            };
            let slow = Pull {
                takes: 60 * MINUTE,
                ..Pull::default()
            };
            sim.runtime.set_pull("slow:1", slow);
            match what {
                "sandbox" => sim.runtime.inject(Fault::hang(Operation::RunPodSandbox)),
                "create" => sim.runtime.inject(Fault::hang(Operation::CreateContainer)),
                _ => {}
            }
            let web = with_deadline(pod("web").container("a", image), 30).build();
            sim.desire([web]).await;
            sim.pass(25 * SECOND).await;
            assert_eq!(sim.phase("web"), "Pending", "{what}");
            sim.until(what, 8 * SECOND, is_past_its_deadline).await;
            assert_eq!(sim.runtime.starts(&"web-uid".into(), "a"), 0);
        });
    }
}

#[test]
fn a_deadline_that_is_shortened_counts_from_the_start() {
    simulate_cluster(17, async |sim| {
        let web = with_deadline(pod("web").container("a", IMAGE), 3600);
        let uid = running_in_a_cluster(sim, web).await;
        sim.pass(MINUTE).await;
        sim.api.modify::<Pod>(Some("default"), "web", |pod| {
            pod.spec.get_or_insert_default().active_deadline_seconds = Some(90);
        });
        sim.pass(20 * SECOND).await;
        assert_eq!(sim.phase("web"), "Running");
        sim.until("it is ended", 12 * SECOND, is_past_its_deadline)
            .await;
        sim.until("the API knows", 20 * SECOND, |sim| {
            let pod = sim.api.get::<Pod>(Some("default"), "web");
            let status = pod.and_then(|pod| pod.status).unwrap_or_default();
            status.phase.as_deref() == Some("Failed")
                && status.reason.as_deref() == Some("DeadlineExceeded")
        })
        .await;
        assert!(nothing_lives(sim, &uid));
    });
}

#[test]
fn a_pod_that_succeeded_before_its_deadline_stays_succeeded() {
    simulate(18, async |sim| {
        prepare(sim);
        sim.runtime
            .set_behaviour("a", Behaviour::exits(10 * SECOND, 0));
        let once = pod("web").restart_policy("Never").container("a", IMAGE);
        sim.desire([with_deadline(once, 30).build()]).await;
        sim.pass(2 * MINUTE).await;
        assert_eq!(sim.phase("web"), "Succeeded");
    });
}

#[test]
fn a_container_whose_agent_died_between_creating_and_starting_it_is_made_anew() {
    for name in ["i", "s", "a"] {
        simulate(19, async |sim| {
            prepare(sim);
            sim.runtime.set_behaviour("i", Behaviour::exits(SECOND, 0));
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
fn a_pod_that_is_made_again_at_once_starts_when_its_predecessor_has_ended() {
    simulate(20, async |sim| {
        prepare(sim);
        sim.runtime.set_behaviour("a", Behaviour::stubborn());
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
fn a_pod_is_removed_without_a_trace_in_whatever_state_it_is() {
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
                    sim.runtime.set_behaviour("a", Behaviour::exits(SECOND, 1));
                    builder = builder.container("a", IMAGE);
                }
                "terminated" => {
                    sim.runtime.set_behaviour("a", Behaviour::exits(SECOND, 0));
                    builder = builder.restart_policy("Never").container("a", IMAGE);
                }
                _ => {
                    sim.runtime.set_behaviour("a", Behaviour::stubborn());
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
fn crash_loops_leave_no_more_behind_the_longer_they_go_on() {
    for (pods, times, starts) in [
        (1000, [80 * SECOND, 100 * SECOND], 5000),
        // the delays have grown to five minutes
        (20, [30 * MINUTE, 720 * MINUTE], 2800),
    ] {
        simulate(22, async |sim| {
            prepare(sim);
            sim.runtime.set_behaviour("a", Behaviour::exits(SECOND, 1));
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
            // the last dead one of each, and one that runs or has just ended
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
