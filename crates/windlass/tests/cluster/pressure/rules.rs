//! Both rules of memory eviction, with page cache and with a real hog.

use std::path::Path;

use serde_json::json;

use super::{CGROUPS, counters, create, delete, log_lines, prepare};
use crate::objects::{HOLD, phase};
use crate::test_env::{SOON, TestEnv, eventually};

/// About half of the memory.
const THRESHOLD: &str = "evictionHard: { memory.available: 1536Mi }\n";
/// Active page cache that the reader has at the end, in MiB.
const ACTIVE: u64 = 1200;
/// Passes with it after which a pod counts as kept.
const PASSES: usize = 10;
/// Reads a file without blocks until its pages are active.
const READER: &str = "truncate -s 1300M /f; for i in 1 2 3 4; do \
                      dd if=/f of=/dev/null bs=1M; done; HOLD";
const HOG: &str = "dd if=/dev/zero of=/dev/null bs=1500M count=100000";
const RULES: [&str; 2] = ["reclaimable-aware", "upstream"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_vm_page_cache_evicts_only_with_the_upstream_rule() {
    let Some((_, mut env)) = prepare("v-rules", THRESHOLD).await else {
        return;
    };
    let mut table = Vec::new();
    for rule in RULES {
        env.agent.terminate().await.unwrap();
        let flag = format!("--memory-eviction-rule={rule}");
        env.agent.spawn_with(&[&flag]).unwrap();
        env.node_ready().await;
        for (case, script) in [("page-cache", READER), ("hog", HOG)] {
            let name = format!("{case}-{rule}");
            let (active, outcome) = run(&env, &name, script).await;
            table.push((rule, case, active, outcome));
        }
    }
    println!("rule               case        active page cache  outcome");
    for (rule, case, active, outcome) in &table {
        println!("{rule:18} {case:11} {active:13} MiB  {outcome}");
    }
    let outcomes: Vec<&str> = table.iter().map(|row| row.3).collect();
    assert_eq!(outcomes, ["kept", "Evicted", "Evicted", "Evicted"]);
    env.stop().await;
}

/// Runs a pod; returns the most active page cache of the node in MiB, and what happened to the pod.
async fn run(env: &TestEnv, name: &str, script: &str) -> (u64, &'static str) {
    let request = json!({ "requests": { "memory": "64Mi" } });
    let created = create(env, name, &script.replace("HOLD", HOLD), request).await;
    let passes = || log_lines(env, &["eviction pass"]).len();
    let mut most = 0;
    let mut when_full = None;
    let outcome = eventually("it is kept or evicted", SOON, async || {
        if let Some(pod) = env.history.now().present.get(name)
            && phase(pod) == "Failed"
        {
            assert_eq!(pod["status"]["reason"], "Evicted", "{}", pod["status"]);
            return Ok("Evicted");
        }
        let stat = counters(&Path::new(CGROUPS).join("memory.stat"));
        let active = stat["active_file"] >> 20;
        most = most.max(active);
        if active >= ACTIVE && passes() >= *when_full.get_or_insert_with(passes) + PASSES {
            return Ok("kept");
        }
        Err(format!("{active} MiB of active page cache"))
    })
    .await;
    delete(env, &created).await;
    (most, outcome)
}
