//! Limits of local storage on a virtual clock: which pod is evicted, with which texts, and what a
//! hung runtime, a hung disk and a killed agent change.

#![allow(missing_docs, clippy::expect_used)]

use std::time::Duration;

use serde_json::json;
use windlass_testing::fake_runtime::{Behavior, Fault, Operation};
use windlass_testing::{FakeStateDisk, NodeSim, PodBuilder, simulate_cluster};
use windlass_types::corev1::Event;
use windlass_types::{Pod, PodExt, PodUid};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const MEBIBYTE: u64 = 1 << 20;
const POD_MESSAGE: &str =
    "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ";

fn on_a_node(seed: u64, scenario: impl AsyncFnOnce(&mut NodeSim)) {
    simulate_cluster(seed, async |sim| {
        sim.runtime.add_image("busybox:1");
        sim.start_agent().await;
        scenario(sim).await;
        sim.runtime.assert_invariants();
    });
}

/// A pod with these containers and their limits in mebibytes.
fn pod(name: &str, containers: &[(&str, u64)]) -> PodBuilder {
    let mut pod = PodBuilder::new(name).bound_to("sim").grace(600);
    for (container, limit) in containers {
        let limits = json!({"limits": {"ephemeral-storage": format!("{limit}Mi")}});
        pod = pod.container_with(container, "busybox:1", |container| {
            container.resources = serde_json::from_value(limits).expect("limits");
        });
    }
    pod
}

async fn running(sim: &NodeSim, pod: PodBuilder) -> PodUid {
    let pod = sim.api.create(&pod.build());
    sim.until("it is ready", 10 * SECOND, |sim| {
        let conditions = get(sim, pod.name()).and_then(|pod| pod.status?.conditions);
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|c| c.type_ == "Ready" && c.status == "True")
    })
    .await;
    pod.uid()
}

fn get(sim: &NodeSim, name: &str) -> Option<Pod> {
    sim.api.get::<Pod>(Some("default"), name)
}

fn runs(sim: &NodeSim, uid: &PodUid, container: &str) -> bool {
    sim.runtime.running(uid, container).is_some()
}

fn is_evicted(sim: &NodeSim, name: &str, message: &str) -> bool {
    let status = get(sim, name).and_then(|pod| pod.status);
    let status = status.unwrap_or_default();
    let conditions = status.conditions.iter().flatten();
    let mut types = conditions.map(|condition| condition.type_.as_str());
    let is_disrupted = types.any(|kind| kind == "DisruptionTarget");
    let texts = [&status.phase, &status.reason, &status.message].map(Option::as_deref);
    texts == [Some("Failed"), Some("Evicted"), Some(message)] && !is_disrupted
}

/// Events `Evicted` of a pod by count and message.
fn evictions(sim: &NodeSim, name: &str) -> Vec<(i32, String)> {
    let events = sim.api.list::<Event>().into_iter();
    let of_pod = events.filter(|event| {
        event.involved_object.name.as_deref() == Some(name)
            && event.reason.as_deref() == Some("Evicted")
    });
    of_pod
        .map(|event| (event.count.unwrap_or(1), event.message.unwrap_or_default()))
        .collect()
}

#[test]
fn pod_over_its_storage_limit_is_evicted() {
    on_a_node(61, async |sim| {
        // evicted with a grace period of a second
        sim.runtime.set_behavior("app", Behavior::stubborn());
        let hog = running(sim, pod("hog", &[("app", 10)])).await;
        let modest = running(sim, pod("modest", &[("app", 10)])).await;
        let free = running(
            sim,
            PodBuilder::new("free")
                .bound_to("sim")
                .container("app", "busybox:1"),
        )
        .await;
        sim.runtime.set_layer(&modest, "app", 10 * MEBIBYTE);
        sim.runtime.set_layer(&free, "app", 1 << 40);
        sim.runtime.set_layer(&hog, "app", 6 * MEBIBYTE);
        sim.disk.set_logs(&hog, "app", 4 * MEBIBYTE);
        sim.pass(MINUTE).await;
        assert!(runs(sim, &hog, "app"));
        sim.disk.set_logs(&hog, "app", 5 * MEBIBYTE);
        sim.until("it is evicted", 15 * SECOND, |sim| {
            is_evicted(sim, "hog", POD_MESSAGE)
        })
        .await;
        assert!(!runs(sim, &hog, "app"));
        sim.pass(5 * MINUTE).await;
        assert_eq!(evictions(sim, "hog"), [(1, POD_MESSAGE.to_owned())]);
        assert_eq!(sim.runtime.starts(&hog, "app"), 1);
        assert!(runs(sim, &modest, "app") && runs(sim, &free, "app"));
    });
}

