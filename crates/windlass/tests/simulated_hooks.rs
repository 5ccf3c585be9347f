//! Lifecycle hooks and stops on a virtual clock: when hooks run, when containers are signaled and
//! when the pod object is deleted.

#![allow(missing_docs, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_testing::fake_runtime::{Behavior, Call, Exec, Fault, Operation};
use windlass_testing::{NodeSim, PodBuilder, simulate_cluster};
use windlass_types::corev1::{Container, Event};
use windlass_types::{Pod, PodExt, PodUid, Timestamp};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn on_a_node(seed: u64, scenario: impl AsyncFnOnce(&mut NodeSim)) {
    simulate_cluster(seed, async |sim| {
        sim.runtime.add_image("busybox:1");
        sim.start_agent().await;
        scenario(sim).await;
        sim.runtime.assert_invariants();
    });
}

fn hooks(lifecycle: Value) -> impl FnOnce(&mut Container) {
    move |container| container.lifecycle = serde_json::from_value(lifecycle).expect("hooks")
}

fn exec(command: &str) -> Value {
    json!({"exec": {"command": [command]}})
}

/// A pod with a container `app` that has these hooks.
fn pod(lifecycle: Value) -> PodBuilder {
    PodBuilder::new("web")
        .bound_to("sim")
        .grace(30)
        .container_with("app", "busybox:1", hooks(lifecycle))
}

async fn running(sim: &mut NodeSim, pod: PodBuilder) -> PodUid {
    let uid = sim.api.create(&pod.build()).uid();
    sim.until("web is ready", 10 * SECOND, ready).await;
    sim.pass(5 * SECOND).await;
    uid
}

fn get(sim: &NodeSim) -> Option<Pod> {
    sim.api.get::<Pod>(Some("default"), "web")
}

fn ready(sim: &NodeSim) -> bool {
    let conditions = get(sim).and_then(|pod| pod.status?.conditions);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|c| c.type_ == "Ready" && c.status == "True")
}

fn delete(sim: &NodeSim, grace: Option<i64>) -> Timestamp {
    assert!(sim.api.delete::<Pod>(Some("default"), "web", grace));
    sim.now()
}

fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

fn call_lines(calls: Vec<Call>, since: Timestamp) -> Vec<String> {
    let calls = calls.into_iter().filter(|call| call.at >= since);
    let line = |call: Call| {
        let word = match call.operation {
            Operation::ExecSync => "exec",
            Operation::StopContainer => "stop",
            Operation::StartContainer => "start",
            _ => return None,
        };
        let at = seconds_between(since, call.at).round();
        let container = call.subject.rsplit('/').next().unwrap_or_default();
        Some(format!("{at}s {word} {container}"))
    };
    calls.filter_map(line).collect()
}

/// Exec, stop and start calls since a time, with the second of each.
fn calls(sim: &NodeSim, since: Timestamp) -> Vec<String> {
    call_lines(sim.runtime.calls(), since)
}

/// Waits until the object is gone and says how long the containers took, and how much longer it
/// took the object to go.
async fn gone(sim: &mut NodeSim, uid: &PodUid, since: Timestamp) -> (f64, f64) {
    sim.until("the object is gone", 2 * MINUTE, |sim| get(sim).is_none())
        .await;
    let requests = sim.api.requests().into_iter();
    let removed = requests
        .filter(|r| r.method == "DELETE" && r.body["gracePeriodSeconds"] == json!(0))
        .map(|r| r.at)
        .next_back()
        .expect("the agent asked for it");
    let ended = sim.runtime.containers(uid).into_iter();
    let ended = ended.filter_map(|c| c.finished_at).max().expect("ended");
    (
        seconds_between(since, ended),
        seconds_between(ended, removed),
    )
}

/// Count of events of the pod.
fn event_count(sim: &NodeSim, reason: &str, message: &str) -> i32 {
    let events = sim.api.list::<Event>().into_iter();
    events
        .filter(|e| e.reason.as_deref() == Some(reason) && e.message.as_deref() == Some(message))
        .map(|e| e.count.unwrap_or(1))
        .sum()
}

fn waiting(sim: &NodeSim) -> Option<(String, String)> {
    let statuses = get(sim)?.status?.container_statuses?;
    let app = statuses.into_iter().find(|s| s.name == "app")?;
    let waiting = app.state?.waiting?;
    Some((waiting.reason?, waiting.message.unwrap_or_default()))
}

