//! Hooks: order, timeouts and failures.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_cri::error::CriCode;
use windlass_types::corev1::{Container, Lifecycle};
use windlass_types::cri::{ContainerDetail, ContainerSummary};
use windlass_types::{ContainerState, Pod, names};

use super::{TestEnv, at, container, line, nothing, observed, pod_of, seen, sidecar};
use crate::KillPodRequest;

const SECOND: Duration = Duration::from_secs(1);
const FAILED_PRE_STOP: &str = "W FailedPreStopHook a: PreStopHook failed";

fn with_hooks(container: Container, lifecycle: Value) -> Container {
    let lifecycle: Lifecycle = serde_json::from_value(lifecycle).expect("hooks");
    Container {
        lifecycle: Some(lifecycle),
        ..container
    }
}

fn pre_stop(name: &str, handler: Value) -> Container {
    with_hooks(container(name), json!({"preStop": handler}))
}

fn post_start(name: &str, handler: Value) -> Container {
    with_hooks(container(name), json!({"postStart": handler}))
}

fn exec(command: &str) -> Value {
    json!({"exec": {"command": ["sh", "-c", command]}})
}

fn runs(env: &TestEnv, name: &str) {
    env.fake.add_container(ContainerSummary {
        id: name.into(),
        sandbox_id: "s0".into(),
        uid: "u1".into(),
        name: name.into(),
        attempt: 0,
        state: ContainerState::Running,
        created_at: at(0),
        image_id: String::new(),
    });
}

/// Container status of the runtime.
fn detail(state: ContainerState) -> ContainerDetail {
    ContainerDetail {
        observed: seen("a", "a", state, 0),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        mounts: Vec::new(),
    }
}

fn kill<'a>(env: &'a TestEnv, pod: &Pod, seconds: u32) -> impl Future<Output = bool> + use<'a> {
    let request = KillPodRequest {
        pod: Some(Arc::new(pod.clone())),
        observed: Arc::new(observed(Vec::new())),
        grace: seconds * SECOND,
        waited: Duration::ZERO,
        message: String::new(),
    };
    async move { env.runtime.kill_pod(request).await.is_ok() }
}

/// Kills a pod with one container and this grace period; returns its calls up to the sandbox stop,
/// and whether its hook failed.
async fn killed(env: &TestEnv, container: Container, seconds: u32) -> (Vec<String>, bool) {
    runs(env, "a");
    let pod = pod_of(Vec::new(), vec![container]);
    assert!(kill(env, &pod, seconds).await);
    let failed = env.events.take().iter().any(|e| e == FAILED_PRE_STOP);
    (env.fake.timed_calls(), failed)
}

#[tokio::test(start_paused = true)]
async fn pre_stop_command_time_reduces_the_stop_timeout() {
    let env = TestEnv::new();
    env.fake.take("exec", 12 * SECOND);
    let (calls, failed) = killed(&env, pre_stop("a", exec("drain")), 30).await;
    assert_eq!(calls, ["0s exec a sh -c drain", "12s stop a 18s"]);
    assert!(!failed);
}

#[tokio::test(start_paused = true)]
async fn failed_pre_stop_hook_is_reported_and_stop_continues() {
    let env = TestEnv::new();
    env.fake.exit("exec a sh -c drain", 3);
    let (calls, failed) = killed(&env, pre_stop("a", exec("drain")), 30).await;
    assert_eq!(calls, ["0s exec a sh -c drain", "0s stop a 30s"]);
    assert!(failed);

    let env = TestEnv::new();
    env.fake.fail("exec", CriCode::Other, "no such container");
    let (calls, failed) = killed(&env, pre_stop("a", exec("drain")), 30).await;
    assert_eq!(calls.last().expect("stop"), "0s stop a 30s");
    assert!(failed);

    // a hook that the API accepts but upstream does not run
    let env = TestEnv::new();
    let socket = json!({"tcpSocket": {"port": 80}});
    let (calls, failed) = killed(&env, pre_stop("a", socket), 30).await;
    assert_eq!(calls, ["0s stop a 30s"]);
    assert!(failed);
}

