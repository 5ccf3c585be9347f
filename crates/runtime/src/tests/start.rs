//! Order, reasons and retries of starts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_cri::error::CriCode;
use windlass_pod_lifecycle::backoff::{BackoffPolicy, BackoffTable, restart_key};
use windlass_types::corev1::{EnvVar, EnvVarSource, SecretKeySelector};
use windlass_types::{ContainerState, PodUid};

use super::{TestEnv, at, container, line, nothing, observed, pod, pod_of, seen, sidecar, until};
use crate::{SyncPodOutcome, SyncPodRequest};

#[tokio::test]
async fn new_pod_starts_in_order_with_minimal_calls() {
    let env = TestEnv::new();
    let outcome = env.sync(&pod(&["a", "b"]), nothing()).await;
    assert_eq!(line(&env, &outcome), "ok");
    assert_eq!(
        env.fake.all_calls(),
        [
            "sandbox web#0",
            "sandbox-status ",
            "image-status web:1",
            "create a#0",
            "start a",
            "create b#0",
            "start b",
        ]
    );
    assert_eq!(
        env.events.take(),
        [
            "N Pulled a: Container image \"web:1\" already present on machine and can be accessed by the pod",
            "N Created a: Container created",
            "N Started a: Container started",
            "N Pulled b: Container image \"web:1\" already present on machine and can be accessed by the pod",
            "N Created b: Container created",
            "N Started b: Container started",
        ]
    );
    assert!(outcome.changed && !outcome.cancelled);
    assert_eq!(outcome.retry_at, None);
    let timings = &outcome.timings;
    assert!(timings.sandbox_ready.is_some() && timings.images_ready.is_some());
    assert!(timings.containers_started.is_some());
    let hosts = env
        .files
        .get(Path::new("/var/lib/kubelet/pods/u1/etc-hosts"));
    assert!(hosts.expect("hosts file").contains("10.0.0.7\tweb\n"));
    let links = env.files.links();
    let log = links.get(Path::new("/var/log/containers/web_default_a-a.log"));
    assert_eq!(
        log.expect("link"),
        Path::new("/var/log/pods/default_web_u1/a/0.log")
    );
}

#[tokio::test]
async fn sync_without_actions_makes_no_calls() {
    let env = TestEnv::new();
    let outcome = env
        .sync(
            &pod(&["a"]),
            observed(vec![seen("a", "a0", ContainerState::Running, 0)]),
        )
        .await;
    assert_eq!(line(&env, &outcome), "ok");
    assert_eq!(outcome.actions.to_string(), "nothing");
    assert!(env.fake.all_calls().is_empty() && env.files.calls().is_empty());
    assert!(!outcome.changed);
}

#[tokio::test]
async fn each_failed_step_has_reason_event_and_retry() {
    async fn check(prepare: impl FnOnce(&TestEnv), expected: &str, event: &str) {
        let env = TestEnv::new();
        prepare(&env);
        let outcome = env.sync(&pod(&["a"]), nothing()).await;
        assert_eq!(line(&env, &outcome), expected);
        let events = env.events.take();
        assert!(
            events.iter().any(|e| e == event),
            "{event:?} in {events:#?}"
        );
    }
    check(
        |w| w.files.fail_pod(&PodUid::from("u1"), Some("disk is full")),
        "Failed retry=later: error making pod data directories: cannot make \
         /var/lib/kubelet/pods/u1: disk is full | again in 10s",
        "W Failed: error making pod data directories: cannot make /var/lib/kubelet/pods/u1: disk \
         is full",
    )
    .await;
    check(
        |w| w.fake.fail("sandbox", CriCode::Other, "no cni"),
        "CreatePodSandboxError retry=later: Failed to create pod sandbox: no cni | again in 10s",
        "W FailedCreatePodSandBox: Failed to create pod sandbox: no cni",
    )
    .await;
    check(
        |w| w.fake.fail("sandbox", CriCode::Unavailable, "gone"),
        "CreatePodSandboxError retry=soon: Failed to create pod sandbox: gone | again in 1s",
        "W FailedCreatePodSandBox: Failed to create pod sandbox: gone",
    )
    .await;
    check(
        |w| w.fake.fail("sandbox-status", CriCode::Other, "no"),
        "FailedPodSandBoxStatus retry=soon: Unable to get pod sandbox status: no | again in 1s",
        "W FailedPodSandBoxStatus: Unable to get pod sandbox status: no",
    )
    .await;
    check(
        |w| w.fake.fail("create", CriCode::Other, "bad mount"),
        "CreateContainerError container=a retry=later: bad mount | again in 10s",
        "W Failed a: Error: bad mount",
    )
    .await;
    check(
        |w| w.fake.fail("start", CriCode::Other, "no such file"),
        "RunContainerError container=a retry=later: no such file | again in 10s",
        "W Failed a: Error: no such file",
    )
    .await;
}

