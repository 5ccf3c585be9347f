//! Devices and evictions.

use serde_json::json;
use windlass_eviction::Signal;
use windlass_testing::{FakeStateDisk, NodeSim, PodBuilder, hard_eviction};
use windlass_types::PodUid;
use windlass_types::mutation::Mutation;

use crate::history::*;
use crate::invariant::Invariant;
use crate::{MINUTE, SECOND};

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        mutation: Mutation::RestartFailsDevicePods,
        invariant: Invariant::RunningPodStays,
        run: restart_without_plugin,
    },
    Scenario {
        mutation: Mutation::DeviceGivenTwice,
        invariant: Invariant::DeviceHasOneOwner,
        run: new_pod_after_restart,
    },
    Scenario {
        mutation: Mutation::EvictsWithoutWaiting,
        invariant: Invariant::OneEviction,
        run: slow_end_of_evicted_pod,
    },
    Scenario {
        mutation: Mutation::EvictionForgotten,
        invariant: Invariant::OneEviction,
        run: restart_during_eviction,
    },
];

const GPU: &str = "vendor.com/gpu";

fn with_device(name: &str) -> PodBuilder {
    pod(name).with(|pod| {
        let limits = json!({ "limits": { GPU: "1" }, "requests": { GPU: "1" } });
        let container = &mut pod.spec.as_mut().expect("a spec").containers[0];
        container.resources = serde_json::from_value(limits).expect("resources");
    })
}

fn register(history: &History<'_>) {
    history
        .sim
        .devices
        .register(GPU, &[("gpu0", true), ("gpu1", true)]);
}

/// Devices of the running container.
fn devices(sim: &NodeSim, uid: &PodUid) -> Vec<String> {
    let app = sim.runtime.running(uid, "app");
    let config = app.and_then(|app| sim.runtime.container_config(&app.id));
    let devices = config.into_iter().flat_map(|config| config.devices);
    devices.map(|device| device.host_path).collect()
}

/// The device plugin registers only minutes after an agent restart.
fn restart_without_plugin() -> Outcome {
    on_a_node(async |history| {
        register(history);
        history.pass(SECOND).await?;
        let uid = history.run(with_device("web")).await?;
        history.must_stay(&uid, "app")?;
        history.restart_agent(SECOND).await?;
        history.pass(3 * MINUTE).await
    })
}

fn new_pod_after_restart() -> Outcome {
    on_a_node(async |history| {
        register(history);
        history.pass(SECOND).await?;
        let former = history.run(with_device("former")).await?;
        let kept = history.run(with_device("kept")).await?;
        delete(history.sim, "former", None);
        history.until_gone(&former, "former", PROMPTLY).await?;
        history.restart_agent(SECOND).await?;
        history.pass(SECOND).await?;
        register(history);
        history.pass(SECOND).await?;
        let new = history.run(with_device("new")).await?;
        let [kept, new] = [&kept, &new].map(|uid| devices(history.sim, uid));
        let text = format!("{kept:?} and {new:?}");
        let apart = kept.len() == 1 && new.len() == 1 && kept != new;
        demand(apart, Invariant::DeviceHasOneOwner, text)
    })
}

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Memory of 10 GiB, of which 100 MiB must be free.
fn memory(sim: &mut NodeSim) {
    sim.eviction = hard_eviction(&[("memory.available", "100Mi")]);
    sim.pressure.set(Signal::MemoryAvailable, 10 * GIB, GIB);
}

fn uses(sim: &NodeSim, uid: &PodUid, mebibytes: u64) {
    sim.pressure
        .pod_uses(Signal::MemoryAvailable, uid, mebibytes * MIB);
}

fn is_evicted(sim: &NodeSim, name: &str) -> bool {
    let status = get(sim, name).and_then(|pod| pod.status);
    status.is_some_and(|status| status.reason.as_deref() == Some("Evicted"))
}

/// The first pod that is evicted ends only when it is killed.
fn slow_end_of_evicted_pod() -> Outcome {
    before_start(memory, async |history| {
        history.stubborn("hog");
        let hog = history.run(pod("hog").grace(30)).await?;
        let other = history.run(pod("other")).await?;
        // without the first there is enough
        history.must_stay(&other, "app")?;
        uses(history.sim, &other, 1000);
        uses(history.sim, &hog, 8300);
        let evicted = |sim: &NodeSim| is_evicted(sim, "hog");
        let outcome = history.within(Invariant::OneEviction, "hog is evicted", MINUTE, evicted);
        let outcome = match outcome.await {
            Err(found) if found.invariant == Invariant::RunningPodStays => {
                violates(Invariant::OneEviction, "both pods were evicted")
            }
            outcome => outcome,
        };
        outcome?;
        history.pass(MINUTE).await
    })
}

/// The agent is killed while an evicted pod terminates; memory is free again.
fn restart_during_eviction() -> Outcome {
    let prepare = |sim: &mut NodeSim| {
        memory(sim);
        sim.state_disk = Some(FakeStateDisk::default());
    };
    before_start(prepare, async |history| {
        history.stubborn("hog");
        let hog = history.run(pod("hog").grace(30)).await?;
        history.pass(5 * SECOND).await?;
        uses(history.sim, &hog, 9200);
        let begun = |sim: &NodeSim| sim.blocker("hog") == "Terminating";
        history
            .within(Invariant::OneEviction, "hog terminates", MINUTE, begun)
            .await?;
        history.sim.kill_agent().await;
        uses(history.sim, &hog, 100);
        history.sim.start_agent().await;
        let evicted = |sim: &NodeSim| is_evicted(sim, "hog");
        history
            .within(Invariant::OneEviction, "hog is evicted", MINUTE, evicted)
            .await
    })
}
