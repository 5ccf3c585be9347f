//! Order, grace periods and failures of stops.

use std::sync::Arc;
use std::time::Duration;

use windlass_cri::error::CriCode;
use windlass_types::cri::{ContainerSummary, SandboxSummary};
use windlass_types::{ContainerState, ObservedPod, Pod};

use super::{TestEnv, at, container, line, nothing, observed, pod, pod_of, seen, sidecar};
use crate::{KillPodRequest, RuntimeOptions};

fn running(name: &str) -> ContainerSummary {
    ContainerSummary {
        id: name.into(),
        sandbox_id: "s0".into(),
        uid: "u1".into(),
        name: name.into(),
        attempt: 0,
        state: ContainerState::Running,
        created_at: at(0),
        image_id: String::new(),
    }
}

fn sandbox(id: &str) -> SandboxSummary {
    SandboxSummary {
        id: id.into(),
        uid: "u1".into(),
        name: "web".into(),
        namespace: "default".into(),
        attempt: 0,
        ready: true,
        created_at: at(0),
    }
}

fn kill(pod: Option<Pod>, observed: ObservedPod, seconds: u64) -> KillPodRequest {
    KillPodRequest {
        pod: pod.map(Arc::new),
        observed: Arc::new(observed),
        grace: Duration::from_secs(seconds),
        waited: Duration::ZERO,
        message: String::new(),
    }
}

/// Stops and removals only.
fn stops(env: &TestEnv) -> Vec<String> {
    let calls = env.fake.calls();
    calls
        .into_iter()
        .filter(|c| !c.starts_with("list"))
        .collect()
}

/// Two sidecars, an init container between them, two app containers.
fn with_sidecars(env: &TestEnv) -> Pod {
    for name in ["s1", "a", "s2", "b"] {
        env.fake.add_container(running(name));
    }
    env.fake.add_sandbox(sandbox("s0"));
    pod_of(
        vec![sidecar("s1"), container("setup"), sidecar("s2")],
        vec![container("a"), container("b")],
    )
}

#[tokio::test(start_paused = true)]
async fn app_containers_stop_first_then_sidecars_then_sandboxes() {
    let env = TestEnv::new();
    let spec = with_sidecars(&env);
    env.fake.take("stop a 30s", Duration::from_secs(4));
    env.fake.take("stop b 30s", Duration::from_secs(10));
    env.fake.take("stop s2 20s", Duration::from_secs(5));
    let result = env.runtime.kill_pod(kill(Some(spec), nothing(), 30)).await;
    assert!(result.is_ok());
    assert_eq!(
        env.fake.timed_calls(),
        [
            "0s stop a 30s",
            "0s stop b 30s",
            "10s stop s2 20s",
            "15s stop s1 15s",
            "15s stop-sandbox s0"
        ]
    );
    let events = env.events.take();
    assert_eq!(events.len(), 4, "{events:?}");
    assert_eq!(events[1], "N Killing a: Stopping container a");
}

