//! Memory, disks and processes run short; pods of the API server are evicted.

mod disks;
mod memory;
mod restarts;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use windlass_eviction::{EvictionSettings, Signal, ThresholdFields, Thresholds};
use windlass_testing::fake_runtime::Behavior;
use windlass_testing::{NodeSim, PodBuilder, simulate_cluster};
use windlass_types::PodUid;
use windlass_types::corev1::Event;

use crate::SECOND;
use crate::fixture::*;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

fn map(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    let list = list.iter();
    list.map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect()
}

/// Hard thresholds, soft ones that are due after 30 s, and minimum reclaims.
fn settings(
    hard: &[(&str, &str)],
    soft: &[(&str, &str)],
    reclaim: &[(&str, &str)],
) -> EvictionSettings {
    let periods: Vec<_> = soft.iter().map(|(signal, _)| (*signal, "30s")).collect();
    let thresholds = Thresholds::parse(ThresholdFields {
        hard: &map(hard),
        soft: &map(soft),
        soft_grace_period: &map(&periods),
        minimum_reclaim: &map(reclaim),
        enforces_pods: false,
    });
    EvictionSettings {
        thresholds: thresholds.expect("valid"),
        ..EvictionSettings::default()
    }
}

/// Runs a scenario on a ready node of 10 GiB memory and 100 GiB disk, with one tenth of it used.
fn on_a_node(seed: u64, settings: EvictionSettings, scenario: impl AsyncFnOnce(&mut NodeSim)) {
    simulate_cluster(seed, async |sim| {
        latencies(sim);
        sim.eviction = settings;
        sim.pressure.set(Signal::MemoryAvailable, 10 * GIB, GIB);
        sim.pressure
            .set(Signal::NodeFsAvailable, 100 * GIB, 10 * GIB);
        sim.pressure
            .set(Signal::NodeFsInodesFree, 1_000_000, 100_000);
        sim.pressure.set(Signal::PidAvailable, 32_768, 300);
        sim.start_agent().await;
        sim.until("the node is ready", 2 * SECOND, node_ready).await;
        scenario(sim).await;
        sim.runtime.assert_invariants();
    });
}

/// A pod with a priority and a memory request in MiB; 0 for none.
fn requesting(name: &str, mebibytes: u64, priority: i32) -> PodBuilder {
    pod(name).grace(20).with(|pod| {
        let spec = pod.spec.get_or_insert_default();
        spec.priority = Some(priority);
        if mebibytes > 0 {
            let resources = json!({ "requests": { "memory": format!("{mebibytes}Mi") } });
            spec.containers[0].resources = serde_json::from_value(resources).expect("resources");
        }
    })
}

async fn run(sim: &NodeSim, pod: PodBuilder) -> PodUid {
    let uid = create(sim, pod);
    let uid_text = uid.clone();
    sim.until("it runs", 10 * SECOND, |sim| runs(sim, &uid_text))
        .await;
    uid
}

fn is_evicted(sim: &NodeSim, name: &str) -> bool {
    let status = get(sim, name).and_then(|pod| pod.status);
    let status = status.unwrap_or_default();
    let found = [&status.phase, &status.reason].map(Option::as_deref);
    found == [Some("Failed"), Some("Evicted")]
}

async fn until_evicted(sim: &NodeSim, name: &str, limit: Duration) {
    sim.until("it is evicted", limit, |sim| is_evicted(sim, name))
        .await;
}

/// Pressure conditions that are true.
fn pressures(sim: &NodeSim) -> String {
    let conditions = node(sim).and_then(|node| node.status?.conditions);
    let conditions = conditions.unwrap_or_default().into_iter();
    let on = conditions.filter(|it| it.type_.ends_with("Pressure") && it.status == "True");
    on.map(|it| it.type_).collect::<Vec<_>>().join(" ")
}

/// Events with a reason.
fn events(sim: &NodeSim, reason: &str) -> Vec<Event> {
    let events = sim.api.list::<Event>().into_iter();
    events
        .filter(|event| event.reason.as_deref() == Some(reason))
        .collect()
}

fn evictions(sim: &NodeSim, signal: Signal) -> f64 {
    let families = &sim.metrics.volumes.evictions;
    families.with_label_values(&[signal.as_str()]).get()
}

/// A container that ends with SIGKILL only, after its grace period.
fn stubborn(sim: &NodeSim, name: &str) {
    sim.runtime
        .set_behavior(&format!("default/{name}/app"), Behavior::stubborn());
}
