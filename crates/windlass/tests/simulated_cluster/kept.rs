//! Objects deleted while mounted, and objects polled instead of watched.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_fake_api::On;
use windlass_pod_inputs::object_polling::ChangeDetection;
use windlass_testing::{NodeSim, PodBuilder, simulate_cluster};
use windlass_types::corev1::{ConfigMap, Secret};
use windlass_types::{PodUid, Reason};

use crate::fixture::*;
use crate::{MINUTE, SECOND};

/// A pod whose container has these volumes and variables.
fn showing(name: &str, volumes: &[(&str, Value)], env_from: Value) -> PodBuilder {
    let named = volumes.iter().map(|(name, source)| {
        let mut volume = source.clone();
        volume["name"] = json!(name);
        volume
    });
    let named: Vec<_> = named.collect();
    let mounts = volumes
        .iter()
        .map(|(name, _)| json!({ "name": name, "mountPath": format!("/{name}") }));
    let mounts: Vec<_> = mounts.collect();
    pod(name).with(|pod| {
        let spec = pod.spec.as_mut().expect("spec");
        spec.volumes = serde_json::from_value(json!(named)).expect("volumes");
        let container = &mut spec.containers[0];
        container.volume_mounts = serde_json::from_value(json!(mounts)).expect("mounts");
        container.env_from = serde_json::from_value(env_from).expect("envFrom");
    })
}

fn config_map(sim: &NodeSim, name: &str, keys: &[(&str, &str)]) {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.namespace = Some("default".to_owned());
    let pairs = keys.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    object.data = Some(pairs.collect());
    sim.api.create(&object);
}

fn change(sim: &NodeSim, name: &str, keys: &[(&str, &str)]) {
    let pairs = keys.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    sim.api.modify::<ConfigMap>(Some("default"), name, |map| {
        map.data = Some(pairs.collect());
    });
}

fn secret(sim: &NodeSim, name: &str) {
    let object = json!({
        "metadata": { "namespace": "default", "name": name },
        "data": { "password": "c2VjcmV0" },
    });
    let object: Secret = serde_json::from_value(object).expect("secret");
    sim.api.create(&object);
}

/// Content of a volume in a pod, as `file=content`.
fn sees(sim: &NodeSim, uid: &PodUid, volume: &str) -> String {
    let Some(payload) = sim.volumes.payload(uid, volume) else {
        return "nothing".to_owned();
    };
    let files = payload.files.iter();
    let files = files.map(|(path, file)| {
        let text = String::from_utf8_lossy(&file.data);
        format!("{path}={text}")
    });
    files.collect::<Vec<_>>().join(" ")
}

/// Issues of a pod in `explain`.
fn notes(sim: &NodeSim, name: &str) -> Vec<String> {
    sim.view(name).map(|view| view.issues).unwrap_or_default()
}

fn has_event(sim: &NodeSim, name: &str, part: &str) -> bool {
    let events = sim.view(name).map(|view| view.events).unwrap_or_default();
    let failed = |e: &windlass_types::view::PodEvent| e.reason == Reason::FailedMount;
    events
        .iter()
        .any(|event| failed(event) && event.message.contains(part))
}

/// The container exits.
fn dies(sim: &NodeSim, uid: &PodUid) {
    let app = sim.runtime.running(uid, "app").expect("runs");
    sim.runtime.kill_container(&app.id, 1);
}

const NO_SETTINGS: &str =
    "MountVolume.SetUp failed for volume \"conf\" : configmap \"settings\" not found";

/// A pod with volumes of a ConfigMap, a Secret and one key of another ConfigMap, and these objects.
async fn with_everything(sim: &NodeSim) -> PodUid {
    config_map(sim, "settings", &[("color", "blue")]);
    config_map(sim, "parts", &[("one", "1"), ("two", "2")]);
    secret(sim, "cred");
    let one = json!([{ "key": "one", "path": "one" }]);
    let sources = json!([{ "configMap": { "name": "parts", "items": one } }]);
    let volumes = [
        ("conf", json!({ "configMap": { "name": "settings" } })),
        ("cred", json!({ "secret": { "secretName": "cred" } })),
        ("part", json!({ "projected": { "sources": sources } })),
    ];
    let uid = create(sim, showing("web", &volumes, json!([])));
    sim.until("it is ready", 5 * SECOND, |sim| ready(sim, "web"))
        .await;
    uid
}

