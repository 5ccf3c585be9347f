//! Runtime failures on a virtual clock: hung calls, lost responses, and lost, duplicate or late
//! events.

#![allow(missing_docs, clippy::expect_used)]

use std::time::Duration;

use serde_json::json;
use windlass_cri::CriCode;
use windlass_testing::fake_runtime::{Behavior, Exec, Fault, Operation};
use windlass_testing::{NodeSim, PodBuilder, simulate, simulate_cluster};
use windlass_types::corev1::{Container, Node};
use windlass_types::{Pod, PodUid, Reason};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Max time until a hung call is reported.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Max time of a pod start or stop, with other pods.
const USUAL: Duration = Duration::from_millis(700);

fn pod(name: &str) -> PodBuilder {
    PodBuilder::new(name).container("app", "busybox:1").grace(5)
}

fn uid(name: &str) -> PodUid {
    format!("{name}-uid").into()
}

fn runs(sim: &NodeSim, name: &str) -> bool {
    sim.runtime.running(&uid(name), "app").is_some()
}

fn prepare(sim: &NodeSim) {
    sim.runtime.add_image("busybox:1");
    for (operation, milliseconds) in [
        (Operation::RunPodSandbox, 80),
        (Operation::CreateContainer, 20),
        (Operation::StartContainer, 40),
        (Operation::StopPodSandbox, 50),
    ] {
        let latency = Duration::from_millis(milliseconds);
        sim.runtime.set_latency(operation, latency);
    }
}

async fn desire(sim: &mut NodeSim, names: &[&str]) {
    sim.desire(names.iter().map(|name| pod(name).build())).await;
}

/// Count and message of each hung-call event of a pod.
fn hung_call_events(sim: &NodeSim, name: &str) -> Vec<String> {
    let events = sim.view(name).map(|view| view.events).unwrap_or_default();
    let hangs = events
        .iter()
        .filter(|event| event.reason == Reason::RuntimeCallHung);
    hangs
        .map(|event| format!("{}x {}", event.count, event.message))
        .collect()
}

fn blocker_text(sim: &NodeSim, name: &str) -> String {
    let blocker = sim.view(name).and_then(|view| view.blocker);
    blocker.map_or_else(String::new, |blocker| blocker.to_string())
}

/// Pods start and stop without delay.
async fn neighbours_are_well(sim: &mut NodeSim, sick: &[&str], round: u32) {
    let name = format!("neighbour{round}");
    let with: Vec<&str> = sick.iter().copied().chain([name.as_str()]).collect();
    desire(sim, &with).await;
    sim.until("the neighbour runs", USUAL, |sim| {
        runs(sim, &name) && sim.phase(&name) == "Running" && sim.blocker(&name).is_empty()
    })
    .await;
    let app = sim.runtime.running(&uid(&name), "app").expect("runs");
    sim.runtime.kill_container(&app.id, 1);
    sim.until("it is started again", USUAL, |sim| {
        let now = sim.runtime.running(&uid(&name), "app");
        now.is_some_and(|now| now.id != app.id)
    })
    .await;
    desire(sim, sick).await;
    sim.until("the neighbour is gone", USUAL, |sim| {
        !runs(sim, &name) && sim.view(&name).is_none()
    })
    .await;
}

/// Waits until blocker and event of the pod report the same hung call.
async fn check_hung_call(sim: &NodeSim, name: &str, call: &str) {
    sim.until(
        &format!("{name} reports the hung {call}"),
        REPORT_TIMEOUT,
        |sim| blocker_text(sim, name).starts_with(&format!("RuntimeCallHung: {call} on ")),
    )
    .await;
    let events = hung_call_events(sim, name);
    assert_eq!(events.len(), 1, "one event per hung call: {events:?}");
    let message = events[0].strip_prefix("1x ").expect("once");
    // and the number of attempts, if more than one
    let text = blocker_text(sim, name);
    assert!(
        text.starts_with(&format!("RuntimeCallHung: {message}")),
        "{text}"
    );
    assert!(message.contains("no response from the container runtime"));
}

