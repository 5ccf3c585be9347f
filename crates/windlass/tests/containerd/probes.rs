//! Exec, HTTP and TCP probes of real containers: readiness and restarts, also after an agent kill.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::manifest::fill;
use crate::test_env::{SOON, TestEnv, eventually, scaled, skipped};

/// A pod with exec probes; the test sets their results in the directory DIR.
const COMMANDS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: commands}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 60
  containers:
  - name: main
    image: IMAGE
    # ends by SIGKILL only: how long that takes shows whose grace period it was
    command: [sh, -c, "rm -f /dir/dead; trap : TERM; while true; do sleep 1; done"]
    volumeMounts: [{name: dir, mountPath: /dir}]
    startupProbe: {exec: {command: [test, -e, /dir/started]}, periodSeconds: 1, failureThreshold: 1000}
    readinessProbe: {exec: {command: [sh, -c, "cat /dir/ready || exit 3"]}, periodSeconds: 1, failureThreshold: 1}
    livenessProbe: {exec: {command: [test, "!", -e, /dir/dead]}, periodSeconds: 1, failureThreshold: 2, terminationGracePeriodSeconds: 1}
  volumes: [{name: dir, hostPath: {path: "DIR"}}]
"#;

/// A web server in the pod network, probed by port name.
const WEB: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: IMAGE
    command: [sh, -c, "rm -f /dir/close; httpd -p 8080 -h /dir; until test -e /dir/close; do sleep 0.1; done; killall httpd; HOLD"]
    ports: [{name: http, containerPort: 8080}]
    volumeMounts: [{name: dir, mountPath: /dir}]
    readinessProbe: {httpGet: {path: /healthy, port: http}, periodSeconds: 1, failureThreshold: 1}
    livenessProbe: {tcpSocket: {port: http}, periodSeconds: 1, failureThreshold: 1, initialDelaySeconds: 2}
  volumes: [{name: dir, hostPath: {path: "DIR"}}]
"#;

fn touch(dir: &Path, file: &str) {
    std::fs::write(dir.join(file), "yes").unwrap();
}

fn remove(dir: &Path, file: &str) {
    std::fs::remove_file(dir.join(file)).unwrap();
}

/// Events of a pod with this reason, as `<count> <text>`.
async fn events(env: &TestEnv, pod: &str, reason: &str) -> Vec<(u32, String)> {
    let events = env.entry(pod).await.events.into_iter();
    let of_reason = events.filter(|event| event.reason == reason);
    of_reason
        .map(|event| (event.count, event.message))
        .collect()
}

async fn event(env: &TestEnv, pod: &str, reason: &str, words: &str) {
    eventually(&format!("an event {reason} {words:?}"), SOON, async || {
        let events = events(env, pod, reason).await;
        let found = events.iter().any(|(_, text)| text.contains(words));
        found.then_some(()).ok_or_else(|| format!("{events:?}"))
    })
    .await;
}

async fn unready(env: &mut TestEnv, name: &str) {
    env.wait(&format!("{name} is not ready"), |table| {
        table.pod(name).is_some_and(|pod| !pod.ready)
    })
    .await;
}

async fn restarted(env: &mut TestEnv, name: &str, times: u64) {
    env.wait(&format!("{name} was restarted {times} times"), |table| {
        let pod = table.pod(name);
        pod.is_some_and(|pod| pod.containers[0].restarts == times)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_probes_control_readiness_and_restarts() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::start("i-probes").await;
    let dir = env.containerd.base().join("probed");
    let web = env.containerd.base().join("web");
    for dir in [&dir, &web] {
        std::fs::create_dir_all(dir).unwrap();
    }
    let at = |text: &str, dir: &Path| fill(text).replace("DIR", dir.to_str().unwrap());
    env.apply("commands.yaml", &at(COMMANDS, &dir));
    env.apply("web.yaml", &at(WEB, &web));
    env.wait("both are listed", |table| {
        ["commands", "web"]
            .iter()
            .all(|name| table.pod(name).is_some())
    })
    .await;

    commands(&mut env, &dir).await;
    http_and_tcp(&mut env, &web).await;
    a_killed_agent_flips_nothing(&mut env, &dir).await;
    liveness(&mut env, &dir).await;
    env.stop().await;
}

async fn commands(env: &mut TestEnv, dir: &Path) {
    event(env, "commands", "Unhealthy", "Startup probe failed").await;
    let started = |pod: &Value| pod["status"]["containerStatuses"][0]["started"].clone();
    assert_eq!(started(&env.pod("commands").await), Value::Bool(false));
    touch(dir, "started");
    // readiness probes start now; the event has the output of the command
    let complaint = "Readiness probe failed: cat: can't open '/dir/ready'";
    event(env, "commands", "Unhealthy", complaint).await;
    assert_eq!(started(&env.pod("commands").await), Value::Bool(true));
    touch(dir, "ready");
    env.ready("commands").await;
    remove(dir, "ready");
    unready(env, "commands").await;
    touch(dir, "ready");
    env.ready("commands").await;
}

async fn http_and_tcp(env: &mut TestEnv, dir: &Path) {
    let complaint = "Readiness probe failed: HTTP probe failed with statuscode: 404";
    event(env, "web", "Unhealthy", complaint).await;
    touch(dir, "healthy");
    env.ready("web").await;
    remove(dir, "healthy");
    unready(env, "web").await;
    touch(dir, "healthy");
    env.ready("web").await;
    // a closed port fails the liveness probe
    touch(dir, "close");
    restarted(env, "web", 1).await;
    event(env, "web", "Unhealthy", "Liveness probe failed: dial tcp").await;
    event(env, "web", "Unhealthy", "connection refused").await;
    let words = "Container main failed liveness probe, will be restarted";
    event(env, "web", "Killing", words).await;
    env.ready("web").await;
}

async fn a_killed_agent_flips_nothing(env: &mut TestEnv, dir: &Path) {
    // a repeated startup probe would fail
    remove(dir, "started");
    for _ in 0..3 {
        env.kill_and_respawn().await;
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            let table = env.watch.now();
            for name in ["commands", "web"] {
                // before its first inspection an agent reports no containers
                let shown = table.pod(name).filter(|pod| !pod.containers.is_empty());
                assert!(shown.is_none_or(|pod| pod.ready), "{name}: {shown:?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        env.ready("commands").await;
        env.ready("web").await;
    }
    touch(dir, "started");
}

async fn liveness(env: &mut TestEnv, dir: &Path) {
    let first = env.ready("commands").await.containers;
    let begin = Instant::now();
    touch(dir, "dead");
    restarted(env, "commands", 1).await;
    // two attempts and the probe grace period of one second, not the pod's minute
    let took = begin.elapsed();
    assert!(took < scaled(Duration::from_secs(15)), "{took:?}");
    assert_eq!(env.running("commands").await.len(), 1);
    let second = env.ready("commands").await.containers;
    assert_ne!(first[0].id, second[0].id);
}
