//! `windlassctl` with an agent started as `kubelet`.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use windlass_testing::containerd::PrivateContainerd;

use crate::manifest::{shell, shell_with};
use crate::test_env::{TestEnv, binary, eventually, scaled, skipped};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_windlassctl_shows_pods() {
    if skipped() {
        return;
    }
    let containerd = PrivateContainerd::start("i-control", |_| {}).await.unwrap();
    let kubelet = containerd.base().join("kubelet");
    std::os::unix::fs::symlink(binary(), &kubelet).unwrap();
    let mut env = TestEnv::on(containerd, &kubelet);
    env.apply("steady.yaml", &shell("steady", "seq 1 100; HOLD"));
    env.apply("crash.yaml", &shell("crash", "echo attempt; exit 9"));
    let wide = "head -c 50000 /dev/zero | tr '\\0' x; echo; HOLD";
    let wide = shell_with("wide", "  os: {name: linux}", wide);
    let unsupported = "{name: main, lifecycle: {stopSignal: SIGINT},";
    env.apply("wide.yaml", &wide.replace("{name: main,", unsupported));
    env.ready("wide").await;
    let talks = "echo first; while ! test -e /tmp/go; do sleep 0.1; done; echo last";
    env.apply(
        "talks.yaml",
        &shell_with("talks", "  restartPolicy: Never", talks),
    );
    env.ready("steady").await;
    env.ready("talks").await;
    env.status("crash", "CrashLoopBackOff").await;

    tables(&env).await;
    pages(&env).await;
    logs(&mut env).await;
    watch(&mut env).await;

    let version = tokio::process::Command::new(&kubelet)
        .arg("--version")
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&version.stdout);
    assert!(text.starts_with("Kubernetes v1."), "{text}");
    env.agent.kill().unwrap();
    let output = env.ctl(&["get", "pods"]).await;
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    assert!(error.contains("windlass.sock"), "{error}");
    env.agent.spawn().unwrap();
    env.stop().await;
}

async fn tables(env: &TestEnv) {
    let table = env.ctl_output(&["get", "pods"]).await;
    let mut lines = table
        .lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>());
    let head = lines.next().unwrap();
    assert_eq!(head[..5], ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    let rows: Vec<Vec<&str>> = lines.collect();
    let row = |name: &str| rows.iter().find(|row| row[0] == name).unwrap();
    assert_eq!(row("steady-node")[1..4], ["1/1", "Running", "0"]);
    assert_eq!(row("crash-node")[1..4], ["0/1", "CrashLoopBackOff", "1"]);

    let json = env.ctl_output(&["get", "pods", "-o", "json"]).await;
    let list: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(list["kind"], "List");
    assert_eq!(list["items"].as_array().unwrap().len(), 4);
    let json = env
        .ctl_output(&["get", "pod", "steady-node", "-o", "json"])
        .await;
    let pod: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(pod["kind"], "Pod");
    assert_eq!(pod["status"]["phase"], "Running");
    let yaml = env
        .ctl_output(&["get", "pod", "steady-node", "-o", "yaml"])
        .await;
    assert!(yaml.contains("phase: Running"), "{yaml}");
    let names = env.ctl_output(&["get", "pods", "-o", "name"]).await;
    assert!(
        names.lines().any(|line| line == "pod/steady-node"),
        "{names}"
    );
    let wide = env.ctl_output(&["get", "pods", "-o", "wide"]).await;
    assert!(
        wide.contains(&env.containerd.network().gateway().to_string()),
        "{wide}"
    );
    let none = env.ctl(&["get", "pod", "no-such-pod"]).await;
    assert!(!none.status.success());
}

async fn pages(env: &TestEnv) {
    let page = env.ctl_output(&["describe", "pod", "crash-node"]).await;
    for word in [
        "crash-node",
        "CrashLoopBackOff",
        "Exit Code",
        "BackOff",
        "windlass.local/busybox:1",
    ] {
        assert!(page.contains(word), "{word} in {page}");
    }
    let page = env.ctl_output(&["describe", "pod", "wide-node"]).await;
    let warning = "container main: lifecycle.stopSignal: the image's signal is used";
    assert!(page.contains(warning), "{page}");
    let why = env.ctl_output(&["explain", "pod", "crash-node"]).await;
    assert!(why.contains("container main: CrashLoopBackOff"), "{why}");
    assert!(why.contains("next retry:  in "), "{why}");
    let why = env.ctl_output(&["explain", "pod", "steady-node"]).await;
    assert!(why.contains("no blocker (Running)"), "{why}");
    let json = env
        .ctl_output(&["explain", "pod", "crash-node", "-o", "json"])
        .await;
    let why: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(why["blocker"]["reason"], "CrashLoopBackOff");
}

async fn logs(env: &mut TestEnv) {
    let all = env.ctl_output(&["logs", "steady-node"]).await;
    assert_eq!(all.lines().count(), 100);
    let tail = env
        .ctl_output(&["logs", "steady-node", "--tail", "2"])
        .await;
    assert_eq!(tail, "99\n100\n");
    let stamped = env
        .ctl_output(&["logs", "steady-node", "--tail", "1", "--timestamps"])
        .await;
    assert!(
        stamped.starts_with("20") && stamped.ends_with("Z 100\n"),
        "{stamped}"
    );
    let previous = env.ctl_output(&["logs", "crash-node", "-p"]).await;
    assert_eq!(previous, "attempt\n");

    // a line split by the runtime is joined
    let wide = env.ctl_output(&["logs", "wide-node"]).await;
    assert_eq!(wide.len(), 50_001, "{} lines", wide.lines().count());
    let none = env.ctl(&["logs", "steady-node", "--previous"]).await;
    assert!(!none.status.success(), "there is no previous instance");

    // -f prints new lines and ends with the container
    let mut command = env.ctl_command(&["logs", "-f", "talks-node"]);
    let mut follow = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let deadline = scaled(Duration::from_secs(20));
    let next = tokio::time::timeout(deadline, lines.next_line()).await;
    assert_eq!(next.unwrap().unwrap().as_deref(), Some("first"));
    env.exec("talks", "main", "touch /tmp/go").await;
    let next = tokio::time::timeout(deadline, lines.next_line()).await;
    assert_eq!(next.unwrap().unwrap().as_deref(), Some("last"));
    let end = tokio::time::timeout(deadline, follow.wait()).await;
    assert!(end.expect("-f ends with the container").unwrap().success());
    env.status("talks", "Completed").await;
    let talks = env.ctl_output(&["logs", "talks-node"]).await;
    assert_eq!(
        talks, "first\nlast\n",
        "the log of a container that has ended"
    );
}

async fn watch(env: &mut TestEnv) {
    let mut command = env.ctl_command(&["get", "pods", "--watch", "-o", "name"]);
    let mut follow = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    env.apply("new.yaml", &shell("new", "HOLD"));
    eventually(
        "the watch shows the new pod",
        Duration::from_secs(20),
        async || {
            let next =
                tokio::time::timeout(scaled(Duration::from_secs(20)), lines.next_line()).await;
            let line = next.unwrap().unwrap().unwrap_or_default();
            (line == "pod/new-node").then_some(()).ok_or(line)
        },
    )
    .await;
    follow.kill().await.unwrap();
}
