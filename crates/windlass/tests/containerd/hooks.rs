//! Lifecycle hooks: order and distance of the lines that containers write.
//!
//! Times are lower bounds only. Stop signals are in `runtime_features`.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

use crate::manifest::fill;
use crate::test_env::{SOON, TestEnv, bare, eventually, scaled, signal, skipped};

/// `SAY word` appends the time and the word to the pod's lines.
const SAY: &str = "say() { echo $(cut -d' ' -f1 /proc/uptime) $1 >> /lines/NAME; };";

/// Writes a line on SIGTERM and exits.
const ENDS: &str = "SAY trap 'say WORD; exit 0' TERM; while true; do sleep 1000 & wait $!; done";

/// Hooks of two containers and a sidecar; each writes a line.
const ORDERED: &str = r#"
  terminationGracePeriodSeconds: 20
  initContainers:
    - name: sidecar
      restartPolicy: Always
      image: IMAGE
      command: [sh, -c, "ENDS(sidecar-ends)"]
      volumeMounts: [{name: lines, mountPath: /lines}]
      lifecycle:
        postStart: {exec: {command: [sh, -c, "SAY sleep 1; say sidecar-started"]}}
        preStop: {exec: {command: [sh, -c, "SAY say sidecar-prestop"]}}
  containers:
    - name: main
      image: IMAGE
      command: [sh, -c, "ENDS(main-ends)"]
      volumeMounts: [{name: lines, mountPath: /lines}]
      lifecycle:
        postStart: {exec: {command: [sh, -c, "SAY sleep 1; say main-started"]}}
        preStop: {exec: {command: [sh, -c, "SAY sleep 1; say main-prestop"]}}
    - name: last
      image: IMAGE
      command: [sh, -c, "SAY say last-runs; ENDS(last-ends)"]
      volumeMounts: [{name: lines, mountPath: /lines}]
"#;

/// A server in the container that logs its requests.
const ASKED: &str = r#"
  terminationGracePeriodSeconds: 20
  containers:
    - name: main
      image: IMAGE
      command:
        - sh
        - -c
        - |
          mkdir -p /www/cgi-bin
          echo '#!/bin/sh' > /www/cgi-bin/bye
          echo 'echo "0 $HTTP_USER_AGENT $QUERY_STRING" >> /lines/NAME; echo; echo bye' >> /www/cgi-bin/bye
          chmod +x /www/cgi-bin/bye
          httpd -p 8080 -h /www
          ENDS(main-ends)
      volumeMounts: [{name: lines, mountPath: /lines}]
      ports: [{name: web, containerPort: 8080}]
      lifecycle:
        postStart: {exec: {command: [sh, -c, "until wget -q -O /dev/null http://127.0.0.1:8080/cgi-bin/bye?from=inside; do sleep 0.1; done"]}}
        preStop: {httpGet: {path: "/cgi-bin/bye?from=agent", port: web}}
"#;

const STUBBORN: &str = r#"
  hostNetwork: true
  terminationGracePeriodSeconds: 3
  containers:
    - name: main
      image: IMAGE
      command: [sh, -c, "ENDS(main-ends)"]
      volumeMounts: [{name: lines, mountPath: /lines}]
      lifecycle:
        preStop: {exec: {command: [sh, -c, "SAY say hook-begins; sleep 1000; say hook-ends"]}}
"#;

const SLEEPER: &str = r#"
  hostNetwork: true
  terminationGracePeriodSeconds: 300
  containers:
    - name: main
      image: IMAGE
      command: [sh, -c, "SAY say main-runs; ENDS(main-ends)"]
      volumeMounts: [{name: lines, mountPath: /lines}]
      lifecycle: {preStop: {sleep: {seconds: SECONDS}}}
"#;

const FAILING: &str = r#"
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: IMAGE
      command: [sh, -c, "ENDS(main-ends)"]
      volumeMounts: [{name: lines, mountPath: /lines}]
      lifecycle:
        postStart: {exec: {command: [sh, -c, "echo on its way; echo no such luck >&2; exit 7"]}}
"#;

/// A pod whose containers write to `lines`/NAME.
fn pod(name: &str, spec: &str, lines: &Path) -> String {
    let mut text = spec.to_owned();
    for word in ["sidecar-ends", "main-ends", "last-ends"] {
        text = text.replace(&format!("ENDS({word})"), &ENDS.replace("WORD", word));
    }
    let text = fill(&text.replace("SAY", SAY)).replace("NAME", name);
    let lines = lines.display();
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:{text}  volumes: [{{name: lines, hostPath: {{path: {lines}}}}}]\n"
    )
}

/// Lines of a pod's containers: seconds and words.
fn lines(dir: &Path, name: &str) -> Vec<(f64, String)> {
    let text = std::fs::read_to_string(dir.join(name)).unwrap_or_default();
    let split = |line: &str| {
        let (time, word) = line.split_once(' ').unwrap();
        (time.parse().unwrap(), word.to_owned())
    };
    text.lines().map(split).collect()
}