#[tokio::test]
async fn config_error_fails_only_its_container() {
    let env = TestEnv::new();
    let mut bad = container("a");
    bad.env = Some(vec![EnvVar {
        name: "KEY".into(),
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: "s".into(),
                key: "k".into(),
                optional: None,
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }]);
    let outcome = env
        .sync(&pod_of(Vec::new(), vec![bad, container("b")]), nothing())
        .await;
    assert_eq!(outcome.failures.len(), 1);
    assert_eq!(
        outcome.failures[0].reason.as_str(),
        "CreateContainerConfigError"
    );
    assert_eq!(outcome.failures[0].container.as_deref(), Some("a"));
    assert!(env.fake.calls().contains(&"start b".to_owned()));
}

#[tokio::test]
async fn failed_start_is_left_to_next_sync_and_sibling_starts() {
    let env = TestEnv::new();
    env.fake
        .fail("start a", CriCode::Other, "exec format error");
    let outcome = env.sync(&pod(&["a", "b"]), nothing()).await;
    assert_eq!(
        env.fake.calls()[2..],
        ["create a#0", "start a", "create b#0", "start b"]
    );
    assert_eq!(outcome.failures.len(), 1);
    assert!(outcome.timings.containers_started.is_none());
}

#[tokio::test]
async fn network_not_ready_blocks_only_pods_without_host_network() {
    let env = TestEnv::new();
    env.fake.network_down("cni plugin not initialized");
    let mut pod = pod(&["a"]);
    for (host_network, expected) in [
        (
            false,
            "NetworkNotReady retry=soon: network is not ready: cni plugin not initialized | again in 1s",
        ),
        (true, "ok"),
    ] {
        if let Some(spec) = &mut pod.spec {
            spec.host_network = Some(host_network);
        }
        let request = SyncPodRequest {
            probe_results: Arc::default(),
            pod: Arc::new(pod.clone()),
            inputs: Arc::default(),
            volumes: Arc::default(),
            observed: Arc::new(nothing()),
            backoff: BackoffTable::default(),
            network_ready: false,
        };
        let outcome = env
            .runtime
            .sync_pod(request, CancellationToken::new())
            .await;
        assert_eq!(line(&env, &outcome), expected);
    }
}

#[tokio::test]
async fn failed_init_container_blocks_and_failed_sidecar_does_not() {
    async fn check(first: windlass_types::corev1::Container, expected: &str) {
        let env = TestEnv::new();
        env.fake.fail("create first#0", CriCode::Other, "x");
        let pod = pod_of(vec![first, container("setup")], vec![container("a")]);
        let outcome = env.sync(&pod, nothing()).await;
        assert_eq!(outcome.failures.len(), 1);
        let calls = env.fake.calls();
        assert_eq!(calls[2..].join(", "), expected, "{}", outcome.actions);
    }
    check(container("first"), "create first#0").await;
    check(sidecar("first"), "create first#0").await;

    // both had exited: the sidecar still does not start, the container does
    let env = TestEnv::new();
    env.clock.set(60);
    env.fake.fail("create first#1", CriCode::Other, "x");
    let pod = pod_of(vec![sidecar("first")], vec![container("a")]);
    let both = observed(vec![
        seen("a", "a0", ContainerState::Exited, 0),
        seen("first", "f", ContainerState::Exited, 0),
    ]);
    let outcome = env.sync(&pod, both).await;
    assert_eq!(outcome.actions.to_string(), "init(first#1) start(a#1)");
    assert_eq!(outcome.failures.len(), 1);
    assert_eq!(
        env.fake.calls(),
        ["create first#1", "create a#1", "start a"]
    );
}

