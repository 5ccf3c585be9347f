//! Sidecars with a startup probe, restart rules and deadlines.

use std::time::Duration;

use serde_json::Value;

use crate::manifest::fill;
use crate::test_env::{TestEnv, eventually, skipped};

/// Each container writes a line when it begins; the sidecar has started when `/v/up` exists.
const GATED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: gated}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 2
  initContainers:
    - name: sidecar
      image: IMAGE
      restartPolicy: Always
      command: [sh, -c, "echo sidecar >> /v/t; (sleep 4; echo up >> /v/t; touch /v/up) & HOLD"]
      startupProbe: {exec: {command: [test, -e, /v/up]}, periodSeconds: 1, failureThreshold: 60}
      volumeMounts: [{name: v, mountPath: /v}]
    - name: init
      image: IMAGE
      command: [sh, -c, "echo init >> /v/t"]
      volumeMounts: [{name: v, mountPath: /v}]
  containers:
    - name: main
      image: IMAGE
      command: [sh, -c, "echo main >> /v/t; HOLD"]
      volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, emptyDir: {}}]
"#;

/// Exits with 42 the first time, with 5 the second.
const RULED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: ruled}
spec:
  hostNetwork: true
  restartPolicy: Never
  containers:
    - name: main
      image: IMAGE
      restartPolicy: Never
      restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]
      command: [sh, -c, "test -e /v/again && exit 5; touch /v/again; exit 42"]
      volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, emptyDir: {}}]
"#;

/// `main` triggers one restart of all containers.
const RESTART_ALL: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: reset}
spec:
  hostNetwork: true
  restartPolicy: Never
  terminationGracePeriodSeconds: 20
  initContainers:
    - {name: init, image: IMAGE, command: [sh, -c, "echo init >> /v/t"], volumeMounts: [{name: v, mountPath: /v}]}
    - {name: sidecar, image: IMAGE, restartPolicy: Always, command: [sh, -c, "echo sidecar >> /v/t; HOLD"], volumeMounts: [{name: v, mountPath: /v}]}
  containers:
    - name: main
      image: IMAGE
      restartPolicy: Never
      restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]
      command: [sh, -c, "echo main >> /v/t; sleep 2; test -e /v/again || { touch /v/again; exit 88; }; HOLD"]
      volumeMounts: [{name: v, mountPath: /v}]
    # would use all of its grace period
    - {name: deaf, image: IMAGE, command: [sh, -c, "trap '' TERM; while true; do sleep 1; done"]}
  volumes: [{name: v, emptyDir: {}}]
"#;

const SHORT: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: short}
spec:
  hostNetwork: true
  activeDeadlineSeconds: 12
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: IMAGE, command: [sh, -c, "HOLD"]}]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_sidecars_restart_rules_and_deadlines_apply() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::start("i-containers").await;
    env.apply("gated.yaml", &fill(GATED));
    env.apply("ruled.yaml", &fill(RULED));
    env.apply("reset.yaml", &fill(RESTART_ALL));

    let begun = env.ready("gated").await;
    assert_eq!(begun.name, "gated-node");
    let order = env.exec("gated", "main", "cat /v/t").await;
    assert_eq!(order, "sidecar\nup\ninit\nmain\n");

    a_rule_restarts_what_would_not_run_again(&mut env).await;
    reset_restarts_all_containers_in_the_same_sandbox(&mut env).await;
    // kills the agent: no other pod may be starting
    env.apply("short.yaml", &fill(SHORT));
    env.ready("short").await;
    env.kill_and_respawn().await;
    env.ready("short").await;
    a_deadline_ends_the_pod(&mut env).await;
    env.stop().await;
}

async fn a_rule_restarts_what_would_not_run_again(env: &mut TestEnv) {
    eventually("the second end", Duration::from_secs(30), async || {
        let pod = env.pod("ruled").await;
        let status = &pod["status"]["containerStatuses"][0];
        let end = &status["state"]["terminated"]["exitCode"];
        let seen = (end.as_i64(), status["restartCount"].as_i64());
        let found = seen == (Some(5), Some(1)) && pod["status"]["phase"] == "Failed";
        found.then_some(()).ok_or_else(|| status.to_string())
    })
    .await;
}

async fn reset_restarts_all_containers_in_the_same_sandbox(env: &mut TestEnv) {
    eventually("the second round", Duration::from_secs(40), async || {
        let pod = env.pod("reset").await;
        let counts = |list: &str| -> Vec<i64> {
            let statuses = pod["status"][list].as_array().cloned().unwrap_or_default();
            let count = |status: &Value| status["restartCount"].as_i64().unwrap_or(-1);
            statuses.iter().map(count).collect()
        };
        let all = [counts("initContainerStatuses"), counts("containerStatuses")].concat();
        let ready = pod["status"]["containerStatuses"]
            .as_array()
            .is_some_and(|list| list.iter().all(|s| s["ready"] == true));
        let found = all == [1; 4] && ready;
        found
            .then_some(())
            .ok_or_else(|| format!("{all:?} ready: {ready}: {}", pod["status"]))
    })
    .await;
    let order = env.exec("reset", "main", "cat /v/t").await;
    assert_eq!(order, "init\nsidecar\nmain\ninit\nsidecar\nmain\n");
    assert_eq!(env.sandboxes("reset").await.len(), 1);
}

async fn a_deadline_ends_the_pod(env: &mut TestEnv) {
    eventually("the deadline", Duration::from_secs(30), async || {
        let status = env.pod("short").await["status"].clone();
        let found = status["phase"] == "Failed" && status["reason"] == "DeadlineExceeded";
        found.then_some(()).ok_or_else(|| status.to_string())
    })
    .await;
    let status = env.pod("short").await["status"].clone();
    let text = "Pod was active on the node longer than the specified deadline";
    assert_eq!(status["message"], text);
    eventually("nothing runs", Duration::from_secs(20), async || {
        let running = env.running("short").await.len();
        (running == 0)
            .then_some(())
            .ok_or_else(|| running.to_string())
    })
    .await;
}