#[test]
fn pod_is_removed_within_half_second_after_hook_and_stop() {
    on_a_node(1, async |sim| {
        sim.runtime
            .set_exec("app drain", Exec::default().taking(3 * SECOND));
        let quick = Behavior {
            stops_after: SECOND,
            ..Behavior::default()
        };
        sim.runtime.set_behavior("app", quick);
        sim.runtime
            .set_latency(Operation::StopPodSandbox, Duration::from_millis(100));
        let uid = running(sim, pod(json!({"preStop": exec("drain")}))).await;
        let since = delete(sim, None);
        let (ended, removed) = gone(sim, &uid, since).await;
        assert_eq!(calls(sim, since), ["0s exec app#0", "3s stop app#0"]);
        assert!((4.0..4.2).contains(&ended), "{ended}");
        assert!(removed <= 0.5, "{removed}");
        assert_eq!(
            event_count(sim, "FailedPreStopHook", "PreStopHook failed"),
            0
        );
    });
}

#[test]
fn pre_stop_hook_beyond_grace_period_leaves_min_stop_timeout() {
    on_a_node(2, async |sim| {
        sim.runtime.set_exec("app drain", Exec::hangs());
        sim.runtime.set_behavior("app", Behavior::stubborn());
        let uid = running(sim, pod(json!({"preStop": exec("drain")}))).await;
        let since = delete(sim, Some(10));
        let (ended, removed) = gone(sim, &uid, since).await;
        assert_eq!(calls(sim, since), ["0s exec app#0", "10s stop app#0"]);
        assert!((12.0..12.2).contains(&ended), "{ended}");
        assert!(removed <= 0.5, "{removed}");
        sim.pass(5 * SECOND).await;
        assert_eq!(
            event_count(sim, "FailedPreStopHook", "PreStopHook failed"),
            1
        );
        assert_eq!(sim.runtime.execs_in_flight(&uid, "app"), 0);
    });
}

#[test]
fn failed_hook_delays_nothing() {
    on_a_node(3, async |sim| {
        sim.runtime.set_exec("app drain", Exec::exits(1));
        let uid = running(sim, pod(json!({"preStop": exec("drain")}))).await;
        let since = delete(sim, None);
        let (ended, _) = gone(sim, &uid, since).await;
        assert!(ended < 0.2, "{ended}");
        sim.pass(5 * SECOND).await;
        assert_eq!(
            event_count(sim, "FailedPreStopHook", "PreStopHook failed"),
            1
        );
        assert_eq!(event_count(sim, "Killing", "Stopping container app"), 1);
    });
}

#[test]
fn shortened_grace_period_applies_to_hung_hook() {
    on_a_node(4, async |sim| {
        sim.runtime.set_exec("app drain", Exec::hangs());
        let uid = running(sim, pod(json!({"preStop": exec("drain")})).grace(600)).await;
        let since = delete(sim, None);
        sim.pass(20 * SECOND).await;
        assert!(sim.runtime.running(&uid, "app").is_some());
        delete(sim, Some(4));
        let (ended, removed) = gone(sim, &uid, since).await;
        // the hook runs again within the new grace period
        assert_eq!(
            calls(sim, since),
            ["0s exec app#0", "20s exec app#0", "24s stop app#0"]
        );
        assert!((24.0..24.5).contains(&ended), "{ended}");
        assert!(removed <= 0.5, "{removed}");
        assert_eq!(sim.runtime.max_execs_in_flight(&uid, "app"), 1);
    });
}

#[test]
fn force_deletion_limits_hook_and_stop_timeout() {
    on_a_node(5, async |sim| {
        sim.runtime.set_exec("app drain", Exec::hangs());
        sim.runtime.set_behavior("app", Behavior::stubborn());
        let uid = running(sim, pod(json!({"preStop": exec("drain")}))).await;
        let since = delete(sim, Some(0));
        assert!(get(sim).is_none());
        sim.until("its container ends", 4 * SECOND, |sim| {
            sim.runtime.running(&uid, "app").is_none()
        })
        .await;
        // the object is removed at once, so the min grace period applies
        let stops = sim
            .runtime
            .calls_of(Operation::StopContainer, "default/web/");
        let stop = seconds_between(since, stops.first().expect("stopped").at);
        assert!(stop <= 1.2, "{stop}");
    });
}