#[tokio::test]
async fn crashed_container_restarts_with_incremented_count() {
    let env = TestEnv::new();
    env.clock.set(1);
    let spec = pod(&["a"]);
    let dead = observed(vec![seen("a", "a0", ContainerState::Exited, 4)]);
    let outcome = env.sync(&spec, dead.clone()).await;
    assert_eq!(env.fake.calls(), ["create a#5", "start a"]);
    let key = restart_key(&spec, &container("a"));
    assert_eq!(outcome.backoff.delay(&key).expect("counted").as_secs(), 10);

    // the same observation with that table: the back-off applies
    env.fake.forget_calls();
    env.events.take();
    let outcome = env.sync_with(&spec, dead, outcome.backoff).await;
    assert!(env.fake.calls().is_empty());
    assert_eq!(
        line(&env, &outcome),
        "CrashLoopBackOff container=a retry=later: back-off 10s restarting failed container=a \
         pod=web_default(u1) | again in 9s"
    );
    assert_eq!(
        env.events.take(),
        ["W BackOff a: Back-off restarting failed container a in pod web_default(u1)"]
    );
    assert!(!outcome.changed);
    assert_eq!(outcome.backoff.delay(&key).expect("kept").as_secs(), 10);
}

#[tokio::test]
async fn back_off_of_one_container_does_not_block_its_sibling() {
    let env = TestEnv::new();
    env.clock.set(1);
    let spec = pod(&["a", "b"]);
    let mut backoff = BackoffTable::default();
    backoff.next(
        &restart_key(&spec, &container("a")),
        BackoffPolicy::DEFAULT,
        at(0),
    );
    let outcome = env
        .sync_with(
            &spec,
            observed(vec![seen("a", "a0", ContainerState::Exited, 0)]),
            backoff,
        )
        .await;
    assert_eq!(env.fake.calls(), ["create b#0", "start b"]);
    assert_eq!(outcome.failures.len(), 1);
}

#[tokio::test]
async fn restart_count_is_recovered_from_remaining_logs() {
    let env = TestEnv::new();
    env.files.put("/var/log/pods/default_web_u1/a/0.log", "");
    env.files.put(
        "/var/log/pods/default_web_u1/a/6.log.20260101-000000.gz",
        "",
    );
    let outcome = env.sync(&pod(&["a"]), nothing()).await;
    assert_eq!(line(&env, &outcome), "ok");
    assert_eq!(env.fake.calls()[2..], ["create a#7", "start a"]);
    let configs = env.fake.configs();
    assert_eq!(configs[0].log_path, "a/7.log");
}

#[tokio::test(start_paused = true)]
async fn cancelled_hung_sync_keeps_its_partial_outcome() {
    let env = Arc::new(TestEnv::new());
    env.fake.hang("sandbox");
    let cancel = CancellationToken::new();
    let task = tokio::spawn({
        let (env, cancel) = (env.clone(), cancel.clone());
        async move {
            let request = SyncPodRequest {
                probe_results: Arc::default(),
                pod: Arc::new(pod(&["a"])),
                inputs: Arc::default(),
                volumes: Arc::default(),
                observed: Arc::new(nothing()),
                backoff: BackoffTable::default(),
                network_ready: true,
            };
            env.runtime.sync_pod(request, cancel).await
        }
    });
    until("the call", || !env.fake.calls().is_empty()).await;
    cancel.cancel();
    let outcome = task.await.expect("task");
    assert!(outcome.cancelled && outcome.changed && outcome.failures.is_empty());
    assert_eq!(env.fake.calls(), ["sandbox web#0"]);
}

/// Syncs a pod of `a` and `b` and cancels the sync while `a` starts.
async fn cancelled_in_a_start(env: &TestEnv) -> (SyncPodOutcome, Duration) {
    let request = SyncPodRequest {
        probe_results: Arc::default(),
        pod: Arc::new(pod(&["a", "b"])),
        inputs: Arc::default(),
        volumes: Arc::default(),
        observed: Arc::new(nothing()),
        backoff: BackoffTable::default(),
        network_ready: true,
    };
    let cancel = CancellationToken::new();
    let cancelled = async {
        let starts = || env.fake.calls().iter().any(|call| call == "start a");
        until("the start", starts).await;
        cancel.cancel();
        Instant::now()
    };
    let pass = async {
        let outcome = env.runtime.sync_pod(request, cancel.clone()).await;
        (outcome, Instant::now())
    };
    let ((outcome, end), at) = futures::future::join(pass, cancelled).await;
    (outcome, end - at)
}

