//! Many pods on a slow runtime: all start and stop, and no call counts as hung.

use std::time::Duration;

use rand::Rng;
use windlass_testing::NodeSim;
use windlass_testing::fake_runtime::{Behavior, Operation};
use windlass_types::Pod;
use windlass_types::corev1::Event;

use crate::fixture::*;
use crate::{HOUR, MINUTE, SECOND};

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("pod-{n}")).collect()
}

/// Polls every five seconds, because a check of hundreds of pods is slow.
async fn wait_until(
    sim: &NodeSim,
    what: &str,
    limit: Duration,
    is_true: impl Fn(&NodeSim) -> bool,
) {
    let begun = sim.now();
    while !is_true(sim) {
        let passed = Duration::try_from(sim.now().duration_since(begun)).unwrap_or_default();
        assert!(passed < limit, "{what}: not within {limit:?}");
        sim.pass(5 * SECOND).await;
    }
}

async fn start_all(sim: &NodeSim, names: &[String], limit: Duration) {
    for name in names {
        create(sim, pod(name).grace(1));
    }
    wait_until(sim, "all are ready", limit, |sim| {
        sim.api.list::<Pod>().iter().all(is_ready)
    })
    .await;
}

async fn delete_all(sim: &NodeSim, names: &[String], grace: i64, limit: Duration) {
    for name in names {
        delete(sim, name, Some(grace));
    }
    wait_until(sim, "all are gone", limit, |sim| {
        sim.api.list::<Pod>().is_empty()
    })
    .await;
}

/// Messages of the events with one of these reasons.
fn messages(sim: &NodeSim, reasons: &[&str]) -> Vec<String> {
    let events = sim.api.list::<Event>().into_iter();
    let with_reason = events.filter(|event| {
        let reason = event.reason.as_deref().unwrap_or_default();
        reasons.contains(&reason)
    });
    with_reason
        .map(|event| event.message.unwrap_or_default())
        .collect()
}

fn assert_no_hung_calls(sim: &NodeSim) {
    let blamed = messages(
        sim,
        &["RuntimeCallHung", "ExceededGracePeriod", "FailedKillPod"],
    );
    assert!(
        blamed.is_empty(),
        "{} events: {:#?}",
        blamed.len(),
        &blamed[..blamed.len().min(5)]
    );
}

#[test]
fn serial_runtime_starts_and_stops_300_pods_without_hangs() {
    on_a_ready_node(1, async |sim| {
        sim.runtime.serve_one_at_a_time(Duration::from_millis(200));
        sim.runtime.set_behavior("app", Behavior::stubborn());
        let names = names(300);
        start_all(sim, &names, HOUR).await;
        assert_no_hung_calls(sim);
        delete_all(sim, &names, 1, HOUR).await;
        assert_no_hung_calls(sim);
        assert!(node_ready(sim));
    });
}

/// Random delays of every call in one run.
fn random_delays(sim: &mut NodeSim) {
    for operation in [
        Operation::StopContainer,
        Operation::StopPodSandbox,
        Operation::ContainerStatus,
        Operation::PodSandboxStatus,
        Operation::ListContainers,
        Operation::ListPodSandboxes,
        Operation::RemoveContainer,
        Operation::RemovePodSandbox,
    ] {
        let most = [100, 1000, 5000, 20_000][sim.dice.random_range(0..4)];
        let delay = Duration::from_millis(sim.dice.random_range(0..most));
        sim.note(format!("{operation} takes {delay:?}"));
        sim.runtime.set_latency(operation, delay);
    }
}

#[test]
fn deleted_pods_are_removed_despite_delays() {
    for seed in 0..12 {
        on_a_ready_node(seed, async |sim| {
            let names = names(12);
            start_all(sim, &names, MINUTE).await;
            random_delays(sim);
            delete_all(sim, &names, 1, HOUR).await;
        });
    }
}

#[test]
fn exit_codes_are_reported_by_a_slow_runtime() {
    on_a_ready_node(2, async |sim| {
        sim.runtime.set_behavior(
            "app",
            Behavior {
                stops_after: SECOND / 2,
                sigterm_exit_code: 7,
                ..Behavior::default()
            },
        );
        let names = names(100);
        start_all(sim, &names, MINUTE).await;
        sim.runtime.serve_one_at_a_time(Duration::from_millis(100));
        delete_all(sim, &names, 30, HOUR).await;
        for name in &names {
            let patches = patches(sim, name).into_iter();
            let bodies: Vec<String> = patches.map(|patch| patch.body.to_string()).collect();
            let reported = |text: &str| bodies.iter().any(|body| body.contains(text));
            assert!(reported(r#""exitCode":7"#), "{name}: {bodies:#?}");
            assert!(!reported("ContainerStatusUnknown"), "{name}: {bodies:#?}");
        }
    });
}