#[tokio::test(start_paused = true)]
async fn hook_over_the_grace_period_continues_during_the_stop() {
    // it ends within the stop timeout of 2 s
    let env = TestEnv::new();
    env.fake.take("exec", 11 * SECOND);
    env.fake.take("stop", 2 * SECOND);
    let (calls, failed) = killed(&env, pre_stop("a", exec("drain")), 10).await;
    assert_eq!(calls, ["0s exec a sh -c drain", "10s stop a 2s"]);
    assert!(!failed, "it was not cancelled");

    // its container ends first
    let env = TestEnv::new();
    env.fake.hang("exec");
    env.fake.take("stop", SECOND);
    let (calls, failed) = killed(&env, pre_stop("a", exec("drain")), 10).await;
    assert_eq!(calls, ["0s exec a sh -c drain", "10s stop a 2s"]);
    assert!(failed);
}

#[tokio::test(start_paused = true)]
async fn hook_is_skipped_without_a_grace_period() {
    let env = TestEnv::new();
    let (calls, failed) = killed(&env, pre_stop("a", exec("drain")), 0).await;
    assert_eq!(calls, ["0s stop a 2s"]);
    assert!(!failed);
    // force deletion has 1 s, as upstream
    let env = TestEnv::new();
    env.fake.hang("exec");
    let (calls, _) = killed(&env, pre_stop("a", exec("drain")), 1).await;
    assert_eq!(calls, ["0s exec a sh -c drain", "1s stop a 2s"]);
}

#[tokio::test(start_paused = true)]
async fn http_hook_calls_the_pod_and_any_status_succeeds() {
    let get = |more: Value| {
        let mut get = json!({"path": "/bye", "port": "admin"});
        let fields = get.as_object_mut().expect("object");
        fields.extend(more.as_object().expect("object").clone());
        let mut container = pre_stop("a", json!({"httpGet": get}));
        container.ports =
            serde_json::from_value(json!([{"name": "admin", "containerPort": 81}])).expect("ports");
        container
    };
    // the server returns 500
    let env = TestEnv::new();
    let (calls, failed) = killed(&env, get(json!({})), 30).await;
    assert_eq!(calls[0], "0s get http://10.0.0.5:81/bye");
    assert!(!failed);

    let env = TestEnv::new();
    let elsewhere = json!({"host": "drain.example"});
    let (calls, _) = killed(&env, get(elsewhere), 30).await;
    assert_eq!(calls[0], "0s get http://drain.example:81/bye");

    let env = TestEnv::new();
    env.fake.fail("get", CriCode::Other, "connection refused");
    let (calls, failed) = killed(&env, get(json!({})), 30).await;
    assert_eq!(calls[1], "0s stop a 30s");
    assert!(failed);

    // requests have no timeout of their own
    let env = TestEnv::new();
    env.fake.take("get", 600 * SECOND);
    let (calls, failed) = killed(&env, get(json!({})), 900).await;
    assert_eq!(calls[1], "600s stop a 300s");
    assert!(!failed);
}

#[tokio::test(start_paused = true)]
async fn https_hook_falls_back_to_http() {
    let handler = json!({"httpGet": {"scheme": "HTTPS", "path": "/bye", "port": 81}});
    let env = TestEnv::new();
    let https = "get https://10.0.0.5:81/bye";
    env.fake.fail(https, CriCode::Other, "plain");
    runs(&env, "a");
    let pod = pod_of(Vec::new(), vec![pre_stop("a", handler)]);
    assert!(kill(&env, &pod, 30).await);
    assert_eq!(
        env.fake.timed_calls(),
        [
            "0s get https://10.0.0.5:81/bye",
            "0s get http://10.0.0.5:81/bye",
            "0s stop a 30s"
        ]
    );
    assert_eq!(
        env.events.take()[1],
        "W LifecycleHTTPFallback: request to HTTPS lifecycle hook 10.0.0.5:81 got HTTP response, \
         retry with HTTP succeeded"
    );
    assert_eq!(env.metrics.containers.hook_http_fallbacks.get(), 1.0);
}

