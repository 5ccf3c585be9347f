//! Containers keep running while the agent or the runtime is down.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use windlass_proto::cri_v1::ContainerState;
use windlass_testing::containerd::PrivateContainerd;
use windlass_testing::pod_watch::PodTable;

use crate::manifest::shell;
use crate::test_env::{SOON, TestEnv, bare, binary, eventually, signal, skipped};

const PODS: usize = 20;
const KILLS: usize = 10;

/// Container ID and restart count of each pod.
fn instances(table: &PodTable) -> BTreeMap<String, (String, u64)> {
    let of = |pod: &windlass_testing::pod_watch::PodView| {
        let main = &pod.containers[0];
        (pod.name.clone(), (main.id.clone(), main.restarts))
    };
    table.pods.values().map(of).collect()
}

fn all_ready(table: &PodTable, count: usize) -> bool {
    table.connected && table.pods.len() == count && table.pods.values().all(|pod| pod.ready)
}

/// Number of containers of a pod whose start has lost its task.
async fn lost_tasks(env: &TestEnv, pod: &str) -> u64 {
    let mut lost = 0;
    for container in env.containers(pod).await {
        let (status, _) = env.container_status(&container.id).await;
        lost += u64::from(status.message.contains("failed to get task pid"));
    }
    lost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_ten_agent_kills_change_no_container() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::start("i-kills").await;
    for n in 0..PODS {
        let name = format!("p{n}");
        env.apply(&format!("{name}.yaml"), &shell(&name, "HOLD"));
    }
    // the first three kills are during pod starts
    for started in [1, 5, 12] {
        env.wait("some pods run", |table| {
            table.pods.values().filter(|pod| pod.ready).count() >= started
        })
        .await;
        env.agent.kill().unwrap();
        env.agent.spawn().unwrap();
    }
    let before = env
        .wait("all pods run", |table| all_ready(table, PODS))
        .await;
    let before = instances(&before);
    for n in 0..PODS {
        let pod = format!("p{n}");
        // containerd cuts a start off when its caller dies; which does not count as a restart,
        // unless it loses the task
        let lost = lost_tasks(&env, &pod).await;
        let restarts = before[&format!("{pod}-node")].1;
        assert_eq!(restarts, lost, "restarts of {pod}");
        let running = env.running(&pod).await;
        assert_eq!(running.len(), 1, "running containers of {pod}");
        assert_eq!(
            env.ready_sandboxes(&pod).await.len(),
            1,
            "sandboxes of {pod}"
        );
        let (id, _) = &before[&format!("{pod}-node")];
        assert_eq!(running[0].id, bare(id), "container of {pod}");
    }
    for kill in 0..KILLS {
        if kill % 3 == 0 {
            // at once, before the first relist
            env.agent.kill().unwrap();
            env.agent.spawn().unwrap();
        }
        env.kill_and_respawn().await;
        if kill % 2 == 0 {
            env.wait("all pods run", |table| all_ready(table, PODS))
                .await;
        }
    }
    // SIGTERM has the same result
    env.agent.terminate().await.unwrap();
    env.agent.spawn().unwrap();
    env.kill_and_respawn().await;
    let after = env
        .wait("all pods run", |table| all_ready(table, PODS))
        .await;
    assert_eq!(instances(&after), before);
    for n in 0..PODS {
        let pod = format!("p{n}");
        assert_eq!(
            env.running(&pod).await.len(),
            1,
            "running containers of {pod}"
        );
        assert_eq!(
            env.ready_sandboxes(&pod).await.len(),
            1,
            "sandboxes of {pod}"
        );
    }
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_runtime_outage_affects_no_pod() {
    if skipped() {
        return;
    }
    let mut containerd = PrivateContainerd::start("i-outage", |_| {}).await.unwrap();
    containerd.kill_daemon().unwrap();
    let mut env = TestEnv::on(containerd, binary());

    // ---- the agent starts first
    env.apply("early.yaml", &shell("early", "HOLD"));
    let seen = env
        .wait("early waits for the runtime", |table| {
            table.pod("early").is_some_and(|pod| pod.blocker.is_some())
        })
        .await;
    let blocker = seen.pod("early").unwrap().blocker.clone().unwrap();
    let text = format!("{} {}", blocker.reason, blocker.message).to_lowercase();
    assert!(text.contains("runtime"), "{blocker:?}");
    assert!(
        env.ctl_output(&["get", "pods"])
            .await
            .contains("early-node")
    );
    let (code, body) = env.http("/healthz").await.unwrap();
    assert_eq!(
        (code, &*body),
        (200, "ok"),
        "the loop turns, the listing is not old yet"
    );
    let metrics = env.agent.metrics(false).await.unwrap();
    assert!(metrics.contains("kubelet_running_pods"), "{metrics}");
    // the health port has no authentication, so it serves no metrics
    let (code, _) = env.http("/metrics").await.unwrap();
    assert_eq!(code, 404);
    env.containerd.start_daemon().await.unwrap();
    let early = env.ready("early").await.containers[0].clone();

    // ---- the runtime stops under running pods
    env.apply(
        "exits.yaml",
        &shell(
            "exits",
            "while ! test -e /proc/1/cwd/tmp/go; do sleep 0.1; done; exit 3",
        ),
    );
    env.apply("goes.yaml", &shell("goes", "HOLD"));
    env.ready("goes").await;
    let exits = env.ready("exits").await.containers[0].clone();
    let (_, pid) = env.container_status(bare(&exits.id)).await;
    env.containerd.kill_daemon().unwrap();
    env.apply("late.yaml", &shell("late", "HOLD"));
    env.wait("late waits for the runtime", |table| {
        table.pod("late").is_some_and(|pod| pod.blocker.is_some())
    })
    .await;
    // a container exits and a pod is removed during the outage
    env.remove("goes.yaml");
    std::fs::write(format!("/proc/{pid}/root/tmp/go"), "").unwrap();
    eventually(
        "the container has ended",
        Duration::from_secs(20),
        async || {
            let alive = std::path::Path::new(&format!("/proc/{pid}/root/tmp")).exists();
            (!alive).then_some(()).ok_or_else(|| "alive".to_owned())
        },
    )
    .await;
    let table = env.watch.now();
    assert!(
        table
            .pod("early")
            .is_some_and(|pod| pod.containers[0].id == early.id)
    );
    env.agent.check_alive().unwrap();
    // an agent killed meanwhile restarts without a runtime
    env.kill_and_respawn().await;
    env.containerd.start_daemon().await.unwrap();

    env.ready("late").await;
    let now = env.ready("early").await.containers[0].clone();
    assert_eq!(now, early, "no restart");
    env.wait("exits is restarted", |table| {
        table
            .pod("exits")
            .is_some_and(|pod| pod.restarts() == 1 && pod.ready)
    })
    .await;
    eventually("the pod removed meanwhile is stopped", SOON, async || {
        let running = env.running("goes").await.len();
        (running == 0)
            .then_some(())
            .ok_or_else(|| running.to_string())
    })
    .await;
    let (old, _) = env.container_status(bare(&exits.id)).await;
    assert_eq!(old.state, ContainerState::ContainerExited as i32);
    let (code, _) = env.http("/healthz").await.unwrap();
    assert_eq!(code, 200);
    env.stop().await;
}

/// Has the OCI runtime wait at the end of each `create` of a container while the file `hold`
/// exists; `held` has a file with its PID as its name.
const HELD_CREATE: &str = r#"#!/bin/sh
RUNTIME "$@"
code=$?
case " $* " in
*" create --bundle "*)
    arguments="$*"
    bundle=${arguments#*--bundle }
    bundle=${bundle%% *}
    if grep -q '"io.kubernetes.cri.container-type":"container"' "$bundle/config.json"; then
        : > BASE/held/$$
        while [ -e BASE/hold ]; do sleep 0.02; done
    fi ;;
esac
exit $code
"#;

/// Restarts containerd with [`HELD_CREATE`] as its OCI runtime.
async fn hold_creates(containerd: &mut PrivateContainerd) {
    let base = containerd.base().to_owned();
    let config = std::fs::read_to_string(base.join("containerd.toml")).unwrap();
    let runtime = config.split("BinaryName = \"").nth(1).unwrap();
    let runtime = runtime.split('"').next().unwrap();
    let wrapper = base.join("held-create");
    let script = HELD_CREATE.replace("RUNTIME", runtime);
    let script = script.replace("BASE", &base.to_string_lossy());
    std::fs::write(&wrapper, script).unwrap();
    std::fs::set_permissions(&wrapper, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::create_dir(base.join("held")).unwrap();
    let line = |name: &str| format!("BinaryName = \"{name}\"");
    let changed = config.replace(&line(runtime), &line(&wrapper.to_string_lossy()));
    assert_ne!(changed, config, "no OCI runtime in the configuration");
    std::fs::write(base.join("containerd.toml"), changed).unwrap();
    containerd.kill_daemon().unwrap();
    containerd.start_daemon().await.unwrap();
}

/// Waits until this number of creates is held.
async fn held(base: &Path, count: usize) {
    let what = format!("{count} creations are held");
    eventually(&what, SOON, async || {
        let list = std::fs::read_dir(base.join("held")).unwrap();
        let pid = |entry: std::io::Result<std::fs::DirEntry>| {
            let pid = entry.unwrap().file_name().into_string().unwrap();
            let runs = Path::new("/proc").join(&pid).exists();
            runs.then_some(pid)
        };
        let pids: Vec<String> = list.filter_map(pid).collect();
        let all = pids.len() == count;
        all.then_some(()).ok_or_else(|| pids.join(" "))
    })
    .await;
}

/// Processes of the runtime with this word in their command line.
fn processes(base: &Path, program: &str) -> Vec<i32> {
    let base = base.to_string_lossy();
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line);
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let found = line.contains(program) && line.contains(&*base);
        found.then_some(pid)
    };
    std::fs::read_dir("/proc").unwrap().filter_map(of).collect()
}