#[tokio::test(start_paused = true)]
async fn cancelled_sync_completes_only_the_start_in_progress() {
    let env = TestEnv::new();
    env.fake.take("start a", Duration::from_secs(3));
    let (outcome, waited) = cancelled_in_a_start(&env).await;
    assert!(outcome.cancelled && outcome.failures.is_empty());
    assert_eq!(waited.as_secs(), 3);
    let events = env.events.take();
    assert!(
        !events.iter().any(|it| it.contains("Created b")),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn cancelled_sync_abandons_a_hung_start() {
    let env = TestEnv::new();
    env.fake.hang("start a");
    let (outcome, waited) = cancelled_in_a_start(&env).await;
    assert!(outcome.cancelled);
    assert_eq!(waited.as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn hung_directories_of_one_pod_delay_no_other_pod() {
    let env = TestEnv::new();
    let mut stuck = pod(&["a"]);
    stuck.metadata.uid = Some("u2".into());
    env.files.hang_pod(&PodUid::from("u2"), true);
    let hung = env.sync(&stuck, nothing());
    let other = pod(&["a"]);
    let free = env.sync(&other, nothing());
    tokio::select! {
        biased;
        _ = hung => panic!("cannot end"),
        outcome = free => assert_eq!(line(&env, &outcome), "ok"),
    }
}

#[tokio::test]
async fn termination_message_is_read_from_file_or_log() {
    let env = TestEnv::new();
    let mut spec = pod(&["a"]);
    let mut exited = seen("a", "a0", ContainerState::Exited, 2);
    let paths = windlass_pod_inputs::paths::NodePaths::default();
    assert_eq!(env.runtime.termination_message(&spec, &exited).await, None);
    env.files.put(
        &exited.log_path,
        "2016-10-06T00:17:09Z stdout F one\n2016-10-06T00:17:09Z stderr F two\n",
    );
    assert_eq!(env.runtime.termination_message(&spec, &exited).await, None);
    if let Some(spec) = &mut spec.spec {
        spec.containers[0].termination_message_policy = Some("FallbackToLogsOnError".into());
    }
    let message = env.runtime.termination_message(&spec, &exited).await;
    assert_eq!(message.as_deref(), Some("one\ntwo\n"));
    exited.exit_code = 0;
    assert_eq!(env.runtime.termination_message(&spec, &exited).await, None);
    let path = crate::termination::termination_log_path(&paths, &PodUid::from("u1"), "a", 2);
    env.files.put(path, "termination message");
    let message = env.runtime.termination_message(&spec, &exited).await;
    assert_eq!(message.as_deref(), Some("termination message"));
}

#[tokio::test]
async fn log_of_never_started_instance_is_removed_before_it() {
    async fn check(logs: &[&str], count: u32, left: &[&str], next: u32) {
        let dir = Path::new("/var/log/pods/default_web_u1/a");
        let env = TestEnv::new();
        for log in logs {
            env.files.put(dir.join(log), "");
        }
        env.fake.fail("remove a0", CriCode::Other, "busy");
        let unused = seen("a", "a0", ContainerState::Created, count);
        env.sync(&pod(&["a"]), observed(vec![unused])).await;
        assert_eq!(env.fake.calls(), ["remove a0"]);
        let paths = env.files.paths();
        let found: Vec<_> = paths.iter().filter(|path| path.starts_with(dir)).collect();
        let left: Vec<_> = left.iter().map(|name| dir.join(name)).collect();
        assert_eq!(found, left.iter().collect::<Vec<_>>(), "{logs:?}");
        // the next agent run, after the removal of the instance
        env.fake.forget_calls();
        env.sync(&pod(&["a"]), observed(Vec::new())).await;
        let create = format!("create a#{next}");
        assert_eq!(env.fake.calls(), [create.as_str(), "start a"], "{logs:?}");
    }
    check(&["0.log"], 0, &[], 0).await;
    check(&["2.log", "3.log"], 3, &["2.log"], 3).await;
    // without the log of the previous instance the count would go back
    check(&["3.log"], 3, &["3.log"], 4).await;
}

#[tokio::test]
async fn failed_log_removal_does_not_keep_the_instance() {
    let env = TestEnv::new();
    env.files.put("/var/log/pods/default_web_u1/a/0.log", "");
    env.files.fail_log_removals(true);
    let unused = seen("a", "a0", ContainerState::Created, 0);
    let outcome = env.sync(&pod(&["a"]), observed(vec![unused])).await;
    assert_eq!(line(&env, &outcome), "ok");
    assert_eq!(env.fake.calls(), ["remove a0", "create a#0", "start a"]);
}