/// A hang of one operation for pod `sick`, provoked by `provoke`.
fn hang(
    seed: u64,
    operation: Operation,
    call: &str,
    provoke: impl AsyncFnOnce(&mut NodeSim),
    recovers: impl Fn(&NodeSim) -> bool,
) {
    simulate(seed, async |sim| {
        prepare(sim);
        provoke(sim).await;
        let sick: &[&str] = match operation {
            // its manifest was removed
            Operation::StopContainer | Operation::StopPodSandbox => &[],
            _ => &["sick"],
        };
        check_hung_call(sim, "sick", call).await;
        // longer than any timeout, but a failed stop still stops the sandbox
        let rounds = match operation {
            Operation::StopContainer => 10,
            _ => 35,
        };
        for round in 0..rounds {
            neighbours_are_well(sim, sick, round).await;
            sim.pass(7 * SECOND).await;
        }
        assert_eq!(
            sim.blocker("sick"),
            "RuntimeCallHung",
            "as long as it hangs"
        );
        // a start is retried with a new container
        let events = hung_call_events(sim, "sick");
        assert!(
            events.iter().all(|event| event.starts_with("1x ")),
            "{events:?}"
        );
        assert!(events.len() <= 3, "{events:?}");
        sim.runtime.release(operation);
        sim.until("it is well again", 6 * MINUTE, |sim| {
            recovers(sim) && sim.blocker("sick").is_empty()
        })
        .await;
        sim.runtime.assert_invariants();
    });
}

fn is_well(sim: &NodeSim) -> bool {
    runs(sim, "sick") && sim.phase("sick") == "Running"
}

async fn starts(sim: &mut NodeSim, operation: Operation) {
    sim.runtime
        .inject(Fault::hang(operation).on("default/sick"));
    desire(sim, &["sick"]).await;
}

/// A running pod at the time of the hang.
async fn ran(sim: &mut NodeSim, operation: Operation) {
    desire(sim, &["sick"]).await;
    sim.until("sick runs", USUAL, is_well).await;
    sim.runtime
        .inject(Fault::hang(operation).on("default/sick"));
}

#[test]
fn hung_run_pod_sandbox_is_reported_and_delays_no_pod() {
    let provoke = async |sim: &mut NodeSim| starts(sim, Operation::RunPodSandbox).await;
    hang(
        1,
        Operation::RunPodSandbox,
        "RunPodSandbox",
        provoke,
        is_well,
    );
}

#[test]
fn hung_create_container_is_reported_and_delays_no_pod() {
    let provoke = async |sim: &mut NodeSim| starts(sim, Operation::CreateContainer).await;
    hang(
        2,
        Operation::CreateContainer,
        "CreateContainer",
        provoke,
        is_well,
    );
}

#[test]
fn hung_start_container_is_reported_and_delays_no_pod() {
    let provoke = async |sim: &mut NodeSim| starts(sim, Operation::StartContainer).await;
    hang(
        3,
        Operation::StartContainer,
        "StartContainer",
        provoke,
        is_well,
    );
}

#[test]
fn hung_sandbox_status_is_reported_and_delays_no_pod() {
    let provoke = async |sim: &mut NodeSim| {
        ran(sim, Operation::PodSandboxStatus).await;
        let app = sim.runtime.running(&uid("sick"), "app").expect("runs");
        sim.runtime.kill_container(&app.id, 1);
    };
    hang(
        4,
        Operation::PodSandboxStatus,
        "PodSandboxStatus",
        provoke,
        is_well,
    );
}

#[test]
fn hung_container_status_is_reported_and_delays_no_pod() {
    let provoke = async |sim: &mut NodeSim| {
        ran(sim, Operation::ContainerStatus).await;
        let app = sim.runtime.running(&uid("sick"), "app").expect("runs");
        sim.runtime.kill_container(&app.id, 1);
    };
    hang(
        5,
        Operation::ContainerStatus,
        "ContainerStatus",
        provoke,
        is_well,
    );
}

#[test]
fn hung_stop_container_is_reported_and_delays_no_pod() {
    let provoke = async |sim: &mut NodeSim| {
        ran(sim, Operation::StopContainer).await;
        desire(sim, &[]).await;
        // within its grace period
        sim.pass(5 * SECOND).await;
        assert_eq!(sim.blocker("sick"), "Terminating");
    };
    let gone = |sim: &NodeSim| sim.view("sick").is_none();
    hang(6, Operation::StopContainer, "StopContainer", provoke, gone);
}

