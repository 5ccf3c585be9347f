//! Restart policies, and the status of a pod that cannot start.

use std::time::Duration;

use serde_json::Value;

use crate::manifest::{fill, shell, shell_with};
use crate::test_env::{SOON, TestEnv, eventually, scaled, skipped};

const ORDERED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: ordered}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
    - {name: one, image: IMAGE, command: [sh, -c, "sleep 0.3; echo one >> /v/t"], volumeMounts: [{name: v, mountPath: /v}]}
    # fails the first time: it is tried again before anything else starts
    - {name: two, image: IMAGE, command: [sh, -c, "echo two >> /v/t; test -e /v/again || { touch /v/again; exit 1; }"], volumeMounts: [{name: v, mountPath: /v}]}
    - {name: sidecar, image: IMAGE, restartPolicy: Always, command: [sh, -c, "echo sidecar >> /v/t; HOLD"], volumeMounts: [{name: v, mountPath: /v}]}
  containers:
    - {name: main, image: IMAGE, command: [sh, -c, "echo main >> /v/t; HOLD"], volumeMounts: [{name: v, mountPath: /v}]}
  volumes: [{name: v, emptyDir: {}}]
"#;

/// Exceeds its memory limit. The shell survives the OOM kill: with the last
/// process of a cgroup containerd 1.6 may lose the OOM reason.
const HOG: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: hog}
spec:
  hostNetwork: true
  restartPolicy: Never
  containers: [{name: main, image: IMAGE, command: [sh, -c, "tail /dev/zero; code=$?; sleep 2; exit $code"], resources: {limits: {memory: 16Mi}}}]
"#;

const BROKEN: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  hostNetwork: true
  containers: [{name: main, FIELDS}]
"#;

fn broken(name: &str, fields: &str) -> String {
    fill(&BROKEN.replace("NAME", name).replace("FIELDS", fields))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_restart_policy_is_applied() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::start("i-restarts").await;
    env.apply("calm.yaml", &shell("calm", "HOLD"));
    let calm = env.ready("calm").await.containers;

    env.apply("ordered.yaml", &fill(ORDERED));
    let policy = |policy: &str| format!("  restartPolicy: {policy}");
    env.apply(
        "never.yaml",
        &shell_with("never", &policy("Never"), "exit 5"),
    );
    env.apply(
        "done.yaml",
        &shell_with("done", &policy("OnFailure"), "exit 0"),
    );
    env.apply(
        "retry.yaml",
        &shell_with("retry", &policy("OnFailure"), "exit 6"),
    );

    env.apply("hog.yaml", &fill(HOG));

    policies(&mut env).await;
    out_of_memory(&mut env).await;
    // kills the agent: no pod may be starting
    back_off_survives_the_agent(&mut env).await;
    init_containers_in_order(&mut env).await;
    what_cannot_start_says_why(&mut env).await;
    assert_eq!(env.ready("calm").await.containers, calm, "the bystander");
    env.stop().await;
}

async fn back_off_survives_the_agent(env: &mut TestEnv) {
    env.ready("ordered").await;
    env.apply("loop.yaml", &shell("loop", "echo crash; exit 7"));
    // crash, restart at once, crash, then a back-off of 10 s
    env.wait("loop waits after its first restart", |table| {
        table.pod("loop").is_some_and(|pod| {
            // the pod is listed before its containers
            let main = pod.containers.first();
            main.is_some_and(|main| main.restarts == 1 && main.reason == "CrashLoopBackOff")
        })
    })
    .await;
    let entry = env.entry("loop").await;
    let blocker = entry.blocker.expect("a blocker");
    assert_eq!(blocker.reason, "CrashLoopBackOff");
    let promised = blocker.next_retry.expect("when").seconds;
    let newest = env.containers("loop").await.remove(0);
    let (status, _) = env.container_status(&newest.id).await;
    assert_eq!(status.exit_code, 7);

    env.kill_and_respawn().await;
    let again = env.status("loop", "CrashLoopBackOff").await;
    assert_eq!(
        again.containers[0].restarts, 1,
        "not restarted by the agent's own restart"
    );
    let promise = env.entry("loop").await.blocker.and_then(|b| b.next_retry);
    assert_eq!(promise.expect("when").seconds, promised, "the promise");

    env.wait("loop is restarted once more", |table| {
        table.pod("loop").is_some_and(|pod| pod.restarts() == 2)
    })
    .await;
    let containers = env.containers("loop").await;
    let waited = containers[0].created_at - status.finished_at;
    let waited = Duration::from_nanos(waited.max(0) as u64);
    assert!(waited >= Duration::from_secs(10), "waited only {waited:?}");
    let limit = Duration::from_secs(10) + scaled(Duration::from_secs(10));
    assert!(waited < limit, "waited {waited:?}");
}