#[tokio::test(start_paused = true)]
async fn sidecars_get_2_s_if_app_uses_the_grace_period() {
    let env = TestEnv::new();
    let spec = with_sidecars(&env);
    env.fake.take("stop a 10s", Duration::from_secs(10));
    env.fake.take("stop s2 2s", Duration::from_secs(2));
    env.fake.take("stop s1 2s", Duration::from_secs(2));
    let result = env.runtime.kill_pod(kill(Some(spec), nothing(), 10)).await;
    assert!(result.is_ok());
    // sidecars stop together, so the pod exceeds its grace period by 2 s, not by 4 s
    assert_eq!(
        env.fake.timed_calls(),
        [
            "0s stop a 10s",
            "0s stop b 10s",
            "10s stop s1 2s",
            "10s stop s2 2s",
            "12s stop-sandbox s0"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn unstoppable_app_delays_sidecars_only_for_the_grace_period() {
    let env = TestEnv::new();
    let spec = with_sidecars(&env);
    let stuck = CriCode::DeadlineExceeded;
    env.fake.fail("stop a 10s", stuck, "stuck in D state");
    let result = env.runtime.kill_pod(kill(Some(spec), nothing(), 10)).await;
    assert_eq!(result.expect_err("a is stuck").failures.len(), 1);
    assert_eq!(
        env.fake.timed_calls(),
        [
            "0s stop a 10s",
            "0s stop b 10s",
            "10s stop s1 2s",
            "10s stop s2 2s",
            "10s stop-sandbox s0"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn overdue_stop_records_an_event() {
    let overdue = "W ExceededGracePeriod: Container runtime did not kill the pod within specified grace period.";
    for (takes, told) in [(44, false), (46, true)] {
        let env = TestEnv::new();
        env.fake.add_container(running("a"));
        env.fake.take("stop", Duration::from_secs(takes));
        let result = env
            .runtime
            .kill_pod(kill(Some(pod(&["a"])), nothing(), 30))
            .await;
        assert!(result.is_ok());
        let events = env.events.take();
        assert_eq!(events.iter().any(|e| e == overdue), told, "{events:?}");
    }
}

#[tokio::test]
async fn stop_timeout_is_the_grace_period_but_at_least_2_s() {
    for (asked, given) in [(45, "stop a 45s"), (0, "stop a 2s"), (1, "stop a 2s")] {
        let env = TestEnv::new();
        env.fake.add_container(running("a"));
        let result = env
            .runtime
            .kill_pod(kill(Some(pod(&["a"])), nothing(), asked))
            .await;
        assert!(result.is_ok());
        assert_eq!(stops(&env), [given]);
    }
}

#[tokio::test]
async fn stop_uses_fresh_lists_or_the_observation_if_they_fail() {
    let env = TestEnv::new();
    env.fake.add_container(running("late"));
    env.runtime
        .kill_pod(kill(None, nothing(), 5))
        .await
        .expect("killed");
    assert_eq!(stops(&env), ["stop late 5s"]);

    let env = TestEnv::new();
    env.fake.fail("list-containers", CriCode::Other, "x");
    env.fake.fail("list-sandboxes", CriCode::Other, "x");
    let seen = observed(vec![
        seen("a", "a1", ContainerState::Running, 1),
        seen("a", "a0", ContainerState::Exited, 0),
    ]);
    env.runtime
        .kill_pod(kill(None, seen, 5))
        .await
        .expect("killed");
    assert_eq!(stops(&env), ["stop a1 5s", "stop-sandbox s0"]);
}

#[tokio::test(start_paused = true)]
async fn hung_list_does_not_block_the_stop() {
    let env = TestEnv::new();
    env.fake.hang("list-containers");
    let seen = observed(vec![seen("a", "a1", ContainerState::Running, 1)]);
    let result = env.runtime.kill_pod(kill(None, seen, 5)).await;
    assert!(result.is_ok());
    assert_eq!(stops(&env), ["stop a1 5s", "stop-sandbox s0"]);
}

#[tokio::test]
async fn missing_counts_as_stopped_and_one_failure_blocks_no_other() {
    let env = TestEnv::new();
    for name in ["a", "b", "c"] {
        env.fake.add_container(running(name));
    }
    env.fake.add_sandbox(sandbox("s0"));
    env.fake.fail("stop a 5s", CriCode::NotFound, "gone");
    env.fake
        .fail("stop b 5s", CriCode::DeadlineExceeded, "stuck in D state");
    let error = env
        .runtime
        .kill_pod(kill(Some(pod(&["a", "b", "c"])), nothing(), 5))
        .await
        .expect_err("b is stuck");
    assert_eq!(
        error.to_string(),
        "cannot stop container b: test: stuck in D state"
    );
    assert_eq!(stops(&env).len(), 3, "the sandbox is kept for b");
    let last = env.events.take().pop();
    assert_eq!(
        last.as_deref(),
        Some("W FailedKillPod: error killing pod: cannot stop container b: test: stuck in D state")
    );
}

#[tokio::test]
async fn sandbox_is_stopped_after_the_grace_period_whatever_runs() {
    for (waited, expected) in [
        (4, &["stop a 5s"][..]),
        (5, &["stop a 5s", "stop-sandbox s0"]),
    ] {
        let env = TestEnv::new();
        env.fake.add_container(running("a"));
        env.fake.add_sandbox(sandbox("s0"));
        env.fake.fail("stop a 5s", CriCode::Other, "no shim");
        let request = KillPodRequest {
            waited: Duration::from_secs(waited),
            ..kill(Some(pod(&["a"])), nothing(), 5)
        };
        let error = env.runtime.kill_pod(request).await.expect_err("a is stuck");
        assert_eq!(error.to_string(), "cannot stop container a: test: no shim");
        assert_eq!(stops(&env), expected);
    }
}

#[tokio::test]
async fn sandbox_of_an_earlier_boot_does_not_block_the_pod() {
    let check = async |booted, ready, code, expected: &str| {
        let env = TestEnv::with(RuntimeOptions {
            booted,
            ..RuntimeOptions::default()
        });
        env.fake.add_sandbox(SandboxSummary {
            ready,
            ..sandbox("s0")
        });
        env.fake.fail("stop-sandbox s0", code, "no network");
        let mut before = observed(vec![]);
        before.sandboxes[0].ready = false;
        let outcome = env.sync(&pod(&["a"]), before).await;
        assert_eq!(line(&env, &outcome), expected);
        let events = env.events.take();
        let left = "W FailedKillPod: sandbox s0 of an earlier boot not stopped, continuing without it: \
                    test: no network";
        let is_left = events.iter().any(|event| event == left);
        assert_eq!(is_left, expected == "ok", "{events:?}");
    };
    let blocked =
        "KillContainerError retry=later: cannot stop sandbox s0: test: no network | again in 10s";
    let (other, hung) = (CriCode::Other, CriCode::DeadlineExceeded);
    check(Some(at(1)), false, other, "ok").await;
    check(Some(at(1)), false, hung, blocked).await;
    check(Some(at(1)), true, other, blocked).await;
    check(Some(at(0)), false, other, blocked).await;
    check(None, false, other, blocked).await;
}

#[tokio::test]
async fn changed_sandbox_is_replaced_in_one_sync() {
    let env = TestEnv::new();
    env.fake.add_container(running("a"));
    env.fake.add_sandbox(sandbox("s0"));
    let mut before = observed(vec![seen("a", "a", ContainerState::Running, 0)]);
    before.sandboxes[0].ready = false;
    let outcome = env.sync(&pod(&["a"]), before).await;
    assert_eq!(line(&env, &outcome), "ok");
    assert_eq!(
        stops(&env)[..3],
        ["stop a 30s", "stop-sandbox s0", "sandbox web#1"]
    );
    assert_eq!(
        env.events.take()[0],
        "N SandboxChanged: Pod sandbox changed, it will be killed and re-created."
    );
}

#[tokio::test]
async fn changed_container_is_stopped_with_reason_and_restarted() {
    let env = TestEnv::new();
    let mut changed = seen("a", "a0", ContainerState::Running, 0);
    changed.hash = Some(1);
    let outcome = env.sync(&pod(&["a"]), observed(vec![changed])).await;
    assert_eq!(line(&env, &outcome), "ok");
    assert_eq!(stops(&env), ["stop a0 30s", "create a#1", "start a"]);
    let first = env.events.take().remove(0);
    assert!(
        first.starts_with("N Killing a: Container a definition changed"),
        "{first}"
    );
}

#[tokio::test]
async fn unstoppable_container_is_not_started_twice() {
    let env = TestEnv::new();
    env.fake.fail("stop a0 30s", CriCode::Unavailable, "gone");
    let mut changed = seen("a", "a0", ContainerState::Running, 0);
    changed.hash = Some(1);
    let outcome = env.sync(&pod(&["a", "b"]), observed(vec![changed])).await;
    assert_eq!(
        line(&env, &outcome),
        "KillContainerError container=a retry=soon: test: gone | again in 1s"
    );
    assert_eq!(stops(&env), ["stop a0 30s", "create b#0", "start b"]);
}

#[tokio::test]
async fn created_but_unstarted_container_is_removed_first() {
    let env = TestEnv::new();
    let outcome = env
        .sync(
            &pod(&["a"]),
            observed(vec![seen("a", "a0", ContainerState::Created, 3)]),
        )
        .await;
    assert_eq!(line(&env, &outcome), "ok");
    assert_eq!(stops(&env), ["remove a0", "create a#3", "start a"]);
}

#[tokio::test(start_paused = true)]
async fn hung_sandbox_stops_delay_others_only_briefly() {
    let env = TestEnv::new();
    for hung in 0..8 {
        env.fake.hang(&format!("stop-sandbox hung-{hung}"));
        env.fake.add_sandbox(sandbox(&format!("hung-{hung}")));
    }
    env.fake.add_sandbox(sandbox("healthy"));
    let begun = tokio::time::Instant::now();
    let killing = env.runtime.kill_pod(kill(Some(pod(&["a"])), nothing(), 30));
    let mut killing = std::pin::pin!(killing);
    let wait = |duration| tokio::time::sleep(duration);
    tokio::select! {
        _ = &mut killing => panic!("hung sandboxes were stopped"),
        () = wait(Duration::from_millis(1900)) => {}
    }
    let healthy = "stop-sandbox healthy".to_owned();
    assert!(!env.fake.calls().contains(&healthy), "eight at a time");
    tokio::select! {
        _ = &mut killing => panic!("hung sandboxes were stopped"),
        () = wait(Duration::from_millis(200)) => {}
    }
    assert!(env.fake.calls().contains(&healthy));
    assert!(begun.elapsed() < Duration::from_secs(3));
}
