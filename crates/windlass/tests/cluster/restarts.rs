//! Agent kills: running pods keep running, finished ones stay finished, and pods deleted meanwhile
//! are removed.

use serde_json::{Value, json};
use windlass_client::ObjectKey;
use windlass_testing::agent::NODE_NAME;
use windlass_testing::pod_watch::PodTable;
use windlass_types::coordinationv1::Lease;

use crate::control_plane::Kind;
use crate::objects::{HOLD, is_ready, main_status, phase, pod, uid};
use crate::test_env::{SOON, TestEnv};

const KILLS: usize = 10;
const BYSTANDERS: [&str; 3] = ["by-0", "by-1", "by-2"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_pods_survive_the_agent() {
    pods_survive_the_agent(Kind::Fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_pods_survive_the_agent() {
    pods_survive_the_agent(Kind::Real).await;
}

async fn pods_survive_the_agent(kind: Kind) {
    let Some(mut env) = TestEnv::start(kind, "k-restarts").await else {
        return;
    };
    for name in BYSTANDERS {
        env.create(&pod(name, HOLD, json!({}))).await;
    }
    let mut before = Vec::new();
    for name in BYSTANDERS {
        before.push(env.pod_ready(name).await);
    }
    deleted_while_the_agent_was_down(&mut env).await;
    finished_pods_are_not_run_again(&mut env).await;
    ten_kills(&mut env).await;
    for pod in &before {
        is_as_it_was(&env, pod).await;
    }
    env.stop().await;
}

/// The same container runs in all versions of the pod.
async fn is_as_it_was(env: &TestEnv, before: &Value) {
    let name = before["metadata"]["name"].as_str().expect("a name");
    let now = env.pod_ready(name).await;
    assert_eq!(uid(&now), uid(before));
    let version = &before["metadata"]["resourceVersion"];
    assert_eq!(
        now["metadata"]["resourceVersion"], *version,
        "{name} was written to: {before} {now}"
    );
    let id = &main_status(before)["containerID"];
    assert_eq!(main_status(&now)["containerID"], *id, "{name}");
    assert_eq!(main_status(&now)["restartCount"], 0, "{name}");
    let all = env.runtime.containers(uid(before)).await;
    assert_eq!(all.len(), 1, "containers of {name}: {all:?}");
    let seen = env.history.now();
    let versions = seen.versions_of(uid(before)).iter();
    let flip = versions.skip_while(|v| !is_ready(v)).find(|v| !is_ready(v));
    assert!(flip.is_none(), "{name} was not ready: {flip:?}");
}

async fn ten_kills(env: &mut TestEnv) {
    let lease = ObjectKey::namespaced("kube-node-lease", NODE_NAME);
    for _ in 0..KILLS {
        env.agent.kill().unwrap();
        env.respawn().await;
        // before the next kill the agent has listed its pods
        let back = |table: &PodTable| {
            let pods = table.pods.values().filter(|pod| pod.ready);
            let names: Vec<&str> = pods.map(|pod| pod.name.as_str()).collect();
            BYSTANDERS.iter().all(|name| names.contains(name))
        };
        let waited = env.watch.wait_for("the agent has its pods", SOON, back);
        waited.await.unwrap();
    }
    let renewed = |lease: &Value| lease["spec"]["renewTime"].as_str().map(str::to_owned);
    let last = env.get::<Lease>(lease).await.as_ref().and_then(renewed);
    env.wait_for::<Lease>(lease, "is renewed", |lease| renewed(lease) > last)
        .await;
    let node = env.node_ready().await;
    assert!(is_ready(&node), "{node}");
}

async fn deleted_while_the_agent_was_down(env: &mut TestEnv) {
    for name in ["late-graceful", "late-forced", "late-replaced"] {
        env.create(&pod(name, HOLD, json!({}))).await;
    }
    let graceful = env.pod_ready("late-graceful").await;
    let forced = env.pod_ready("late-forced").await;
    let replaced = env.pod_ready("late-replaced").await;
    env.agent.kill().unwrap();
    env.delete_pod("late-graceful", None).await;
    env.delete_pod("late-forced", Some(0)).await;
    env.delete_pod("late-replaced", Some(0)).await;
    tokio::join!(env.pod_gone(&forced), env.pod_gone(&replaced));
    env.create(&pod("late-replaced", HOLD, json!({}))).await;
    env.respawn().await;
    tokio::join!(
        env.pod_gone(&graceful),
        env.runtime_stopped(&graceful),
        env.runtime_stopped(&forced),
        env.runtime_stopped(&replaced),
    );
    let successor = env.pod_ready("late-replaced").await;
    assert_ne!(uid(&successor), uid(&replaced));
}

async fn finished_pods_are_not_run_again(env: &mut TestEnv) {
    let never = json!({ "restartPolicy": "Never" });
    env.create(&pod("finished", "exit 0", never.clone())).await;
    env.create(&pod("vanished", "exit 7", never)).await;
    let finished = env
        .pod("finished", "succeeded", |p| phase(p) == "Succeeded")
        .await;
    let vanished = env
        .pod("vanished", "failed", |p| phase(p) == "Failed")
        .await;
    env.agent.kill().unwrap();
    // an agent without a checkpoint knows only by its containers that it has run
    env.runtime.remove(uid(&vanished)).await;
    env.respawn().await;
    // the agent has handled its pods when a new one runs
    env.create(&pod("after", HOLD, json!({}))).await;
    env.pod_ready("after").await;
    let again = env.runtime.containers(uid(&vanished)).await;
    assert!(again.is_empty(), "vanished was run again: {again:?}");
    let kept = env.runtime.containers(uid(&finished)).await;
    assert!(kept.len() <= 1, "finished was run again: {kept:?}");
    for (old, end) in [(&finished, "Succeeded"), (&vanished, "Failed")] {
        let name = old["metadata"]["name"].as_str().expect("a name");
        let now = env.pod(name, "is there", |_| true).await;
        assert_eq!(phase(&now), end, "{now}");
        assert_eq!(
            main_status(&now)["state"],
            main_status(old)["state"],
            "{name}"
        );
        env.delete_pod(name, None).await;
        tokio::join!(env.pod_gone(old), env.runtime_stopped(old));
    }
}
