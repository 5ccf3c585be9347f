//! A pod allocates all memory as fast as it can.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    THRESHOLDS, assert_unharmed, create, delete, kernel_kills, log_lines, pods_cgroup, prepare,
};
use crate::objects::{HOLD, phase};
use crate::test_env::TestEnv;

/// Allocates 4200 MiB, more than a machine of 3 GiB has, in three processes. The shell ignores
/// SIGTERM.
const HOG: &str = "for i in 1 2 3; do dd if=/dev/zero of=/dev/null bs=1400M count=100000 & done; \
                   wait; exit 3";
/// Interval in which memory is sampled, and the shortest time for a rate.
const SAMPLE: Duration = Duration::from_millis(10);
const WINDOW: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_vm_memory_hog_is_evicted_before_others_are_killed() {
    let Some((rounds, mut env)) = prepare("v-memory", THRESHOLDS).await else {
        return;
    };
    env.agent.spawn().unwrap();
    env.node_ready().await;
    let fixed = json!({ "cpu": "50m", "memory": "64Mi" });
    let fixed = json!({ "requests": fixed, "limits": fixed });
    let others = [
        create(&env, "guaranteed", HOLD, fixed).await,
        create(&env, "best-effort", HOLD, json!({})).await,
    ];
    for name in ["guaranteed", "best-effort"] {
        env.pod_ready(name).await;
    }
    let mut lost = 0;
    for round in 1..=rounds {
        let before = kernel_kills();
        let outcome = hog(&env, round).await;
        let kills = kernel_kills() - before;
        println!("round {round}: {outcome}, {kills} kills by the kernel");
        lost += u32::from(kills > 0 || !outcome.starts_with("Evicted"));
        for other in &others {
            assert_unharmed(&env, other).await;
        }
    }
    for line in log_lines(&env, &["evicting a pod"]) {
        println!("{line}");
    }
    let loaded = log_lines(&env, &["all code of the agent is kept resident"]);
    assert_eq!(loaded.len(), 1, "all code is loaded once");
    let has_stalls = Path::new("/proc/pressure/memory").exists();
    let notified = log_lines(&env, &["notified by the kernel"]).len();
    println!("PSI: {has_stalls}, notifications of the kernel: {notified}");
    match has_stalls {
        true => assert!(notified > 0, "the kernel notified"),
        false => assert!(!log_lines(&env, &["no memory"]).is_empty()),
    }
    assert!(lost * 10 <= rounds, "{lost} of {rounds} rounds were lost");
    env.stop().await;
}

/// Runs a hog until it has ended; returns how.
async fn hog(env: &TestEnv, round: u32) -> String {
    let name = format!("hog-{round}");
    let sampler = Sampler::start(pods_cgroup(env).join("memory.current"));
    let request = json!({ "requests": { "memory": "64Mi" } });
    let created = create(env, &name, HOG, request).await;
    let ended = env.pod(&name, "has ended", |pod| phase(pod) == "Failed");
    let ended: Value = ended.await;
    let (rate, peak) = sampler.stop();
    let reason = ended["status"]["reason"].as_str().unwrap_or("Failed");
    let message = ended["status"]["message"].as_str().unwrap_or("");
    let line = format!("{reason}, at most {rate} MiB/s up to {peak} MiB ({message})");
    delete(env, &created).await;
    line
}

/// Samples a file with a number of bytes.
struct Sampler {
    end: mpsc::Sender<()>,
    thread: JoinHandle<Vec<(Instant, u64)>>,
}

impl Sampler {
    fn start(file: PathBuf) -> Self {
        let (end, ended) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut samples = Vec::new();
            while ended.recv_timeout(SAMPLE) == Err(RecvTimeoutError::Timeout) {
                let text = fs::read_to_string(&file).unwrap_or_default();
                samples.push((Instant::now(), text.trim().parse().unwrap_or(0)));
            }
            samples
        });
        Self { end, thread }
    }

    /// Returns the highest rate in MiB a second and the highest number of MiB.
    fn stop(self) -> (u64, u64) {
        drop(self.end);
        let samples = self.thread.join().unwrap();
        let mut fastest = 0.0_f64;
        let mut first = 0;
        for (at, bytes) in &samples {
            while at.duration_since(samples[first].0) > WINDOW * 2 {
                first += 1;
            }
            let (since, old) = samples[first];
            let age = at.duration_since(since);
            if age >= WINDOW {
                fastest = fastest.max(bytes.saturating_sub(old) as f64 / age.as_secs_f64());
            }
        }
        let peak = samples.iter().map(|(_, bytes)| bytes >> 20).max();
        (fastest as u64 >> 20, peak.unwrap_or(0))
    }
}