#[test]
fn hung_stop_pod_sandbox_is_reported_and_delays_no_pod() {
    let provoke = async |sim: &mut NodeSim| {
        ran(sim, Operation::StopPodSandbox).await;
        desire(sim, &[]).await;
    };
    let gone = |sim: &NodeSim| sim.view("sick").is_none();
    hang(
        7,
        Operation::StopPodSandbox,
        "StopPodSandbox",
        provoke,
        gone,
    );
}

#[test]
fn hung_remove_container_is_reported_and_delays_no_pod() {
    let provoke = async |sim: &mut NodeSim| {
        ran(sim, Operation::RemoveContainer).await;
        // the older of two dead instances is removed
        for _ in 0..2 {
            let app = sim.runtime.running(&uid("sick"), "app").expect("runs");
            sim.runtime.kill_container(&app.id, 1);
            sim.until("it is started again", 15 * SECOND, |sim| {
                let now = sim.runtime.running(&uid("sick"), "app");
                now.is_some_and(|now| now.id != app.id)
            })
            .await;
        }
    };
    let operation = Operation::RemoveContainer;
    hang(12, operation, "RemoveContainer", provoke, is_well);
}

#[test]
fn hung_image_status_is_reported_and_delays_no_pod() {
    simulate(8, async |sim| {
        prepare(sim);
        sim.runtime.add_image("sick:1");
        sim.runtime
            .inject(Fault::hang(Operation::ImageStatus).on("sick:1"));
        let sick = || PodBuilder::new("sick").container("app", "sick:1").build();
        sim.desire([sick()]).await;
        check_hung_call(sim, "sick", "ImageStatus").await;
        sim.desire([sick(), pod("web").build()]).await;
        sim.until("web runs", USUAL, |sim| runs(sim, "web")).await;
        sim.runtime.release(Operation::ImageStatus);
        sim.until("sick runs", 6 * MINUTE, is_well).await;
        assert_eq!(sim.blocker("sick"), "");
    });
}

#[test]
fn many_hung_sandbox_statuses_delay_no_pod() {
    simulate(9, async |sim| {
        prepare(sim);
        let sick: Vec<String> = (0..16).map(|n| format!("sick{n}")).collect();
        let names: Vec<&str> = sick.iter().map(String::as_str).collect();
        desire(sim, &names).await;
        sim.until("all run", 5 * SECOND, |sim| {
            sick.iter().all(|name| runs(sim, name))
        })
        .await;
        sim.runtime
            .inject(Fault::hang(Operation::PodSandboxStatus).on("default/sick"));
        for name in &sick {
            let app = sim.runtime.running(&uid(name), "app").expect("runs");
            sim.runtime.kill_container(&app.id, 1);
        }
        // reads release their permits
        sim.pass(2 * SECOND).await;
        for round in 0..20 {
            neighbours_are_well(sim, &names, round).await;
            sim.pass(3 * SECOND).await;
        }
        for name in &sick {
            assert_eq!(sim.blocker(name), "RuntimeCallHung");
        }
    });
}

#[test]
fn pod_with_hung_status_can_be_stopped() {
    simulate(10, async |sim| {
        prepare(sim);
        ran(sim, Operation::PodSandboxStatus).await;
        let app = sim.runtime.running(&uid("sick"), "app").expect("runs");
        sim.runtime.kill_container(&app.id, 1);
        check_hung_call(sim, "sick", "PodSandboxStatus").await;
        desire(sim, &[]).await;
        sim.until("it is gone", 5 * SECOND, |sim| sim.view("sick").is_none())
            .await;
        let left = sim.runtime.sandboxes();
        assert!(left.iter().all(|(_, _, _, ready)| !ready), "{left:?}");
    });
}