fn signal_all(processes: &[i32], sent: Signal) {
    for process in processes {
        signal(*process, sent);
    }
}

/// CPU time of the threads of a process; `None` if one of them runs or is about to.
fn cpu_times(process: i32) -> Option<Vec<String>> {
    let threads = format!("/proc/{process}/task");
    let of = |thread: std::io::Result<std::fs::DirEntry>| {
        let thread = thread.ok()?.path();
        let stat = std::fs::read_to_string(thread.join("stat")).ok()?;
        let sleeps = stat.rsplit(") ").next()?.starts_with('S');
        sleeps.then(|| std::fs::read_to_string(thread.join("schedstat")).ok())?
    };
    std::fs::read_dir(threads).unwrap().map(of).collect()
}

/// Waits until these processes have used no CPU between two polls: they have answered.
async fn idle(processes: &[i32]) {
    let mut before = None;
    eventually("no process works", SOON, async || {
        let now: Option<Vec<_>> = processes.iter().copied().map(cpu_times).collect();
        let same = now.is_some() && now == before;
        before = now;
        same.then_some(()).ok_or_else(|| "CPU time used".to_owned())
    })
    .await;
}

/// Opens the pipes of all containers: a stopped containerd does not, and the shims wait for it.
fn open_pipes(base: &Path) -> Vec<std::fs::File> {
    let folder = base.join("state/io.containerd.grpc.v1.cri/containers");
    let mut folders = vec![folder];
    let mut pipes = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_fifo() {
                let mut options = std::fs::OpenOptions::new();
                let without_waiting = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
                options.read(true).custom_flags(without_waiting);
                pipes.push(options.open(entry.path()).unwrap());
            }
        }
    }
    pipes
}

