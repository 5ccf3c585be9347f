//! Containers that are killed after a failed probe, reset together, or added to a running pod.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use windlass_cri::error::CriCode;
use windlass_pod_lifecycle::backoff::{BackoffPolicy, BackoffTable, restart_key};
use windlass_types::corev1::{
    Container, ContainerRestartRule, ContainerRestartRuleOnExitCodes, EphemeralContainer, Probe,
};
use windlass_types::{ContainerProbeResult, ContainerState, Pod, PodProbeResults};

use super::{TestEnv, at, container, line, observed, pod, pod_of, request, seen, sidecar};
use crate::SyncPodRequest;

fn restarts_all(name: &str) -> Container {
    Container {
        restart_policy: Some("Never".into()),
        restart_policy_rules: Some(vec![ContainerRestartRule {
            action: "RestartAllContainers".into(),
            exit_codes: Some(ContainerRestartRuleOnExitCodes {
                operator: "In".into(),
                values: Some(vec![1]),
            }),
        }]),
        ..container(name)
    }
}

fn with_debugger(pod: Pod, target: Option<&str>) -> Pod {
    let mut pod = pod;
    let debugger = EphemeralContainer {
        name: "debug".into(),
        image: Some("web:1".into()),
        target_container_name: target.map(str::to_owned),
        ..EphemeralContainer::default()
    };
    pod.spec.get_or_insert_default().ephemeral_containers = Some(vec![debugger]);
    pod
}

#[tokio::test]
async fn reset_kills_with_min_grace_and_removes_its_source_last() {
    let env = TestEnv::new();
    let pod = pod_of(vec![sidecar("s")], vec![restarts_all("a"), container("b")]);
    let exited = seen("a", "a0", ContainerState::Exited, 3);
    let found = observed(vec![
        exited,
        seen("b", "b0", ContainerState::Running, 0),
        seen("s", "s0", ContainerState::Exited, 0),
    ]);
    let log = "/var/log/pods/default_web_u1/a";
    for name in ["2.log", "3.log"] {
        env.files.put(format!("{log}/{name}"), "");
    }
    let outcome = env.sync(&pod, found).await;
    assert_eq!(line(&env, &outcome), "ok | again in 0s");
    assert_eq!(outcome.actions.to_string(), "reset(s) reset(b) reset(a)");
    assert_eq!(
        env.fake.calls(),
        ["remove s0", "stop b0 2s", "remove b0", "remove a0"]
    );
    assert_eq!(env.events.take(), ["N Killing b: Stopping container b"]);
    let key = restart_key(&pod, &pod.spec.as_ref().expect("spec").containers[0]);
    let delay = outcome.backoff.delay(&key).map(|d| d.as_secs());
    assert_eq!(delay, Some(10), "it counts as a failure");
    // the next restart count is read from the newest log
    let left: Vec<_> = env.files.paths();
    assert_eq!(left, [std::path::Path::new(log).join("3.log")]);
    assert!(outcome.changed);
}

#[tokio::test]
async fn failed_reset_keeps_its_source_containers() {
    let env = TestEnv::new();
    let pod = pod_of(Vec::new(), vec![restarts_all("a"), container("b")]);
    let found = observed(vec![
        seen("a", "a0", ContainerState::Exited, 0),
        seen("b", "b0", ContainerState::Running, 0),
    ]);
    env.fake.fail("stop b0 2s", CriCode::Other, "busy");
    let outcome = env.sync(&pod, found).await;
    assert_eq!(env.fake.calls(), ["stop b0 2s"]);
    let line = line(&env, &outcome);
    assert!(line.starts_with("KillContainerError container=b"), "{line}");
    assert!(line.ends_with("again in 10s"), "{line}");
}