#[test]
fn slow_exec_within_timeout_is_not_a_hung_call() {
    simulate(11, async |sim| {
        prepare(sim);
        sim.runtime.set_exec("app", Exec::hangs());
        sim.runtime.set_behavior(
            "app",
            Behavior {
                stops_after: 20 * SECOND,
                ..Behavior::default()
            },
        );
        let patient = PodBuilder::new("sick")
            .container("app", "busybox:1")
            .grace(30);
        sim.desire([patient.build()]).await;
        sim.until("it runs", USUAL, |sim| runs(sim, "sick")).await;
        let id = sim.runtime.running(&uid("sick"), "app").expect("runs").id;
        desire(sim, &[]).await;
        sim.pass(15 * SECOND).await;
        assert_eq!(
            sim.blocker("sick"),
            "Terminating",
            "its grace period is its own"
        );
        assert!(sim.runtime.all_containers().iter().any(|c| c.id == id));
        sim.until("it is gone", MINUTE, |sim| sim.view("sick").is_none())
            .await;
        let hung = sim.agent().expect("runs").hung_calls.all();
        assert_eq!(hung, []);
    });
}

#[test]
fn calls_with_lost_responses_recover() {
    for (seed, operation) in [
        Operation::RunPodSandbox,
        Operation::CreateContainer,
        Operation::StartContainer,
        Operation::StopContainer,
        Operation::StopPodSandbox,
        Operation::RemoveContainer,
        Operation::PodSandboxStatus,
        Operation::ContainerStatus,
        Operation::ListContainers,
        Operation::ListPodSandboxes,
        Operation::ImageStatus,
        Operation::Status,
    ]
    .into_iter()
    .enumerate()
    {
        simulate(20 + seed as u64, async |sim| {
            prepare(sim);
            sim.runtime.inject(Fault::lose_reply(operation, 2));
            desire(sim, &["web"]).await;
            sim.until(&format!("web runs after {operation}"), 6 * MINUTE, |sim| {
                runs(sim, "web") && sim.phase("web") == "Running" && sim.blocker("web").is_empty()
            })
            .await;
            sim.runtime.inject(Fault::lose_reply(operation, 2));
            let app = sim.runtime.running(&uid("web"), "app").expect("runs");
            sim.runtime.kill_container(&app.id, 1);
            sim.until(
                &format!("web runs again after {operation}"),
                6 * MINUTE,
                |sim| runs(sim, "web") && sim.blocker("web").is_empty(),
            )
            .await;
            sim.runtime.inject(Fault::lose_reply(operation, 2));
            desire(sim, &[]).await;
            sim.until(
                &format!("web is gone after {operation}"),
                6 * MINUTE,
                |sim| sim.view("web").is_none() && !runs(sim, "web"),
            )
            .await;
            sim.runtime.assert_invariants();
        });
    }
}

#[test]
fn start_whose_inspection_failed_is_not_repeated() {
    simulate(32, async |sim| {
        prepare(sim);
        sim.runtime
            .set_latency(Operation::CreateContainer, 3 * SECOND);
        // the relist after 10 s shows the sandbox without its container
        sim.pass(Duration::from_millis(9500)).await;
        desire(sim, &["web"]).await;
        sim.pass(SECOND).await;
        // the next sync begins as soon as this one has ended
        let labeled = pod("web").label("version", "2").build();
        sim.desire([labeled]).await;
        // no list but that of the inspection follows
        sim.pass(Duration::from_millis(1900)).await;
        assert!(!runs(sim, "web"), "it is being created");
        let fault = Fault::lose_reply(Operation::ListPodSandboxes, 1);
        sim.runtime.inject(fault);
        sim.pass(20 * SECOND).await;
        assert!(runs(sim, "web"));
        assert_eq!(sim.runtime.starts(&uid("web"), "app"), 1);
        sim.runtime.assert_invariants();
    });
}

#[test]
fn removal_of_a_pod_does_not_cut_off_a_start() {
    simulate(34, async |sim| {
        prepare(sim);
        sim.runtime
            .set_latency(Operation::StartContainer, 2 * SECOND);
        desire(sim, &["web"]).await;
        sim.pass(SECOND).await;
        let starts = sim.runtime.calls_of(Operation::StartContainer, "");
        assert_eq!(starts.len(), 1, "the start is in progress");
        desire(sim, &[]).await;
        sim.until("web is gone", 10 * SECOND, |sim| sim.view("web").is_none())
            .await;
        // one that was cut off has exited with code 128 and is not stopped
        let stops = sim.runtime.calls_of(Operation::StopContainer, "");
        assert_eq!(stops.len(), 1);
    });
}

