//! The agent is killed during an eviction.

use std::sync::Arc;

use windlass_testing::FakeStateDisk;
use windlass_testing::fake_runtime::{Fault, Operation};
use windlass_types::{Pod, SharedPod};

use super::*;
use crate::MINUTE;

const HARD: &[(&str, &str)] = &[("memory.available", "100Mi")];

/// A checkpoint without the cause of the eviction of `hog`.
fn checkpoint(sim: &NodeSim) -> Vec<SharedPod> {
    let pods = ["hog", "other"].map(|name| get(sim, name).expect("there"));
    pods.map(Arc::new).into()
}

/// Starts an agent with a checkpoint.
async fn keep_state(sim: &mut NodeSim) {
    sim.kill_agent().await;
    sim.state_disk = Some(FakeStateDisk::default());
    sim.start_agent().await;
}

/// Kills the agent during an eviction. `recorded`: the checkpoint was written; `exits`: the
/// victim's container ends meanwhile; `relieved`: memory is no longer short afterwards.
fn check(seed: u64, recorded: bool, exits: bool, relieved: bool) {
    on_a_node(seed, settings(HARD, &[], &[]), async |sim| {
        stubborn(sim, "hog");
        sim.runtime.cut_off_stops();
        if recorded {
            keep_state(sim).await;
        }
        let hog = run(sim, requesting("hog", 0, 0)).await;
        let other = run(sim, requesting("other", 0, 0)).await;
        let uses = |sim: &NodeSim, mebibytes: u64| {
            sim.pressure
                .pod_uses(Signal::MemoryAvailable, &hog, mebibytes * MIB);
        };
        uses(sim, 9200);
        sim.until("it terminates", 11 * SECOND, |sim| {
            sim.blocker("hog") == "Terminating"
        })
        .await;
        sim.kill_agent().await;
        sim.checkpoint = checkpoint(sim);
        assert!(runs(sim, &hog), "killed before its end");
        if exits {
            let container = sim.runtime.running(&hog, "app").expect("it runs");
            sim.runtime.kill_container(&container.id, 1);
        }
        if relieved {
            uses(sim, 100);
        }
        sim.pass(10 * SECOND).await;
        sim.start_agent().await;
        until_evicted(sim, "hog", 30 * SECOND).await;
        sim.pass(2 * MINUTE).await;
        assert!(is_evicted(sim, "hog") && !runs(sim, &hog));
        let log = sim.log().join("\n");
        assert!(runs(sim, &other), "nothing else is evicted\n{log}");
        let starts = sim.runtime.starts(&hog, "app");
        assert!(starts == 1 || !recorded, "started {starts} times");
        let count = evictions(sim, Signal::MemoryAvailable);
        assert_eq!(count, if recorded { 1.0 } else { 2.0 });
        let pods: Vec<Pod> = sim.api.list();
        assert_eq!(pods.len(), 2);
    });
}

#[test]
fn agent_killed_during_an_eviction_ends_it() {
    check(131, true, false, false);
}

#[test]
fn victim_that_ended_without_the_agent_is_evicted() {
    check(132, true, true, false);
}

#[test]
fn relieved_node_still_ends_the_eviction_that_began() {
    check(133, true, false, true);
}

#[test]
fn lost_checkpoint_repeats_the_eviction() {
    check(134, false, false, false);
}

#[test]
fn victim_hung_after_a_restart_delays_the_next_by_30_s() {
    on_a_node(136, settings(HARD, &[], &[]), async |sim| {
        keep_state(sim).await;
        let stuck = run(sim, requesting("stuck", 0, 0)).await;
        let other = run(sim, requesting("other", 0, 0)).await;
        for operation in [Operation::StopContainer, Operation::StopPodSandbox] {
            sim.runtime
                .inject(Fault::hang(operation).on("default/stuck"));
        }
        let uses = |sim: &NodeSim, uid: &PodUid, mebibytes: u64| {
            sim.pressure
                .pod_uses(Signal::MemoryAvailable, uid, mebibytes * MIB);
        };
        uses(sim, &stuck, 9200);
        sim.until("it terminates", 11 * SECOND, |sim| {
            !sim.blocker("stuck").is_empty()
        })
        .await;
        sim.kill_agent().await;
        // it is the first by rank
        uses(sim, &other, 9500);
        sim.start_agent().await;
        sim.pass(30 * SECOND).await;
        assert!(runs(sim, &other), "evicted before the end of the first");
        until_evicted(sim, "other", 10 * SECOND).await;
        uses(sim, &stuck, 9300);
        sim.pass(2 * MINUTE).await;
        assert!(runs(sim, &stuck));
        assert_eq!(evictions(sim, Signal::MemoryAvailable), 2.0);
    });
}

#[test]
fn why_a_pod_was_evicted_survives_an_agent_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    on_a_node(135, settings(HARD, &[], &[]), async |sim| {
        sim.kill_agent().await;
        sim.state_dir = Some(folder.path().to_owned());
        sim.start_agent().await;
        let hog = run(sim, requesting("hog", 0, 0)).await;
        let explanation = |sim: &NodeSim| {
            let status = Arc::clone(&sim.agent()?.eviction.borrow());
            status.eviction(&hog).map(|it| it.explanation.clone())
        };
        sim.pressure
            .pod_uses(Signal::MemoryAvailable, &hog, 9200 * MIB);
        until_evicted(sim, "hog", 20 * SECOND).await;
        let before = explanation(sim).expect("explained");
        sim.pass(MINUTE).await;
        sim.kill_agent().await;
        sim.start_agent().await;
        assert_eq!(explanation(sim), Some(before));
    });
}