/// containerd loses a task whose caller goes away after its creation (issue 11037): the container has
/// exited, and cannot be removed until containerd restarts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_lost_tasks_block_no_pod() {
    const PODS: usize = 4;
    if skipped() {
        return;
    }
    let mut containerd = PrivateContainerd::start("i-lost", |_| {}).await.unwrap();
    if !containerd.base().join("containerd.toml").exists() {
        eprintln!("skipped: CRI-O ignores that the caller has gone away");
        return;
    }
    hold_creates(&mut containerd).await;
    let mut env = TestEnv::on(containerd, binary());
    let base = env.containerd.base().to_owned();
    let hold = base.join("hold");
    let manifests = (0..PODS).map(|n| (format!("p{n}"), format!("p{n}.yaml")));
    std::fs::write(&hold, "").unwrap();
    for (name, file) in manifests.clone() {
        env.apply(&file, &shell(&name, "HOLD"));
    }
    held(&base, PODS).await;
    let daemon = [env.containerd.daemon_pid().unwrap().cast_signed()];
    let shims = processes(&base, "containerd-shim");
    // the shims answer, then containerd reads it and asks them for the PID
    signal_all(&daemon, Signal::STOP);
    let pipes = open_pipes(&base);
    std::fs::remove_file(&hold).unwrap();
    held(&base, 0).await;
    idle(&shims).await;
    signal_all(&shims, Signal::STOP);
    signal_all(&daemon, Signal::CONT);
    idle(&daemon).await;
    env.agent.kill().unwrap();
    idle(&daemon).await;
    drop(pipes);
    signal_all(&shims, Signal::CONT);
    env.agent.spawn().unwrap();
    let table = env
        .wait("all pods run", |table| all_ready(table, PODS))
        .await;
    let mut all_lost = 0;
    for (name, _) in manifests.clone() {
        let lost = lost_tasks(&env, &name).await;
        let restarts = table.pod(&name).unwrap().restarts();
        assert_eq!(restarts, lost, "restarts of {name}");
        let states = env.containers(&name).await;
        let states: Vec<_> = states.iter().map(|c| c.state()).collect();
        let expected = [
            ContainerState::ContainerRunning,
            ContainerState::ContainerExited,
        ];
        let expected = expected.split_at(1 + usize::from(lost > 0)).0;
        assert_eq!(states, expected, "containers of {name}");
        all_lost += lost;
    }
    // on a busy host not each of them
    assert!(all_lost > 0, "no task was lost");

    // ---- the pods end, and run again with the same UIDs
    for (_, file) in manifests.clone() {
        env.remove(&file);
    }
    env.watch
        .wait_for("no pod is left", 2 * SOON, |table| table.pods.is_empty())
        .await
        .unwrap();
    for (name, file) in manifests {
        env.apply(&file, &shell(&name, "HOLD"));
    }
    env.wait("all pods run again", |table| all_ready(table, PODS))
        .await;
    env.stop().await;
}
