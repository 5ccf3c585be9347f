//! Many volumes: hung, idle for an hour, or waiting for a driver.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_csi::{CsiClient, NodeInfo, RegisteredDriver};
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::corev1::{ConfigMap, Secret, ServiceAccount};
use windlass_types::{Pod, PodUid};
use windlass_volumes::VolumeStep;

use crate::fixture::*;
use crate::volumes::{DRIVER, count, disk, has_disk, object, staged, with_disk};
use crate::{HOUR, MINUTE, SECOND};

/// A pod with these volumes, each mounted.
fn with_volumes(name: &str, volumes: &[Value]) -> PodBuilder {
    let mounts: Vec<Value> = volumes
        .iter()
        .map(
            |volume| json!({ "name": volume["name"], "mountPath": format!("/{}", volume["name"]) }),
        )
        .collect();
    let volumes = volumes.to_vec();
    pod(name).with(move |pod: &mut Pod| {
        let spec = pod.spec.as_mut().expect("spec");
        spec.volumes = object(json!(volumes));
        spec.containers[0].volume_mounts = object(json!(mounts));
    })
}

fn objects(sim: &NodeSim) {
    let name = |name: &str| json!({ "name": name, "namespace": "default" });
    let map = json!({ "metadata": name("shared"), "data": { "key": "value" } });
    sim.api.create::<ConfigMap>(&object(map));
    let secret = json!({ "metadata": name("credentials"), "data": { "key": "dmFsdWU=" } });
    sim.api.create::<Secret>(&object(secret));
    let account = json!({ "metadata": name("default") });
    sim.api.create::<ServiceAccount>(&object(account));
}

fn map_volume() -> Value {
    json!({ "name": "map", "configMap": { "name": "shared" } })
}

/// Creates a pod with a ConfigMap volume; returns the virtual time until it runs.
async fn start(sim: &NodeSim, name: &str) -> Duration {
    let begin = sim.now();
    let uid = create(sim, with_volumes(name, &[map_volume()]));
    sim.until("it runs", 10 * SECOND, |sim| runs(sim, &uid))
        .await;
    sim.now().duration_since(begin).unsigned_abs()
}

#[test]
fn hung_200_volumes_delay_no_pod_with_config_map() {
    on_a_ready_node(71, async |sim| {
        objects(sim);
        let before = start(sim, "before").await;
        let nfs = json!({ "name": "data", "nfs": { "server": "gone", "path": "/export" } });
        for index in 0..200 {
            let uid = create(
                sim,
                with_volumes(&format!("hangs-{index}"), std::slice::from_ref(&nfs)),
            );
            let volume = format!("{uid}/data");
            sim.volumes.hang(VolumeStep::Mount, &volume, true);
        }
        sim.until("all of them hang", MINUTE, |sim| {
            count(sim, "mount ") >= 201
        })
        .await;
        for round in 0..10 {
            let during = start(sim, &format!("during-{round}")).await;
            // the scenario polls every 50 ms
            assert!(
                during <= before + SECOND / 20,
                "{during:?}, {before:?} before"
            );
            sim.pass(7 * SECOND).await;
        }
        assert_eq!(sim.blocker("hangs-0"), "FailedMount");
        assert_eq!(sim.volumes.violations(), [""; 0]);
    });
}

/// Messages between actors in an hour in which nothing happens to 110 pods, and how often the
/// agent's thread woke; so many of the pods have four volumes.
fn an_hour(full: usize) -> (u64, u64) {
    on_a_ready_node(72, async |sim| {
        objects(sim);
        let four = [
            map_volume(),
            json!({ "name": "secret", "secret": { "secretName": "credentials" } }),
            json!({ "name": "scratch", "emptyDir": {} }),
            json!({ "name": "token", "projected": { "sources": [
                { "serviceAccountToken": { "path": "token", "expirationSeconds": 86400 } },
                { "configMap": { "name": "shared" } },
            ]}}),
        ];
        for index in 0..110 {
            let builder = match index < full {
                true => with_volumes(&format!("web-{index}"), &four),
                false => pod(&format!("web-{index}")),
            };
            create(sim, builder);
        }
        sim.until("all are ready", 5 * MINUTE, |sim| {
            (0..110).all(|index| ready(sim, &format!("web-{index}")))
        })
        .await;
        sim.pass(5 * MINUTE).await;
        let counts = |sim: &NodeSim| {
            let text = sim.metrics.render().expect("metrics");
            let lines = text.lines();
            let lines = lines.filter(|line| line.starts_with("windlass_mailbox_messages_total"));
            let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
            let runtime = tokio::runtime::Handle::current().metrics();
            (values.sum::<u64>(), runtime.worker_park_count(0))
        };
        let before = counts(sim);
        sim.pass(HOUR).await;
        let after = counts(sim);
        (after.0 - before.0, after.1 - before.1)
    })
}

#[test]
fn idle_hour_with_440_volumes_wakes_no_actor() {
    // objects have one watch for all pods
    let (one, all) = std::thread::scope(|scope| {
        let one = scope.spawn(|| an_hour(1));
        let all = an_hour(110);
        (one.join().expect("an hour"), all)
    });
    assert_eq!(all.0, one.0, "messages");
    // timers that end in the same millisecond are one wake-up: a few more or less, but not one for
    // each pod
    let more = all.1.abs_diff(one.1);
    assert!(more < 109, "{} wake-ups, {} without volumes", all.1, one.1);
    assert!(one.0 > 110 && one.1 > 3600, "pods are synced: {one:?}");
}

#[test]
fn pod_is_torn_down_once_driver_registers() {
    on_a_ready_node(73, async |sim| {
        disk(sim, false);
        let uid: PodUid = create(sim, with_disk("web"));
        sim.until("it is ready", 5 * SECOND, |sim| ready(sim, "web"))
            .await;
        let volume = format!("{uid}/pv-disk");
        sim.volumes
            .fail(VolumeStep::Unmount, &volume, Some("no driver"));
        delete(sim, "web", Some(1));
        sim.until("it was tried", MINUTE, |sim| count(sim, "unmount ") > 3)
            .await;
        assert!(staged(sim) && get(sim, "web").is_some());
        sim.volumes.fail(VolumeStep::Unmount, &volume, None);
        let tried = count(sim, "unmount ");
        let node = CsiClient::new(DRIVER, Path::new("/nonexistent"), sim.metrics.clone());
        let driver = RegisteredDriver {
            node: Arc::new(node),
            info: NodeInfo::default(),
        };
        sim.csi_drivers.add(DRIVER, driver);
        // the interval is at least five seconds
        sim.until("it is gone", SECOND, |sim| get(sim, "web").is_none())
            .await;
        assert!(!staged(sim) && !has_disk(sim, &uid));
        assert_eq!(count(sim, "unmount "), tried + 1);
        assert_eq!(sim.volumes.violations(), [""; 0]);
    });
}