#[test]
fn exited_container_runs_no_pre_stop_hook() {
    on_a_node(6, async |sim| {
        sim.runtime.set_behavior("app", Behavior::exits(SECOND, 1));
        let pod = pod(json!({"preStop": exec("drain")}));
        let uid = sim.api.create(&pod.build()).uid();
        sim.until("it waits for its next start", 10 * SECOND, |sim| {
            waiting(sim).is_some_and(|(reason, _)| reason == "CrashLoopBackOff")
        })
        .await;
        let since = delete(sim, None);
        sim.until("the object is gone", SECOND / 2, |sim| get(sim).is_none())
            .await;
        assert!(calls(sim, since).is_empty());
        assert_eq!(sim.runtime.execs(&uid, "app"), 0);
    });
}

#[test]
fn failed_liveness_runs_hook_with_probe_grace_period() {
    on_a_node(19, async |sim| {
        sim.runtime.set_exec("app alive", Exec::exits(1));
        sim.runtime.set_exec("app drain", Exec::hangs());
        let pod = pod(json!({"preStop": exec("drain")})).with(|pod| {
            let containers = pod.spec.as_mut().map(|spec| &mut spec.containers);
            let probe = json!({
                "exec": {"command": ["alive"]},
                "failureThreshold": 1,
                "periodSeconds": 60,
                "terminationGracePeriodSeconds": 7,
            });
            for container in containers.into_iter().flatten() {
                container.liveness_probe = serde_json::from_value(probe.clone()).ok();
            }
        });
        let since = sim.now();
        let uid = sim.api.create(&pod.build()).uid();
        sim.until("it is stopped", 2 * MINUTE, |sim| {
            sim.runtime.starts(&uid, "app") == 2
        })
        .await;
        let calls = calls(sim, since);
        // the probe, then the hook
        assert_eq!(
            calls[1..4],
            ["0s exec app#0", "0s exec app#0", "7s stop app#0"]
        );
        let killed = "Container app failed liveness probe, will be restarted";
        assert!(event_count(sim, "Killing", killed) >= 1);
    });
}

#[test]
fn sleep_hook_ends_with_container() {
    on_a_node(7, async |sim| {
        let uid = running(sim, pod(json!({"preStop": {"sleep": {"seconds": 25}}}))).await;
        let since = delete(sim, None);
        sim.pass(5 * SECOND).await;
        let app = sim.runtime.running(&uid, "app").expect("the hook sleeps");
        sim.runtime.kill_container(&app.id, 0);
        let (ended, removed) = gone(sim, &uid, since).await;
        assert!((5.0..5.1).contains(&ended), "{ended}");
        // it is polled every second
        assert!(removed <= 1.5, "{removed}");
        assert_eq!(sim.metrics.containers.hook_sleeps_terminated.get(), 1.0);
    });
}

/// Two sidecars and two main containers, each with a hook.
fn with_sidecars() -> PodBuilder {
    let sidecar = |container: &mut Container| {
        container.restart_policy = Some("Always".to_owned());
        hooks(json!({"preStop": exec("drain")}))(container);
    };
    PodBuilder::new("web")
        .bound_to("sim")
        .grace(30)
        .init_container_with("first", "busybox:1", sidecar)
        .init_container_with("second", "busybox:1", sidecar)
        .container("app", "busybox:1")
        .container("other", "busybox:1")
}

#[test]
fn sidecars_stop_last_in_reverse_within_grace_period() {
    on_a_node(8, async |sim| {
        let takes = |seconds: u32| Behavior {
            stops_after: seconds * SECOND,
            ..Behavior::default()
        };
        for (name, seconds) in [("app", 4), ("other", 9), ("second", 3), ("first", 2)] {
            sim.runtime.set_behavior(name, takes(seconds));
        }
        let uid = running(sim, with_sidecars()).await;
        let since = delete(sim, None);
        let (ended, removed) = gone(sim, &uid, since).await;
        let mut calls = calls(sim, since);
        // calls at the same time have no order
        calls[..4].sort();
        assert_eq!(
            calls,
            [
                "0s exec first#0",
                "0s exec second#0",
                "0s stop app#0",
                "0s stop other#0",
                "9s stop second#0",
                "12s stop first#0"
            ]
        );
        assert!((14.0..14.2).contains(&ended), "{ended}");
        assert!(removed <= 0.5, "{removed}");
    });
}

