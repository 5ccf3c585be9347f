//! Memory and disks that run out, on cgroup v2. `cargo xtask vm --rounds N` runs these tests;
//! elsewhere they are skipped, because they use up their host.

mod disk;
mod memory;
mod oom;
mod rules;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use windlass_testing::environment::rounds;

use crate::control_plane::Kind;
use crate::objects::{container_with, main_status, pod, uid};
use crate::test_env::{Credentials, TestEnv};

const CGROUPS: &str = "/sys/fs/cgroup";
/// Conditions end soon after their cause; the log has every pass.
const CONFIG: &str = "evictionPressureTransitionPeriod: 2s\nlogging: { verbosity: 4 }\n";

/// The default thresholds, which the agents of the other tests do not have.
const THRESHOLDS: &str = "evictionHard: { memory.available: 100Mi, nodefs.available: 10%, \
     nodefs.inodesFree: 5%, imagefs.available: 15%, imagefs.inodesFree: 5% }\n";

/// Rounds and an environment whose agent is not started; `None` on a host that must not be used up.
async fn prepare(name: &str, config: &str) -> Option<(u32, TestEnv)> {
    let Some(rounds) = rounds() else {
        eprintln!("skipped: it uses up its host: run `cargo xtask vm --rounds N`");
        return None;
    };
    let config = format!("{CONFIG}{config}\n");
    let env = TestEnv::prepare_with(Kind::Fake, name, Credentials::Certificate, |_, _| config);
    Some((rounds, env.await?))
}

/// A pod with resources whose container is not restarted.
async fn create(env: &TestEnv, name: &str, script: &str, resources: Value) -> Value {
    let container = container_with(script, json!({ "resources": resources }));
    let spec = json!({ "containers": [container], "restartPolicy": "Never" });
    env.create(&pod(name, script, spec)).await
}

/// Deletes a pod and waits until it is gone.
async fn delete(env: &TestEnv, pod: &Value) {
    let name = pod["metadata"]["name"].as_str().unwrap();
    env.delete_pod(name, Some(1)).await;
    env.pod_gone(pod).await;
}

/// Fails if a container of a pod was restarted or killed.
async fn assert_unharmed(env: &TestEnv, created: &Value) {
    let name = created["metadata"]["name"].as_str().unwrap();
    let pod = env.pod_ready(name).await;
    let status = main_status(&pod);
    assert_eq!(status["restartCount"], 0, "{name}: {status}");
    let cgroup = pod_cgroup(env, uid(created)).expect("a cgroup");
    let events = counters(&cgroup.join("memory.events"));
    assert_eq!(events.get("oom_kill"), Some(&0), "{name}: {events:?}");
}

/// Directory of the cgroup of all pods.
fn pods_cgroup(env: &TestEnv) -> PathBuf {
    let path = env.containerd.cgroup_layout().kubepods();
    Path::new(CGROUPS).join(path.trim_start_matches('/'))
}

/// Directory of the cgroup of a pod.
fn pod_cgroup(env: &TestEnv, uid: &str) -> Option<PathBuf> {
    let uid = uid.replace('-', "_");
    let root = pods_cgroup(env);
    let mut dirs = vec![root.clone()];
    let classes = fs::read_dir(root).into_iter().flatten().flatten();
    dirs.extend(classes.map(|entry| entry.path()));
    let entries = dirs.iter().filter_map(|dir| fs::read_dir(dir).ok());
    let mut entries = entries.flatten().flatten().map(|entry| entry.path());
    entries.find(|path| path.to_string_lossy().contains(&uid))
}

/// Lines `name number` of a file of the kernel.
fn counters(path: &Path) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    let pairs = pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
    pairs.collect()
}

/// Processes that the kernel killed for memory since the start of the machine.
fn kernel_kills() -> u64 {
    counters(Path::new("/proc/vmstat"))["oom_kill"]
}

/// Lines of the agent's log with all of these words.
fn log_lines(env: &TestEnv, words: &[&str]) -> Vec<String> {
    let log = fs::read_to_string(env.agent.log_file()).unwrap();
    let lines = log.lines();
    let found = lines.filter(|line| words.iter().all(|word| line.contains(word)));
    found.map(str::to_owned).collect()
}
