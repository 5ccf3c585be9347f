//! Containers keep running while the agent or the runtime is down.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_proto::cri_v1::ContainerState;
use windlass_testing::containerd::PrivateContainerd;
use windlass_testing::pod_watch::PodTable;

use crate::manifest::shell;
use crate::test_env::{SOON, TestEnv, bare, binary, eventually, skipped};

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
    // containerd cuts a start off when its caller dies; which does not count as a restart
    for (pod, (_, restarts)) in &before {
        assert_eq!(*restarts, 0, "restarts of {pod}");
    }
    for n in 0..PODS {
        let pod = format!("p{n}");
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