/// Deletes all objects; of one only the mounted key.
fn take_everything(sim: &NodeSim) {
    sim.api
        .delete::<ConfigMap>(Some("default"), "settings", None);
    sim.api.delete::<Secret>(Some("default"), "cred", None);
    change(sim, "parts", &[("two", "2")]);
}

fn sees_what_it_saw(sim: &NodeSim, uid: &PodUid) {
    assert_eq!(sees(sim, uid, "conf"), "color=blue");
    assert_eq!(sees(sim, uid, "cred"), "password=secret");
    assert_eq!(sees(sim, uid, "part"), "one=1");
}

#[test]
fn container_restarts_with_mounted_payload_of_missing_objects() {
    on_a_ready_node(71, async |sim| {
        let uid = with_everything(sim).await;
        take_everything(sim);
        sim.until("it is reported and persisted", 2 * SECOND, |sim| {
            has_event(sim, "web", NO_SETTINGS) && notes(sim, "web").len() == 3
        })
        .await;
        assert_eq!(
            notes(sim, "web"),
            [
                NO_SETTINGS,
                "MountVolume.SetUp failed for volume \"part\" : \
                 configmap references non-existent config key: one",
                "MountVolume.SetUp failed for volume \"cred\" : secret \"cred\" not found",
            ]
        );
        assert_eq!(sim.blocker("web"), "", "nothing keeps it from anything");
        dies(sim, &uid);
        sim.until("it is restarted", 20 * SECOND, |sim| {
            restarts(sim, "web") == 1 && ready(sim, "web")
        })
        .await;
        sees_what_it_saw(sim, &uid);
        sim.pass(10 * MINUTE).await;
        sees_what_it_saw(sim, &uid);
        // they are recreated, one with a change
        config_map(sim, "settings", &[("color", "red")]);
        change(sim, "parts", &[("one", "1")]);
        secret(sim, "cred");
        sim.until("the file is updated", 2 * SECOND, |sim| {
            sees(sim, &uid, "conf") == "color=red" && notes(sim, "web").is_empty()
        })
        .await;
        assert_eq!(restarts(sim, "web"), 1);
    });
}

#[test]
fn mounted_payload_is_used_after_agent_restart() {
    on_a_ready_node(72, async |sim| {
        let uid = with_everything(sim).await;
        let fresh = json!({ "configMap": { "name": "settings" } });
        sim.kill_agent().await;
        take_everything(sim);
        dies(sim, &uid);
        // a pod without the mounted volume waits
        create(sim, showing("new", &[("conf", fresh)], json!([])));
        sim.start_agent().await;
        sim.until("it is restarted", 30 * SECOND, |sim| {
            restarts(sim, "web") == 1 && ready(sim, "web")
        })
        .await;
        sees_what_it_saw(sim, &uid);
        assert_eq!(notes(sim, "web").len(), 3);
        assert!(has_event(sim, "web", NO_SETTINGS));
        assert_eq!(sim.blocker("new"), "FailedMount");
        assert_eq!(sandbox_calls(sim, "new"), 0);
        config_map(sim, "settings", &[("color", "red")]);
        sim.until("both see it", 3 * SECOND, |sim| {
            ready(sim, "new") && sees(sim, &uid, "conf") == "color=red"
        })
        .await;
    });
}

#[test]
fn missing_env_object_blocks_restart_but_volume_does_not() {
    on_a_ready_node(73, async |sim| {
        config_map(sim, "settings", &[("color", "blue")]);
        let volumes = [("conf", json!({ "configMap": { "name": "settings" } }))];
        let from = json!([{ "configMapRef": { "name": "settings" } }]);
        let uid = create(sim, showing("web", &volumes, from));
        sim.until("it is ready", 5 * SECOND, |sim| ready(sim, "web"))
            .await;
        sim.api
            .delete::<ConfigMap>(Some("default"), "settings", None);
        dies(sim, &uid);
        sim.until("it reports what it lacks", 20 * SECOND, |sim| {
            waiting_for(sim, "web") == "CreateContainerConfigError"
        })
        .await;
        assert_eq!(notes(sim, "web"), [NO_SETTINGS]);
        assert_eq!(sees(sim, &uid, "conf"), "color=blue");
        config_map(sim, "settings", &[("color", "red")]);
        // the attempt counted as a restart: the next has a back-off of ten seconds
        sim.until("it runs", 15 * SECOND, |sim| ready(sim, "web"))
            .await;
        assert_eq!(sees(sim, &uid, "conf"), "color=red");
    });
}