#[tokio::test]
async fn failed_probe_restarts_within_probe_grace_period() {
    for (policy, probe_grace, calls) in [
        (
            "Always",
            Some(7),
            &["stop a0 7s", "create a#1", "start a"][..],
        ),
        ("Always", None, &["stop a0 30s", "create a#1", "start a"]),
        ("Never", Some(7), &["stop a0 7s"]),
    ] {
        let env = TestEnv::new();
        let mut probed = container("a");
        probed.liveness_probe = Some(Probe {
            termination_grace_period_seconds: probe_grace,
            ..Probe::default()
        });
        let mut pod = pod_of(Vec::new(), vec![probed]);
        pod.spec.as_mut().expect("spec").restart_policy = Some(policy.into());
        let mut probe_results = PodProbeResults::default();
        let result = ContainerProbeResult {
            id: "a0".into(),
            success: false,
        };
        probe_results.liveness.insert("a".into(), result);
        let found = observed(vec![seen("a", "a0", ContainerState::Running, 0)]);
        let asked = SyncPodRequest {
            probe_results: Arc::new(probe_results),
            ..request(&pod, found)
        };
        let sync = env.runtime.sync_pod(asked, CancellationToken::new());
        sync.await;
        assert_eq!(env.fake.calls(), calls, "{policy} {probe_grace:?}");
        let events = env.events.take();
        let end = match policy {
            "Never" => "",
            _ => ", will be restarted",
        };
        let killing = format!("N Killing a: Container a failed liveness probe{end}");
        assert_eq!(events[0], killing);
    }
}

#[tokio::test]
async fn ephemeral_container_starts_and_joins_its_target() {
    let env = TestEnv::new();
    let found = observed(vec![seen("a", "a0", ContainerState::Running, 0)]);
    let asked = with_debugger(pod(&["a"]), Some("a"));
    let outcome = env.sync(&asked, found.clone()).await;
    assert_eq!(line(&env, &outcome), "ok");
    assert_eq!(env.fake.calls(), ["create debug#0", "start debug"]);
    let configs = env.fake.configs();
    assert_eq!(configs[0].security.pid_target, Some("a0".into()));
    let started = env.metrics.containers.started_containers.clone();
    let count = started.with_label_values(&["ephemeral_container"]).get();
    assert!((count - 1.0).abs() < f64::EPSILON);

    let env = TestEnv::new();
    env.sync(&with_debugger(pod(&["a"]), None), found.clone())
        .await;
    assert_eq!(env.fake.configs()[0].security.pid_target, None);

    let env = TestEnv::new();
    let outcome = env
        .sync(&with_debugger(pod(&["a"]), Some("x")), found)
        .await;
    assert_eq!(
        line(&env, &outcome),
        "CreateContainerConfigError container=debug retry=later: unable to find target container \
         x | again in 10s"
    );
}

#[tokio::test]
async fn failed_ephemeral_container_blocks_no_other() {
    let env = TestEnv::new();
    env.fake.fail("create debug#0", CriCode::Other, "no room");
    let exited = seen("a", "a0", ContainerState::Exited, 0);
    let asked = with_debugger(pod(&["a"]), None);
    let outcome = env.sync(&asked, observed(vec![exited])).await;
    assert_eq!(
        env.fake.calls(),
        ["create debug#0", "create a#1", "start a"]
    );
    assert_eq!(
        line(&env, &outcome),
        "CreateContainerError container=debug retry=later: no room | again in 10s"
    );
}

#[tokio::test]
async fn reset_in_back_off_leaves_other_containers() {
    let env = TestEnv::new();
    let pod = pod_of(Vec::new(), vec![restarts_all("a"), container("b")]);
    let mut backoff = BackoffTable::default();
    let key = restart_key(&pod, &pod.spec.as_ref().expect("spec").containers[0]);
    backoff.next(&key, BackoffPolicy::DEFAULT, at(0));
    let found = observed(vec![
        seen("a", "a0", ContainerState::Exited, 0),
        seen("b", "b0", ContainerState::Running, 0),
    ]);
    let outcome = env.sync_with(&pod, found, backoff).await;
    assert!(env.fake.calls().is_empty());
    let line = line(&env, &outcome);
    assert!(line.starts_with("CrashLoopBackOff container=a"), "{line}");
}