#[test]
fn container_whose_stop_failed_keeps_its_grace_period() {
    simulate(33, async |sim| {
        prepare(sim);
        sim.runtime.set_behavior("app", Behavior::stubborn());
        desire(sim, &["web"]).await;
        sim.until("web runs", USUAL, |sim| runs(sim, "web")).await;
        let (operation, code) = (Operation::StopContainer, CriCode::Unavailable);
        let fault = Fault::fail(operation, 1, code, "the shim is busy");
        sim.runtime.inject(fault);
        desire(sim, &[]).await;
        sim.pass(4 * SECOND).await;
        assert!(runs(sim, "web"), "killed within its grace period of 5 s");
        sim.until("web is gone", 10 * SECOND, |sim| sim.view("web").is_none())
            .await;

        // a stop that never works ends with the grace period
        desire(sim, &["never"]).await;
        sim.until("it runs", USUAL, |sim| runs(sim, "never")).await;
        let fault = Fault::fail(operation, usize::MAX, CriCode::Other, "no shim");
        sim.runtime.inject(fault);
        desire(sim, &[]).await;
        sim.pass(4 * SECOND).await;
        assert!(runs(sim, "never"));
        sim.until("it is gone", 20 * SECOND, |sim| sim.view("never").is_none())
            .await;
    });
}

#[test]
fn lost_event_is_recovered_by_next_relist() {
    simulate(40, async |sim| {
        prepare(sim);
        desire(sim, &["web"]).await;
        sim.until("web runs", USUAL, |sim| runs(sim, "web")).await;
        for _ in 0..5 {
            sim.runtime.drop_events(1);
            let app = sim.runtime.running(&uid("web"), "app").expect("runs");
            sim.runtime.kill_container(&app.id, 0);
            sim.until("its death is found", 11 * SECOND, |sim| {
                !sim.blocker("web").is_empty() || {
                    let now = sim.runtime.running(&uid("web"), "app");
                    now.is_some_and(|now| now.id != app.id)
                }
            })
            .await;
            sim.until("web runs again", 6 * MINUTE, |sim| runs(sim, "web"))
                .await;
            // its back-off is reset
            sim.pass(11 * MINUTE).await;
        }
        sim.runtime.assert_invariants();
    });
}

#[test]
fn late_events_are_superseded_by_inspection() {
    simulate(42, async |sim| {
        prepare(sim);
        sim.runtime.delay_events(3 * SECOND);
        desire(sim, &["web"]).await;
        sim.until("web runs", USUAL, |sim| {
            runs(sim, "web") && sim.phase("web") == "Running"
        })
        .await;
        for round in 1..4 {
            let app = sim.runtime.running(&uid("web"), "app").expect("runs");
            sim.runtime.kill_container(&app.id, 0);
            sim.until("web runs again", 4 * SECOND, |sim| {
                let now = sim.runtime.running(&uid("web"), "app");
                now.is_some_and(|now| now.id != app.id)
            })
            .await;
            // events of the previous instance arrive during the next one
            sim.pass(11 * MINUTE).await;
            assert_eq!(sim.runtime.starts(&uid("web"), "app"), round + 1);
        }
        desire(sim, &[]).await;
        sim.until("web is gone", USUAL, |sim| sim.view("web").is_none())
            .await;
        sim.runtime.assert_invariants();
    });
}

#[test]
fn duplicate_events_and_broken_stream_change_nothing() {
    simulate(41, async |sim| {
        prepare(sim);
        desire(sim, &["web"]).await;
        sim.until("web runs", USUAL, |sim| runs(sim, "web")).await;
        for round in 1..4 {
            sim.runtime.duplicate_events(usize::MAX);
            let app = sim.runtime.running(&uid("web"), "app").expect("runs");
            // the container exits while there is no event stream
            sim.runtime.disconnect_events();
            sim.runtime.kill_container(&app.id, 0);
            sim.until("web runs again", 1100 * Duration::from_millis(1), |sim| {
                let now = sim.runtime.running(&uid("web"), "app");
                now.is_some_and(|now| now.id != app.id)
            })
            .await;
            assert_eq!(sim.runtime.starts(&uid("web"), "app"), round + 1);
            sim.pass(11 * MINUTE).await;
        }
        sim.runtime.assert_invariants();
    });
}