#[test]
fn stubborn_app_container_leaves_sidecars_min_stop_timeout() {
    on_a_node(9, async |sim| {
        for name in ["app", "first", "second"] {
            sim.runtime.set_behavior(name, Behavior::stubborn());
        }
        let uid = running(sim, with_sidecars()).await;
        let since = delete(sim, Some(10));
        let (ended, removed) = gone(sim, &uid, since).await;
        // app containers get the whole grace period, sidecars two more seconds
        assert!((12.0..12.3).contains(&ended), "{ended}");
        assert!(removed <= 0.5, "{removed}");
    });
}

#[test]
fn post_start_hook_delays_next_container_not_deletion() {
    on_a_node(10, async |sim| {
        sim.runtime.set_exec("app warm", Exec::hangs());
        let pod = pod(json!({"postStart": exec("warm"), "preStop": exec("drain")}))
            .container("other", "busybox:1");
        let uid = sim.api.create(&pod.build()).uid();
        sim.pass(5 * MINUTE).await;
        assert!(sim.runtime.running(&uid, "app").is_some());
        assert_eq!(sim.runtime.starts(&uid, "other"), 0);
        assert_eq!(sim.runtime.starts(&uid, "app"), 1, "no second start");
        let since = delete(sim, None);
        let (ended, removed) = gone(sim, &uid, since).await;
        assert_eq!(calls(sim, since), ["0s exec app#0", "0s stop app#0"]);
        assert!(ended < 0.3 && removed <= 0.5, "{ended} {removed}");
    });
}

#[test]
fn failed_post_start_hook_restarts_container_with_back_off() {
    on_a_node(11, async |sim| {
        sim.runtime.script_execs(
            "app warm",
            vec![
                Exec::exits(1),
                Exec::exits(1),
                Exec::exits(1),
                Exec::exits(0),
            ],
        );
        let pod = pod(json!({"postStart": exec("warm")})).container("other", "busybox:1");
        let uid = sim.api.create(&pod.build()).uid();
        let since = sim.now();
        sim.until("the hook fails for good", 20 * SECOND, |sim| {
            waiting(sim).is_some_and(|(reason, _)| reason == "CrashLoopBackOff")
        })
        .await;
        assert!(sim.runtime.running(&uid, "other").is_some());
        sim.until("the fourth one holds", 2 * MINUTE, ready).await;
        let starts: Vec<_> = calls(sim, since)
            .into_iter()
            .filter(|line| line.contains("start app"))
            .collect();
        // at once or soon, then 10 s and 20 s after each end
        let at = |line: &str| line.split('s').next().and_then(|s| s.parse::<u32>().ok());
        let at: Vec<u32> = starts.iter().filter_map(|line| at(line)).collect();
        assert_eq!(at.len(), 4, "{starts:?}");
        assert!(at[1] - at[0] <= 2, "{starts:?}");
        assert!((10..=12).contains(&(at[2] - at[1])), "{starts:?}");
        assert!((20..=22).contains(&(at[3] - at[2])), "{starts:?}");
        sim.pass(15 * SECOND).await;
        assert_eq!(
            event_count(sim, "FailedPostStartHook", "PostStartHook failed"),
            3
        );
        assert_eq!(event_count(sim, "Killing", "FailedPostStartHook"), 3);
        assert_eq!(sim.runtime.starts(&uid, "other"), 1);
    });
}

#[test]
fn hung_hook_delays_no_other_pod() {
    on_a_node(12, async |sim| {
        sim.runtime.set_exec("hung warm", Exec::hangs());
        for number in 0..8 {
            let hung = PodBuilder::new(&format!("hung-{number}"))
                .bound_to("sim")
                .container_with(
                    "hung",
                    "busybox:1",
                    hooks(json!({"postStart": exec("warm")})),
                );
            sim.api.create(&hung.build());
        }
        sim.pass(30 * SECOND).await;
        sim.api.create(&pod(json!({})).build());
        sim.until("web is ready", 3 * SECOND, ready).await;
    });
}