#[tokio::test(start_paused = true)]
async fn pre_stop_sleep_ends_with_its_container() {
    let sleep = |seconds: i64| pre_stop("a", json!({"sleep": {"seconds": seconds}}));
    let alive = |env: &TestEnv, state| {
        env.fake.detail(detail(state));
    };
    let env = TestEnv::new();
    alive(&env, ContainerState::Running);
    let (calls, failed) = killed(&env, sleep(8), 30).await;
    assert_eq!(calls, ["0s stop a 22s"]);
    assert!(!failed);
    assert_eq!(env.metrics.containers.hook_sleeps_terminated.get(), 0.0);

    let env = TestEnv::new();
    let (_, failed) = killed(&env, sleep(0), 30).await;
    assert!(!failed);

    // it exits in the meantime: the rest of the sleep is skipped
    let env = TestEnv::new();
    alive(&env, ContainerState::Exited);
    let (calls, failed) = killed(&env, sleep(20), 30).await;
    assert_eq!(calls, ["0s stop a 29s"]);
    assert!(failed);
    assert_eq!(env.metrics.containers.hook_sleeps_terminated.get(), 1.0);

    // a shorter grace period: the stop is dropped and repeated
    let env = TestEnv::new();
    alive(&env, ContainerState::Running);
    runs(&env, "a");
    let pod = pod_of(Vec::new(), vec![sleep(20)]);
    let first = tokio::time::timeout(5 * SECOND, kill(&env, &pod, 30)).await;
    assert!(first.is_err());
    assert_eq!(env.metrics.containers.hook_sleeps_terminated.get(), 1.0);
    assert!(env.fake.timed_calls().is_empty());
    assert!(kill(&env, &pod, 3).await);
    assert_eq!(env.fake.timed_calls(), ["0s stop a 2s"]);
}

