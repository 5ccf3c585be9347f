//! Random edits, removals and agent kills: the desired pods run in the end, and no pod ever has two
//! instances.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tonic::transport::Channel;
use windlass_proto::cri_v1::runtime_service_client::RuntimeServiceClient;
use windlass_proto::cri_v1::{ContainerState, ListContainersRequest};
use windlass_testing::pod_watch::PodTable;

use crate::manifest::fill;
use crate::test_env::{SOON, TestEnv, eventually, skipped};

/// Overridden by `WINDLASS_SEED`.
const SEED: u64 = 3;
const STEPS: usize = 60;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A pod whose container writes its version.
fn pod(name: &str, version: usize, dir: &Path) -> String {
    let script = fill(&format!("echo {version} > /v/{name}.version; HOLD"));
    let script = serde_json::to_string(&script).unwrap();
    fill(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  \
         hostNetwork: true\n  terminationGracePeriodSeconds: 5\n  \
         containers: [{{name: main, image: IMAGE, command: [sh, -c, {script}], \
         volumeMounts: [{{name: v, mountPath: /v}}]}}]\n  \
         volumes: [{{name: v, hostPath: {{path: {}}}}}]\n",
        dir.display()
    ))
}

/// Returns once two containers of one pod name run concurrently.
async fn overlaps(mut cri: RuntimeServiceClient<Channel>) -> String {
    loop {
        let request = ListContainersRequest::default();
        let answer = cri.list_containers(request).await.unwrap();
        let mut running: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for container in answer.into_inner().containers {
            if container.state == ContainerState::ContainerRunning as i32 {
                let name = container.labels["io.kubernetes.pod.name"].clone();
                let uid = container.labels["io.kubernetes.pod.uid"].clone();
                running.entry(name).or_default().push(uid);
            }
        }
        if let Some((name, uids)) = running.iter().find(|(_, uids)| uids.len() > 1) {
            return format!("instances of {name} that ran at once: {uids:?}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_random_storm_converges_to_desired_state() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::start("i-storm").await;
    let dir = env.containerd.base().join("storm");
    std::fs::create_dir(&dir).unwrap();
    let overlaps = tokio::spawn(overlaps(env.cri().await));
    let seed = std::env::var("WINDLASS_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(SEED);
    eprintln!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let mut asked: BTreeMap<&str, usize> = BTreeMap::new();
    for step in 0..STEPS {
        let name = NAMES[random.random_range(0..NAMES.len())];
        let file = format!("{name}.yaml");
        match random.random_range(0..10) {
            0..5 => {
                env.apply(&file, &pod(name, step, &dir));
                asked.insert(name, step);
            }
            5..7 => {
                if asked.remove(name).is_some() {
                    env.remove(&file);
                }
            }
            7 => {
                env.agent.kill().unwrap();
                env.agent.spawn().unwrap();
            }
            // random progress
            _ => {
                let pause = Duration::from_millis(random.random_range(50..1500));
                let ready = |table: &PodTable| table.pod(name).is_some_and(|pod| pod.ready);
                let _ = env.watch.wait_for(name, pause, ready).await;
            }
        }
    }
    // one that exists in any case
    env.apply("a.yaml", &pod("a", STEPS, &dir));
    asked.insert("a", STEPS);

    eventually("the desired pods run", SOON, async || {
        let mut wrong = Vec::new();
        for name in NAMES {
            let running = env.running(name).await.len();
            let sandboxes = env.ready_sandboxes(name).await.len();
            let version = std::fs::read_to_string(dir.join(format!("{name}.version")));
            let version = version.unwrap_or_default();
            let right = match asked.get(name) {
                Some(asked) => {
                    (running, sandboxes) == (1, 1) && version.trim_end() == asked.to_string()
                }
                None => (running, sandboxes) == (0, 0),
            };
            if !right {
                wrong.push(format!(
                    "{name}: {running} containers, {sandboxes} sandboxes, version {version:?} of {:?}",
                    asked.get(name)
                ));
            }
        }
        wrong.is_empty().then_some(()).ok_or(wrong.join("; "))
    })
    .await;
    assert!(!overlaps.is_finished(), "{}", overlaps.await.unwrap());
    overlaps.abort();
    env.wait("the agent reports it", |table| {
        table.connected && table.pods.len() == asked.len() && table.pods.values().all(|p| p.ready)
    })
    .await;
    env.stop().await;
}