async fn out_of_memory(env: &mut TestEnv) {
    env.status("hog", "OOMKilled").await;
    let pod = env.pod("hog").await;
    let end = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(end["exitCode"], 137, "{pod}");
}

async fn policies(env: &mut TestEnv) {
    env.wait("each policy was applied", |table| {
        let phase = |name: &str| table.pod(name).map_or("", |pod| &pod.phase);
        let retried = table.pod("retry").is_some_and(|pod| pod.restarts() >= 1);
        phase("never") == "Failed" && phase("done") == "Succeeded" && retried
    })
    .await;
    for (name, reason, code) in [("never", "Error", 5), ("done", "Completed", 0)] {
        let pod = env.pod(name).await;
        let status = &pod["status"]["containerStatuses"][0];
        assert_eq!(status["restartCount"], 0, "{name}");
        assert_eq!(status["state"]["terminated"]["reason"], reason, "{name}");
        assert_eq!(status["state"]["terminated"]["exitCode"], code, "{name}");
        // the terminal phase is reported before the sandbox is stopped
        eventually("its sandbox is stopped", SOON, async || {
            let left = env.ready_sandboxes(name).await;
            left.is_empty().then_some(()).ok_or_else(|| name.to_owned())
        })
        .await;
    }
    let retry = env.pod("retry").await;
    let last = &retry["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(last["exitCode"], 6, "{retry}");
}

async fn init_containers_in_order(env: &mut TestEnv) {
    env.ready("ordered").await;
    let text = env.exec("ordered", "main", "cat /v/t").await;
    assert_eq!(text, "one\ntwo\ntwo\nsidecar\nmain\n");
    let pod = env.pod("ordered").await;
    let init = pod["status"]["initContainerStatuses"].as_array().unwrap();
    let counts: Vec<&Value> = init.iter().map(|status| &status["restartCount"]).collect();
    assert_eq!(counts, [0, 1, 0], "restarts of the init containers");
    // the next instance of a container writes its own log
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let logs = env.containerd.base().join("logs");
    let log = logs.join(format!("default_ordered-node_{uid}/two/1.log"));
    assert!(log.exists(), "{}", log.display());
}

async fn what_cannot_start_says_why(env: &mut TestEnv) {
    env.apply(
        "never-pull.yaml",
        &broken(
            "never-pull",
            "image: no.such/image:1, imagePullPolicy: Never",
        ),
    );
    env.apply(
        "no-registry.yaml",
        &broken("no-registry", r#"image: "127.0.0.1:1/x:1""#),
    );
    env.apply(
        "bad-name.yaml",
        &broken("bad-name", r#"image: "UPPER/Case::""#),
    );
    env.apply(
        "no-command.yaml",
        &broken("no-command", "image: IMAGE, command: [/no/such/program]"),
    );
    env.apply(
        "bad-dir.yaml",
        &broken(
            "bad-dir",
            "image: IMAGE, workingDir: /etc/passwd, command: [sh]",
        ),
    );
    env.apply(
        "not-root.yaml",
        &broken(
            "not-root",
            "image: IMAGE, securityContext: {runAsNonRoot: true}",
        ),
    );

    let message = async |env: &TestEnv, name: &str| {
        let pod = env.pod(name).await;
        let state = &pod["status"]["containerStatuses"][0]["state"];
        let detail = state["waiting"]
            .as_object()
            .or(state["terminated"].as_object());
        detail.unwrap()["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    env.status("never-pull", "ErrImageNeverPull").await;
    let text = message(env, "never-pull").await;
    assert!(text.contains("no.such/image:1"), "{text}");
    env.status("no-registry", "ImagePullBackOff").await;
    let entry = env.entry("no-registry").await;
    assert!(
        entry
            .events
            .iter()
            .any(|e| e.message.contains("ErrImagePull")),
        "{:?}",
        entry.events
    );
    let blocker = entry.blocker.unwrap();
    assert!(blocker.message.contains("127.0.0.1:1/x:1"), "{blocker:?}");
    assert!(blocker.next_retry.is_some(), "{blocker:?}");
    env.status("bad-name", "InvalidImageName").await;
    env.status("not-root", "CreateContainerConfigError").await;
    let text = message(env, "not-root").await;
    assert!(text.contains("runAsNonRoot"), "{text}");

    for name in ["no-command", "bad-dir"] {
        let stuck = |pod: &windlass_testing::pod_watch::PodView| {
            let reasons = [
                "RunContainerError",
                "CreateContainerError",
                "CrashLoopBackOff",
            ];
            reasons.contains(&pod.status())
        };
        env.wait(&format!("{name} reports that it cannot start"), |table| {
            table.pod(name).is_some_and(stuck)
        })
        .await;
    }
    let entry = env.entry("no-command").await;
    assert!(
        entry
            .events
            .iter()
            .any(|e| e.message.contains("/no/such/program")),
        "{:?}",
        entry.events
    );
}