#[tokio::test(start_paused = true)]
async fn sidecar_hooks_start_with_all_others() {
    let env = TestEnv::new();
    for name in ["s", "a"] {
        runs(&env, name);
    }
    env.fake.take("exec", 3 * SECOND);
    env.fake.take("stop a 27s", 10 * SECOND);
    let hook = json!({"preStop": exec("drain")});
    let pod = pod_of(
        vec![with_hooks(sidecar("s"), hook)],
        vec![pre_stop("a", exec("drain"))],
    );
    assert!(kill(&env, &pod, 30).await);
    assert_eq!(
        env.fake.timed_calls(),
        [
            "0s exec s sh -c drain",
            "0s exec a sh -c drain",
            "3s stop a 27s",
            "13s stop s 17s",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn only_interrupted_hook_runs_again_on_retry() {
    let pod = pod_of(Vec::new(), vec![pre_stop("a", exec("drain"))]);
    // the hook ends, the stop fails and is repeated
    let env = TestEnv::new();
    runs(&env, "a");
    env.fake.fail("stop", CriCode::Unavailable, "gone");
    assert!(!kill(&env, &pod, 30).await);
    env.fake.heal("stop");
    env.fake.forget_calls();
    assert!(kill(&env, &pod, 30).await);
    assert_eq!(env.fake.timed_calls(), ["0s stop a 30s"]);
    // it has stopped: a later container with its ID runs its own hook
    env.fake.forget_calls();
    assert!(kill(&env, &pod, 30).await);
    assert_eq!(env.fake.timed_calls()[0], "0s exec a sh -c drain");

    // the hook hangs when the grace period is shortened: the new one applies
    let env = TestEnv::new();
    runs(&env, "a");
    env.fake.hang("exec");
    let first = tokio::time::timeout(5 * SECOND, kill(&env, &pod, 30)).await;
    assert!(first.is_err());
    env.fake.forget_calls();
    assert!(kill(&env, &pod, 3).await);
    assert_eq!(
        env.fake.timed_calls(),
        ["0s exec a sh -c drain", "3s stop a 2s"]
    );
}

#[tokio::test(start_paused = true)]
async fn hook_of_container_without_spec_is_read_from_annotations() {
    let env = TestEnv::new();
    runs(&env, "a");
    env.fake.hang("exec");
    let handler = exec("drain").to_string();
    env.fake.detail(ContainerDetail {
        annotations: [(names::ANN_PRE_STOP_HANDLER.to_owned(), handler)].into(),
        ..detail(ContainerState::Running)
    });
    let orphan = KillPodRequest {
        pod: None,
        observed: Arc::new(nothing()),
        grace: SECOND,
        waited: Duration::ZERO,
        message: String::new(),
    };
    assert!(env.runtime.kill_pod(orphan).await.is_ok());
    assert_eq!(
        env.fake.timed_calls(),
        ["0s exec a sh -c drain", "1s stop a 2s"]
    );
}

#[tokio::test(start_paused = true)]
async fn single_stop_runs_the_hook_unless_the_container_exited() {
    let env = TestEnv::new();
    let mut changed = seen("a", "a0", ContainerState::Running, 0);
    changed.hash = Some(1);
    let pod = pod_of(Vec::new(), vec![pre_stop("a", exec("drain"))]);
    env.sync(&pod, observed(vec![changed])).await;
    assert_eq!(
        env.fake.calls(),
        [
            "exec a0 sh -c drain",
            "stop a0 30s",
            "create a#1",
            "start a"
        ]
    );

    let env = TestEnv::new();
    env.clock.set(1);
    let dead = seen("a", "a0", ContainerState::Exited, 0);
    env.sync(&pod, observed(vec![dead])).await;
    assert_eq!(env.fake.calls(), ["create a#1", "start a"]);
}

#[tokio::test(start_paused = true)]
async fn next_container_starts_after_the_post_start_hook() {
    let env = TestEnv::new();
    env.fake.take("exec", 5 * SECOND);
    let pod = pod_of(
        vec![with_hooks(sidecar("s"), json!({"postStart": exec("warm")}))],
        vec![
            post_start("a", json!({"sleep": {"seconds": 7}})),
            container("b"),
        ],
    );
    let first = env.sync(&pod, nothing()).await;
    assert_eq!(line(&env, &first), "ok");
    let of_hooks = |env: &TestEnv| {
        let calls = env.fake.timed_calls().into_iter();
        calls
            .filter(|c| !c.contains("image-status") && !c.contains("sandbox"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of_hooks(&env),
        ["0s create s#0", "0s start s", "0s exec s sh -c warm"]
    );
    env.fake.forget_calls();
    let running = seen("s", "s", ContainerState::Running, 0);
    let second = env.sync(&pod, observed(vec![running])).await;
    assert_eq!(line(&env, &second), "ok");
    assert_eq!(
        of_hooks(&env),
        ["0s create a#0", "0s start a", "7s create b#0", "7s start b"]
    );
}

#[tokio::test(start_paused = true)]
async fn failed_post_start_hook_kills_only_its_container() {
    let env = TestEnv::new();
    env.fake.exit("exec a sh -c warm", 7);
    let hooks = json!({"postStart": exec("warm"), "preStop": exec("drain")});
    let pod = pod_of(
        Vec::new(),
        vec![with_hooks(container("a"), hooks), container("b")],
    );
    let outcome = env.sync(&pod, nothing()).await;
    assert_eq!(
        line(&env, &outcome),
        "PostStartHookError container=a retry=soon: Exec lifecycle hook ([sh -c warm]) for \
         Container \"a\" in Pod \"web_default(u1)\" failed - error: command 'sh -c warm' exited \
         with 7: err, message: \"outerr\" | again in 1s"
    );
    assert_eq!(
        env.fake.calls()[2..],
        [
            "create a#0",
            "start a",
            "exec a sh -c warm",
            "exec a sh -c drain",
            "stop a 30s",
            "create b#0",
            "start b"
        ]
    );
    let events = env.events.take();
    assert_eq!(
        events[3..5],
        [
            "W FailedPostStartHook a: PostStartHook failed",
            "N Killing a: FailedPostStartHook"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn post_start_sleep_outlasts_its_container() {
    let env = TestEnv::new();
    let pod = pod_of(
        Vec::new(),
        vec![post_start("a", json!({"sleep": {"seconds": 5}}))],
    );
    let outcome = env.sync(&pod, nothing()).await;
    assert_eq!(line(&env, &outcome), "ok");
    assert_eq!(env.metrics.containers.hook_sleeps_terminated.get(), 0.0);
}
