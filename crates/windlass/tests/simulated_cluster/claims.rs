//! Pods with PVCs: waiting, independence of other pods, and API server outages.

use serde_json::{Value, json};
use windlass_fake_api::On;
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::corev1::{ConfigMap, PersistentVolume, PersistentVolumeClaim};

use crate::fixture::*;
use crate::{MINUTE, SECOND};

/// A pod whose container mounts one volume.
fn with_volume(name: &str, mut volume: Value) -> PodBuilder {
    volume["name"] = json!("v");
    pod(name).with(|pod| {
        let spec = pod.spec.as_mut().expect("spec");
        spec.volumes = serde_json::from_value(json!([volume])).expect("volumes");
        let mounts = json!([{ "name": "v", "mountPath": "/v" }]);
        spec.containers[0].volume_mounts = serde_json::from_value(mounts).expect("mounts");
    })
}

fn with_claim(name: &str, claim: &str) -> PodBuilder {
    with_volume(
        name,
        json!({ "persistentVolumeClaim": { "claimName": claim } }),
    )
}

/// A bound PVC and its volume, a directory of the node.
fn bound_claim(sim: &NodeSim, name: &str) {
    let claim = json!({
        "metadata": { "namespace": "default", "name": name },
        "spec": { "volumeName": format!("pv-{name}") },
        "status": { "phase": "Bound" },
    });
    let claim: PersistentVolumeClaim = serde_json::from_value(claim).expect("claim");
    let uid = sim.api.create(&claim).metadata.uid;
    let volume = json!({
        "metadata": { "name": format!("pv-{name}") },
        "spec": {
            "hostPath": { "path": "/data" },
            "claimRef": { "namespace": "default", "name": name, "uid": uid },
        },
    });
    let volume: PersistentVolume = serde_json::from_value(volume).expect("volume");
    sim.api.create(&volume);
}

#[test]
fn pods_wait_for_pvcs_and_start_within_seconds() {
    on_a_ready_node(61, async |sim| {
        let waiting: Vec<_> = (0..8).map(|i| format!("w{i}")).collect();
        for name in &waiting {
            create(sim, with_claim(name, "data"));
        }
        sim.until("they say what they wait for", 5 * SECOND, |sim| {
            waiting
                .iter()
                .all(|name| sim.blocker(name) == "FailedMount")
        })
        .await;
        let blocker = sim.view("w0").and_then(|view| view.blocker);
        let blocker = blocker.expect("a blocker").to_string();
        assert!(
            blocker.contains("error processing PVC default/data"),
            "{blocker}"
        );
        create(sim, pod("free"));
        sim.until("another pod is not held up", SECOND, |sim| {
            ready(sim, "free")
        })
        .await;
        // a waiting pod can be deleted
        delete(sim, "w0", None);
        sim.until("it is gone", 10 * SECOND, |sim| get(sim, "w0").is_none())
            .await;
        sim.pass(MINUTE).await;
        assert_eq!(sim.runtime.sandboxes().len(), 1, "only that of `free`");
        bound_claim(sim, "data");
        // after a minute the interval is about eight seconds
        sim.until("they run", 12 * SECOND, |sim| {
            waiting[1..]
                .iter()
                .all(|name| phase(sim, name) == "Running")
        })
        .await;
    });
}

#[test]
fn cached_pvc_allows_container_restart_without_api_server() {
    on_a_ready_node(62, async |sim| {
        bound_claim(sim, "data");
        let uid = create(sim, with_claim("p", "data"));
        sim.until("it runs", MINUTE, |sim| ready(sim, "p")).await;
        sim.api.faults().down(On::any());
        sim.api.faults().close_watches();
        sim.pass(MINUTE).await;
        let first = sim.runtime.running(&uid, "app").expect("runs");
        sim.runtime.kill_container(&first.id, 1);
        // every read of the PVC times out
        sim.until("it runs again", MINUTE, |sim| {
            let now = sim.runtime.running(&uid, "app");
            now.is_some_and(|now| now.id != first.id)
        })
        .await;
    });
}

#[test]
fn config_map_change_reaches_110_pods_within_two_seconds() {
    on_a_ready_node(63, async |sim| {
        let map = |color: &str| -> ConfigMap {
            let map = json!({
                "metadata": { "namespace": "default", "name": "shared" },
                "data": { "COLOR": color },
            });
            serde_json::from_value(map).expect("map")
        };
        sim.api.create(&map("blue"));
        let names: Vec<_> = (0..110).map(|i| format!("p{i}")).collect();
        let volume = json!({ "configMap": { "name": "shared" } });
        let uids: Vec<_> = names
            .iter()
            .map(|name| create(sim, with_volume(name, volume.clone())))
            .collect();
        sim.until("all run", MINUTE, |sim| {
            names.iter().all(|name| ready(sim, name))
        })
        .await;
        sim.pass(5 * SECOND).await;
        sim.api.clear_requests();
        let green = map("green").data;
        sim.api
            .modify::<ConfigMap>(Some("default"), "shared", |map| map.data = green);
        let shows = |sim: &NodeSim| {
            uids.iter().all(|uid| {
                let payload = sim.volumes.payload(uid, "v");
                payload.is_some_and(|payload| &*payload.files["COLOR"].data == b"green")
            })
        };
        sim.until("all show it", 2 * SECOND, shows).await;
        let requests = sim.api.requests();
        let about = requests.iter().filter(|r| r.path.contains("configmaps"));
        assert_eq!(about.count(), 0, "the watch told it: {requests:#?}");
    });
}