#[test]
fn agent_kill_during_post_start_hook_runs_it_again() {
    on_a_node(13, async |sim| {
        sim.runtime
            .set_exec("app warm", Exec::default().taking(MINUTE));
        let uid = sim
            .api
            .create(&pod(json!({"postStart": exec("warm")})).build())
            .uid();
        sim.pass(10 * SECOND).await;
        assert_eq!(sim.runtime.execs(&uid, "app"), 1);
        sim.kill_agent().await;
        sim.start_agent().await;
        sim.until("web is ready", 10 * SECOND, ready).await;
        sim.pass(2 * MINUTE).await;
        assert_eq!(sim.runtime.execs(&uid, "app"), 2);
        // a hook that has ended does not run again
        sim.kill_agent().await;
        sim.start_agent().await;
        sim.pass(2 * MINUTE).await;
        assert_eq!(sim.runtime.execs(&uid, "app"), 2);
        assert_eq!(sim.runtime.starts(&uid, "app"), 1);
        let markers = sim.files.paths().into_iter();
        let markers = markers.filter(|path| path.extension().is_some_and(|it| it == "post-start"));
        assert_eq!(markers.count(), 0);
    });
}

/// The agent is killed `after` the deletion and is back a second later. Says when the container
/// ends, in seconds from the deletion, and what the agent asked of the runtime.
fn killed_while_stopping(seed: u64, after: u32, knew: bool) -> (f64, Vec<String>) {
    simulate_cluster(seed, async |sim| {
        sim.runtime.add_image("busybox:1");
        sim.start_agent().await;
        sim.runtime.set_exec("app drain", Exec::hangs());
        sim.runtime.set_behavior("app", Behavior::stubborn());
        let uid = running(sim, pod(json!({"preStop": exec("drain")}))).await;
        if !knew {
            sim.checkpoint = get(sim).map(Arc::new).into_iter().collect();
            sim.kill_agent().await;
        }
        let since = delete(sim, None);
        sim.pass(after * SECOND).await;
        if knew {
            // the checkpoint is written when the deletion is observed
            sim.checkpoint = get(sim).map(Arc::new).into_iter().collect();
            sim.kill_agent().await;
        }
        assert!(sim.runtime.running(&uid, "app").is_some());
        sim.pass(SECOND).await;
        sim.start_agent().await;
        let (ended, _) = gone(sim, &uid, since).await;
        (ended, calls(sim, since))
    })
}

#[test]
fn agent_kill_during_pre_stop_hook_resumes_remaining_grace() {
    // deletionTimestamp has whole seconds; two more are the min stop timeout
    let (ended, calls) = killed_while_stopping(14, 10, true);
    assert_eq!(calls, ["0s exec app#0", "11s exec app#0", "30s stop app#0"]);
    assert!((31.0..32.5).contains(&ended), "{ended}");
}

#[test]
fn restart_after_grace_period_stops_containers_in_order() {
    let (ended, calls) = killed_while_stopping(15, 29, true);
    assert_eq!(calls, ["0s exec app#0", "30s exec app#0", "31s stop app#0"]);
    assert!((32.0..33.5).contains(&ended), "{ended}");
}

#[test]
fn unobserved_deletion_keeps_full_grace_period() {
    let (ended, calls) = killed_while_stopping(16, 60, false);
    assert_eq!(calls, ["61s exec app#0", "91s stop app#0"]);
    assert!((92.0..93.5).contains(&ended), "{ended}");
}

#[test]
fn hung_exec_hook_delays_stop_by_grace_period_only() {
    on_a_node(17, async |sim| {
        let uid = running(sim, pod(json!({"preStop": exec("drain")}))).await;
        sim.runtime.inject(Fault::hang(Operation::ExecSync));
        let since = delete(sim, Some(8));
        let (ended, removed) = gone(sim, &uid, since).await;
        assert!((8.0..8.3).contains(&ended), "{ended}");
        assert!(removed <= 0.5, "{removed}");
    });
}

#[test]
fn hung_http_hook_delays_stop_by_grace_period_only() {
    on_a_node(18, async |sim| {
        let get = json!({"preStop": {"httpGet": {"path": "/bye", "port": 8080}}});
        let uid = running(sim, pod(get)).await;
        let ip = self::get(sim)
            .and_then(|pod| pod.status?.pod_ip)
            .expect("IP");
        sim.checks
            .set(&ip, 8080, windlass_testing::fake_checks::Server::Hangs);
        let since = delete(sim, Some(8));
        let (ended, _) = gone(sim, &uid, since).await;
        assert_eq!(sim.checks.request_count(&ip, 8080), 1);
        assert!((8.0..8.3).contains(&ended), "{ended}");
    });
}
