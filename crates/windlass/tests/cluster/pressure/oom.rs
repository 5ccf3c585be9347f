//! Processes that the kernel kills inside the limit of their container.

use std::fs::OpenOptions;
use std::io::Write;

use serde_json::json;

use super::{THRESHOLDS, assert_unharmed, create, delete, pod_cgroup, prepare};
use crate::objects::{HOLD, main_status, phase, uid};
use crate::test_env::{SOON, TestEnv, eventually};

/// A child exceeds the limit; the first process outlives it.
const PARENT: &str = "dd if=/dev/zero of=/dev/null bs=200M count=1; exit 3";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_vm_killed_child_makes_its_container_oom_killed() {
    let Some((_, mut env)) = prepare("v-oom", THRESHOLDS).await else {
        return;
    };
    env.agent.spawn().unwrap();
    env.node_ready().await;
    let other = create(&env, "other", HOLD, json!({})).await;
    env.pod_ready("other").await;
    // all processes of the container are killed
    ends(&env, "group", 137).await;
    env.agent.terminate().await.unwrap();
    let config = env.agent.root_dir().with_file_name("config.yaml");
    let mut config = OpenOptions::new().append(true).open(config).unwrap();
    writeln!(config, "singleProcessOOMKill: true").unwrap();
    env.respawn().await;
    ends(&env, "single", 3).await;
    assert_unharmed(&env, &other).await;
    env.stop().await;
}

/// Runs a pod that is killed inside its limit; it ends with this exit code.
async fn ends(env: &TestEnv, name: &str, code: i64) {
    let limit = json!({ "limits": { "memory": "64Mi" } });
    let created = create(env, name, PARENT, limit).await;
    let ended = env.pod(name, "has ended", |pod| phase(pod) == "Failed");
    let ended = ended.await;
    let end = &main_status(&ended)["state"]["terminated"];
    assert_eq!(end["reason"], "OOMKilled", "{name}: {end}");
    assert_eq!(end["exitCode"], code, "{name}: {end}");
    assert_eq!(ended["status"]["reason"], serde_json::Value::Null);
    delete(env, &created).await;
    // the API server removes a pod that has ended at once
    eventually("its cgroup is removed", SOON, async || {
        match pod_cgroup(env, uid(&created)) {
            Some(path) => Err(path.display().to_string()),
            None => Ok(()),
        }
    })
    .await;
    let metrics = env.agent.metrics(false).await.unwrap();
    let system = "kubelet_evictions";
    let evicted = metrics.lines().filter(|line| line.starts_with(system));
    assert_eq!(evicted.count(), 0, "{metrics}");
}