/// Runs a scenario on a ready node with the strategy of this name.
fn reading<R>(strategy: &str, seed: u64, scenario: impl AsyncFnOnce(&mut NodeSim) -> R) -> R {
    simulate_cluster(seed, async |sim| {
        latencies(sim);
        sim.change_detection = ChangeDetection::parse(strategy).expect("a strategy");
        sim.start_agent().await;
        sim.until("the node is ready", 2 * SECOND, node_ready).await;
        scenario(sim).await
    })
}

/// Reads of the ConfigMap `settings`, and watches of any.
fn requests(sim: &NodeSim) -> (usize, usize) {
    let requests = sim.api.requests();
    let reads = requests
        .iter()
        .filter(|r| r.path.ends_with("/configmaps/settings"));
    let watches = requests.iter().filter(|r| r.path.ends_with("/configmaps"));
    (reads.count(), watches.count())
}

#[test]
fn polled_object_change_is_seen_on_next_sync() {
    for (strategy, limit) in [("Get", 90), ("Cache", 180)] {
        reading(strategy, 74, async |sim| {
            config_map(sim, "settings", &[("color", "blue")]);
            let volumes = [("conf", json!({ "configMap": { "name": "settings" } }))];
            let uid = create(sim, showing("web", &volumes, json!([])));
            sim.until("it is ready", 5 * SECOND, |sim| ready(sim, "web"))
                .await;
            sim.pass(5 * MINUTE).await;
            change(sim, "settings", &[("color", "red")]);
            let limit = Duration::from_secs(limit);
            sim.until("the file is updated", limit, |sim| {
                sees(sim, &uid, "conf") == "color=red"
            })
            .await;
            sim.api
                .delete::<ConfigMap>(Some("default"), "settings", None);
            sim.until("its end is noted", limit, |sim| {
                notes(sim, "web") == [NO_SETTINGS]
            })
            .await;
            dies(sim, &uid);
            sim.until("it is restarted", 20 * SECOND, |sim| {
                restarts(sim, "web") == 1 && ready(sim, "web")
            })
            .await;
            config_map(sim, "settings", &[("color", "green")]);
            // a pod with nothing to start is checked on its next sync
            sim.until("it is back", limit, |sim| {
                sees(sim, &uid, "conf") == "color=green" && notes(sim, "web").is_empty()
            })
            .await;
            assert_eq!(requests(sim).1, 0, "{strategy} watches nothing");
        });
    }
}

#[test]
fn pod_waiting_for_unwatched_object_keeps_polling() {
    reading("Get", 75, async |sim| {
        let volumes = [("conf", json!({ "configMap": { "name": "settings" } }))];
        create(sim, showing("web", &volumes, json!([])));
        sim.until("it waits", 5 * SECOND, |sim| {
            sim.blocker("web") == "FailedMount"
        })
        .await;
        sim.pass(10 * MINUTE).await;
        sim.api.clear_requests();
        sim.pass(10 * MINUTE).await;
        let (reads, _) = requests(sim);
        assert!((10..=30).contains(&reads), "{reads} in ten minutes");
        config_map(sim, "settings", &[("color", "blue")]);
        sim.until("it runs", 35 * SECOND, |sim| ready(sim, "web"))
            .await;
    });
}

#[test]
fn polled_config_map_of_110_pods_is_read_once() {
    for (strategy, at_start, later) in [("Get", 60, 2200), ("Cache", 60, 25)] {
        reading(strategy, 76, async |sim| {
            config_map(sim, "settings", &[("color", "blue")]);
            // a slow server
            sim.api
                .faults()
                .slow(On::path("*/configmaps/settings"), SECOND / 5);
            let names: Vec<_> = (0..110).map(|i| format!("p{i}")).collect();
            let volumes = [("conf", json!({ "configMap": { "name": "settings" } }))];
            for name in &names {
                create(sim, showing(name, &volumes, json!([])));
            }
            sim.until("all run", 2 * MINUTE, |sim| {
                names.iter().all(|name| sim.phase(name) == "Running")
            })
            .await;
            let (reads, watches) = requests(sim);
            assert!(reads <= at_start, "{strategy}: {reads} reads to start");
            assert_eq!(watches, 0);
            sim.pass(MINUTE).await;
            sim.api.clear_requests();
            sim.pass(10 * MINUTE).await;
            let (reads, _) = requests(sim);
            assert!(reads <= later, "{strategy}: {reads} in ten minutes");
        });
    }
}
