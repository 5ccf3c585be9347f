//! Containers removed externally are restarted; removed pods leave nothing behind.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::manifest::{fill, shell, shell_with};
use crate::test_env::{SOON, TestEnv, bare, eventually, signal, skipped};

/// The agent collects garbage once a minute.
const GARBAGE: Duration = Duration::from_secs(100);

const VOLUMES: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: leaver}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - {name: main, image: IMAGE, command: [sh, -c, "echo x > /m/x; HOLD"], volumeMounts: [{name: m, mountPath: /m}, {name: d, mountPath: /d}]}
  volumes: [{name: m, emptyDir: {medium: Memory}}, {name: d, emptyDir: {}}]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_removed_pods_leave_nothing_behind() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::start("i-removal").await;
    env.apply("victim.yaml", &shell("victim", "HOLD"));
    env.apply(
        "job.yaml",
        &shell_with("job", "  restartPolicy: OnFailure", "exit 0"),
    );
    env.apply("leaver.yaml", &fill(VOLUMES));
    env.apply("orphan.yaml", &shell("orphan", "HOLD"));
    let orphan = env.ready("orphan").await;
    env.ready("leaver").await;

    killed_containers_come_back(&mut env).await;
    a_sandbox_that_dies_is_replaced(&mut env).await;

    // ---- removed while the agent runs, and while it does not
    let leaver = uid(&env, "leaver").await;
    let orphan_uid = uid(&env, "orphan").await;
    env.remove("leaver.yaml");
    env.gone("leaver").await;
    env.agent.kill().unwrap();
    env.remove("orphan.yaml");
    env.agent.spawn().unwrap();
    let id = bare(&orphan.containers[0].id).to_owned();
    eventually(
        "the orphan is stopped",
        Duration::from_secs(30),
        async || {
            let running = env.running("orphan").await;
            let ready = env.ready_sandboxes("orphan").await;
            (running.is_empty() && ready.is_empty())
                .then_some(())
                .ok_or_else(|| format!("{} running, {} sandboxes", running.len(), ready.len()))
        },
    )
    .await;

    for (name, uid) in [("leaver", leaver), ("orphan", orphan_uid)] {
        everything_is_collected(&env, name, &uid).await;
    }
    let prefix = format!("orphan-node_default_main-{id}");
    assert!(
        !Path::new("/var/log/containers")
            .join(format!("{prefix}.log"))
            .exists()
    );

    // of three dead instances of a running pod one is kept, with its log
    let dead = eventually("one dead instance is kept", GARBAGE, async || {
        let all = env.containers("victim").await;
        (all.len() == 2)
            .then(|| all[1].clone())
            .ok_or_else(|| format!("{} instances", all.len()))
    })
    .await;
    assert_eq!(
        dead.metadata.as_ref().unwrap().attempt + 1,
        env.ready("victim").await.containers[0].restarts as u32
    );
    let (status, _) = env.container_status(&dead.id).await;
    assert!(Path::new(&status.log_path).exists(), "{}", status.log_path);
    // a finished pod keeps its container, for status and log
    let job = env.pod("job").await;
    assert_eq!(job["status"]["phase"], "Succeeded");
    assert_eq!(env.containers("job").await.len(), 1);
    env.ctl_output(&["logs", "job-node"]).await;
    env.stop().await;
}

async fn uid(env: &TestEnv, name: &str) -> String {
    let pod = env.pod(name).await;
    pod["metadata"]["uid"].as_str().unwrap().to_owned()
}

async fn killed_containers_come_back(env: &mut TestEnv) {
    let first = env.ready("victim").await.containers[0].clone();
    let (status, pid) = env.container_status(bare(&first.id)).await;
    assert!(
        status.log_path.ends_with("/main/0.log"),
        "{}",
        status.log_path
    );
    signal(pid, Signal::KILL);
    let second = env
        .wait("the killed container is restarted", |table| {
            let pod = table.pod("victim");
            pod.is_some_and(|pod| pod.ready && pod.restarts() == 1)
        })
        .await;
    let second = second.pod("victim").unwrap().containers[0].clone();
    assert_ne!(first.id, second.id);
    let pod = env.pod("victim").await;
    let last = &pod["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(last["exitCode"], 137, "{pod}");
    assert_eq!(last["containerID"], first.id);
    let (status, pid) = env.container_status(bare(&second.id)).await;
    assert!(
        status.log_path.ends_with("/main/1.log"),
        "{}",
        status.log_path
    );
    assert_eq!(env.sandboxes("victim").await.len(), 1, "the sandbox stays");
    // the second exit in a row has a back-off
    signal(pid, Signal::KILL);
    env.status("victim", "CrashLoopBackOff").await;
}

async fn a_sandbox_that_dies_is_replaced(env: &mut TestEnv) {
    let before = env.ready_sandboxes("leaver").await.remove(0);
    let tasks = env.containerd.ctr(&["tasks", "list"]).await.unwrap();
    let line = tasks.lines().find(|line| line.starts_with(&before.id));
    let pid = line.unwrap().split_whitespace().nth(1).unwrap();
    signal(pid.parse().unwrap(), Signal::KILL);
    eventually("a new sandbox", Duration::from_secs(30), async || {
        let ready = env.ready_sandboxes("leaver").await;
        let new = ready.len() == 1 && ready[0].id != before.id;
        let attempt = ready.first().map(|s| s.metadata.as_ref().unwrap().attempt);
        (new && attempt == Some(1))
            .then_some(())
            .ok_or_else(|| format!("{ready:?}"))
    })
    .await;
    // until its status is read again, the pod is reported as ready
    eventually("one container runs in it", SOON, async || {
        let running = env.running("leaver").await.len();
        (running == 1)
            .then_some(())
            .ok_or_else(|| running.to_string())
    })
    .await;
}

/// Orphaned pods are removed by housekeeping, before the next garbage collection.
async fn everything_is_collected(env: &TestEnv, name: &str, uid: &str) {
    let pod_dir = env.agent.root_dir().join("pods").join(uid);
    let logs = env.containerd.base().join("logs");
    eventually(
        &format!("everything of {name} is collected"),
        SOON,
        async || {
            let containers = env.containers(name).await.len();
            let sandboxes = env.sandboxes(name).await.len();
            let logs = std::fs::read_dir(&logs).unwrap().flatten();
            let logs = logs.filter(|e| e.file_name().to_string_lossy().ends_with(uid));
            let left = (containers, sandboxes, logs.count(), pod_dir.exists());
            (left == (0, 0, 0, false)).then_some(()).ok_or_else(|| {
                format!("(containers, sandboxes, log directories, pod directory) {left:?}")
            })
        },
    )
    .await;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(uid), "a mount of {name} is left");
}