fn node_condition(sim: &NodeSim) -> String {
    let node = sim.api.get::<Node>(None, "sim");
    let conditions = node.and_then(|node| node.status?.conditions);
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|c| c.type_ == "Ready");
    ready.map_or_else(String::new, |ready| {
        format!("{} {}", ready.status, ready.message.unwrap_or_default())
    })
}

const WELL: &str = "True kubelet is posting ready status";

#[test]
fn hung_relist_makes_node_not_ready_but_hung_pod_does_not() {
    simulate_cluster(50, async |sim| {
        prepare(sim);
        sim.start_agent().await;
        sim.until("the node is ready", 2 * SECOND, |sim| {
            node_condition(sim) == WELL
        })
        .await;
        desire(sim, &["sick"]).await;
        sim.until("sick runs", SECOND, is_well).await;
        for operation in [Operation::PodSandboxStatus, Operation::ContainerStatus] {
            sim.runtime
                .inject(Fault::hang(operation).on("default/sick"));
        }
        let app = sim.runtime.running(&uid("sick"), "app").expect("runs");
        sim.runtime.kill_container(&app.id, 1);
        for _ in 0..30 {
            sim.pass(20 * SECOND).await;
            let condition = node_condition(sim);
            assert!(condition.starts_with(WELL), "{condition}");
            assert!(condition.contains("default/sick: "), "{condition}");
        }
        assert_eq!(sim.blocker("sick"), "RuntimeCallHung");

        sim.runtime.inject(Fault::hang(Operation::ListContainers));
        sim.pass(2 * MINUTE).await;
        let condition = node_condition(sim);
        assert!(condition.starts_with(WELL), "not yet: {condition}");
        sim.until("the node is not ready", 2 * MINUTE, |sim| {
            node_condition(sim)
                == "False PLEG is not healthy: pleg was last seen active 3m0s ago; threshold is 3m0s"
        })
        .await;
        sim.runtime.clear_faults();
        sim.until("the node is ready again", MINUTE, |sim| {
            node_condition(sim).starts_with(WELL)
        })
        .await;
        sim.until("sick is well again", 6 * MINUTE, |sim| {
            runs(sim, "sick") && sim.blocker("sick").is_empty()
        })
        .await;
        sim.until("no pod is named", MINUTE, |sim| node_condition(sim) == WELL)
            .await;
    });
}

/// A pod with a CPU limit of 10m.
fn throttled(name: &str) -> Pod {
    let limited = |app: &mut Container| {
        let limits = json!({ "limits": { "cpu": "10m" } });
        app.resources = serde_json::from_value(limits).expect("resources");
    };
    let pod = PodBuilder::new(name).container_with("app", "busybox:1", limited);
    pod.grace(5).build()
}

#[test]
fn start_within_a_low_cpu_limit_is_not_hung() {
    simulate(53, async |sim| {
        prepare(sim);
        for operation in [Operation::RunPodSandbox, Operation::StartContainer] {
            sim.runtime.set_latency(operation, 7 * SECOND);
        }
        sim.desire([pod("usual").build(), throttled("throttled")])
            .await;
        sim.until("both run", MINUTE, |sim| {
            ["usual", "throttled"].iter().all(|name| runs(sim, name))
        })
        .await;
        assert_eq!(hung_call_events(sim, "usual").len(), 2, "not limited");
        assert_eq!(hung_call_events(sim, "throttled"), [""; 0]);

        let hangs = Fault::hang(Operation::StartContainer).on("default/hangs");
        sim.runtime.inject(hangs);
        sim.desire([throttled("throttled"), throttled("hangs")])
            .await;
        sim.until("the hung start is reported", MINUTE, |sim| {
            sim.blocker("hangs") == "RuntimeCallHung"
        })
        .await;
    });
}