#[test]
fn container_over_its_own_limit_evicts_pod() {
    on_a_node(62, async |sim| {
        let hog = running(sim, pod("hog", &[("app", 10), ("side", 10)])).await;
        sim.runtime.set_layer(&hog, "side", 11 * MEBIBYTE);
        let message = "Container side exceeded its local ephemeral storage limit \"10Mi\". ";
        sim.until("it is evicted", 15 * SECOND, |sim| {
            is_evicted(sim, "hog", message)
        })
        .await;
        assert_eq!(evictions(sim, "hog"), [(1, message.to_owned())]);
    });
}

#[test]
fn hung_runtime_stats_and_disk_evict_nothing_wrongly() {
    on_a_node(63, async |sim| {
        let quiet = running(sim, pod("quiet", &[("app", 10)])).await;
        let hog = running(sim, pod("hog", &[("app", 10)])).await;
        sim.runtime
            .inject(Fault::hang(Operation::ListContainerStats));
        sim.disk.hang(true);
        sim.runtime.set_layer(&hog, "app", 11 * MEBIBYTE);
        sim.pass(5 * MINUTE).await;
        assert!(runs(sim, &quiet, "app") && runs(sim, &hog, "app"));
        // other limits are checked meanwhile
        let sized = pod("sized", &[]).container("app", "busybox:1").with(|pod| {
            let volumes = json!([{ "name": "data", "emptyDir": { "sizeLimit": "1Mi" } }]);
            let spec = pod.spec.get_or_insert_default();
            spec.volumes = serde_json::from_value(volumes).expect("volumes");
        });
        let sized = running(sim, sized).await;
        sim.files.fill_volume(&sized, "data", 2 * MEBIBYTE);
        let message = "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". ";
        sim.until("it is evicted", 30 * SECOND, |sim| {
            is_evicted(sim, "sized", message)
        })
        .await;
        sim.runtime.clear_faults();
        sim.runtime.release(Operation::ListContainerStats);
        sim.disk.hang(false);
        sim.until("it is evicted", 30 * SECOND, |sim| {
            is_evicted(sim, "hog", POD_MESSAGE)
        })
        .await;
        assert!(runs(sim, &quiet, "app"));
    });
}

/// Whether one pod was evicted.
fn is_counted(sim: &NodeSim) -> bool {
    let text = sim.metrics.render().expect("metrics");
    text.contains("kubelet_evictions{eviction_signal=\"ephemeralpodfs.limit\"} 1\n")
}

#[test]
fn agent_kill_during_eviction_leaves_no_victim() {
    for (seed, exits) in [(64, false), (65, true)] {
        on_a_node(seed, async |sim| {
            sim.runtime.set_behavior("app", Behavior::stubborn());
            sim.runtime.cut_off_stops();
            sim.kill_agent().await;
            sim.state_disk = Some(FakeStateDisk::default());
            sim.start_agent().await;
            let hog = running(sim, pod("hog", &[("app", 10)])).await;
            sim.runtime.set_layer(&hog, "app", 11 * MEBIBYTE);
            sim.until("its eviction begins", 15 * SECOND, is_counted)
                .await;
            sim.kill_agent().await;
            let container = sim.runtime.running(&hog, "app").expect("it runs");
            if exits {
                sim.runtime.kill_container(&container.id, 1);
            }
            sim.pass(10 * SECOND).await;
            sim.start_agent().await;
            sim.until("it is evicted", 30 * SECOND, |sim| {
                is_evicted(sim, "hog", POD_MESSAGE)
            })
            .await;
            sim.pass(5 * MINUTE).await;
            assert!(!runs(sim, &hog, "app"));
            assert_eq!(sim.runtime.starts(&hog, "app"), 1);
            assert!(is_counted(sim), "evicted once");
        });
    }
}

#[test]
fn pods_are_measured_every_10_s_only_with_limits() {
    on_a_node(66, async |sim| {
        let measured = |sim: &NodeSim| {
            let calls = sim.runtime.calls_of(Operation::ListContainerStats, "");
            calls.len()
        };
        let plain = PodBuilder::new("plain").bound_to("sim");
        running(sim, plain.container("app", "busybox:1")).await;
        sim.pass(5 * MINUTE).await;
        assert_eq!(measured(sim), 0);
        running(sim, pod("limited", &[("app", 10), ("side", 10)])).await;
        running(sim, pod("other", &[("app", 10)])).await;
        let before = measured(sim);
        sim.pass(MINUTE).await;
        assert_eq!(measured(sim) - before, 6);
    });
}