fn words(dir: &Path, name: &str) -> Vec<String> {
    lines(dir, name).into_iter().map(|(_, word)| word).collect()
}

/// Time of the line `word`, which must occur once.
fn time_of(dir: &Path, name: &str, word: &str) -> f64 {
    let all = lines(dir, name);
    let said: Vec<f64> = all.iter().filter(|(_, w)| w == word).map(|l| l.0).collect();
    assert_eq!(said.len(), 1, "{word} of {name} in {all:?}");
    said[0]
}

fn in_order(dir: &Path, name: &str, expected: &[&str]) {
    let words = words(dir, name);
    let places: Vec<_> = expected
        .iter()
        .map(|word| words.iter().position(|w| w == word))
        .collect();
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{expected:?} in {words:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_hooks_follow_pod_spec() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::start("i-hooks").await;
    let dir = env.containerd.base().join("lines");
    std::fs::create_dir_all(&dir).unwrap();
    let apply = |env: &TestEnv, name: &str, spec: &str| {
        env.apply(&format!("{name}.yaml"), &pod(name, spec, &dir));
    };
    for (name, spec) in [
        ("ordered", ORDERED),
        ("asked", ASKED),
        ("stubborn", STUBBORN),
        ("sleeper", &SLEEPER.replace("SECONDS", "2")),
        ("cut-short", &SLEEPER.replace("SECONDS", "280")),
        ("failing", FAILING),
    ] {
        apply(&env, name, spec);
    }
    for name in ["ordered", "asked", "stubborn", "sleeper", "cut-short"] {
        env.ready(name).await;
    }
    wait_for_line(&dir, "ordered", "last-runs").await;
    in_order(
        &dir,
        "ordered",
        &["sidecar-started", "main-started", "last-runs"],
    );
    a_failing_post_start_hook_says_so(&mut env).await;

    let cut_short = env.ready("cut-short").await.containers[0].id.clone();
    let (_, cut_short) = env.container_status(bare(&cut_short)).await;
    for name in ["ordered", "asked", "stubborn", "sleeper", "cut-short"] {
        env.remove(&format!("{name}.yaml"));
    }
    for name in ["ordered", "asked", "stubborn", "sleeper"] {
        env.gone(name).await;
    }

    in_order(
        &dir,
        "ordered",
        &[
            "sidecar-prestop",
            "main-prestop",
            "main-ends",
            "sidecar-ends",
        ],
    );
    in_order(&dir, "ordered", &["last-ends", "sidecar-ends"]);
    assert_eq!(words(&dir, "ordered").last().unwrap(), "sidecar-ends");
    in_order(
        &dir,
        "asked",
        &[
            "Wget from=inside",
            "kube-lifecycle/1.36 from=agent",
            "main-ends",
        ],
    );
    let waited = time_of(&dir, "stubborn", "main-ends") - time_of(&dir, "stubborn", "hook-begins");
    // its process begins later than the grace period, on a busy host by tenths of a second
    assert!(waited >= 2.0, "the hook had {waited} s of three");
    assert!(!words(&dir, "stubborn").contains(&"hook-ends".to_owned()));
    assert_eq!(words(&dir, "sleeper"), ["main-runs", "main-ends"]);

    // the sleep would take minutes, but its container stops
    assert_eq!(words(&dir, "cut-short"), ["main-runs"]);
    let killed = Instant::now();
    signal(cut_short, Signal::KILL);
    env.gone("cut-short").await;
    assert!(killed.elapsed() < scaled(Duration::from_secs(60)));
    env.stop().await;
}

async fn wait_for_line(dir: &Path, name: &str, word: &str) {
    eventually(&format!("{name} reports {word}"), SOON, async || {
        let words = words(dir, name);
        let found = words.iter().any(|w| w == word).then_some(());
        found.ok_or_else(|| format!("{words:?}"))
    })
    .await;
}

/// The container runs and its hook fails; it is killed and restarted with back-off.
async fn a_failing_post_start_hook_says_so(env: &mut TestEnv) {
    env.status("failing", "CrashLoopBackOff").await;
    let pod = env.pod("failing").await;
    let status = &pod["status"]["containerStatuses"][0];
    assert_eq!(status["ready"], false);
    assert!(status["restartCount"].as_i64().unwrap() >= 1);
    assert!(status["lastState"]["terminated"]["containerID"].is_string());
    let told = env.ctl_output(&["describe", "pod", "failing-node"]).await;
    for text in ["FailedPostStartHook", "PostStartHook failed"] {
        assert!(told.contains(text), "{text} in {told}");
    }
    env.logged(&["PostStartHookError", "no such luck"]).await;
    env.remove("failing.yaml");
    env.gone("failing").await;
}
