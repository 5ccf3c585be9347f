//! Reboot without an API server: pods start from an encrypted copy of their objects, if the node has
//! one.

use std::path::Path;

use serde_json::{Value, json};
use windlass_testing::fake_runtime::Behavior;
use windlass_testing::{NodeSim, PodBuilder, simulate_cluster};
use windlass_types::PodUid;
use windlass_types::corev1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret, ServiceAccount,
};

use crate::fixture::*;
use crate::{HOUR, MINUTE, SECOND};

const SECRET: &str = "correct-horse-battery-staple";

/// A node with a checkpoint of its admitted pods, and with a copy of their objects if it is `on`.
fn on_a_node_with_a_disk<R>(
    seed: u64,
    on: bool,
    scenario: impl AsyncFnOnce(&mut NodeSim, &Path) -> R,
) -> R {
    let dir = tempfile::tempdir().expect("temp dir");
    simulate_cluster(seed, async |sim| {
        latencies(sim);
        sim.admitted_pods = Some(dir.path().to_owned());
        sim.kept_objects = on.then(|| dir.path().to_owned());
        sim.start_agent().await;
        sim.until("the node is ready", 2 * SECOND, node_ready).await;
        objects(sim);
        scenario(sim, dir.path()).await
    })
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

fn objects(sim: &NodeSim) {
    let meta = |name: &str| json!({ "namespace": "default", "name": name });
    let account = json!({ "metadata": meta("default") });
    sim.api.create::<ServiceAccount>(&object(account));
    let settings = json!({ "metadata": meta("settings"), "data": { "color": "blue" } });
    sim.api.create::<ConfigMap>(&object(settings));
    let cred = json!({ "metadata": meta("cred"), "stringData": { "password": SECRET } });
    let mut cred: Secret = object(cred);
    let data = cred.string_data.take().unwrap_or_default().into_iter();
    let bytes = |text: String| k8s_openapi::ByteString(text.into_bytes());
    cred.data = Some(data.map(|(key, text)| (key, bytes(text))).collect());
    sim.api.create(&cred);
    let claim = json!({
        "metadata": meta("disk"),
        "spec": { "volumeName": "pv" },
        "status": { "phase": "Bound" },
    });
    let claim = sim.api.create::<PersistentVolumeClaim>(&object(claim));
    let uid = claim.metadata.uid;
    let volume = json!({
        "metadata": { "name": "pv" },
        "spec": {
            "hostPath": { "path": "/data" },
            "claimRef": { "namespace": "default", "name": "disk", "uid": uid },
        },
    });
    sim.api.create::<PersistentVolume>(&object(volume));
}

/// A pod with variables of a ConfigMap, a Secret, a token and a PVC.
fn full(name: &str) -> PodBuilder {
    pod(name).with(|pod| {
        let sources = json!([
            { "serviceAccountToken": { "path": "token", "expirationSeconds": 3600 } },
            { "configMap": { "name": "settings" } },
        ]);
        let volumes = json!([
            { "name": "cred", "secret": { "secretName": "cred" } },
            { "name": "api", "projected": { "sources": sources } },
            { "name": "data", "persistentVolumeClaim": { "claimName": "disk" } },
        ]);
        let spec = pod.spec.as_mut().expect("spec");
        spec.volumes = object(volumes);
        let container = &mut spec.containers[0];
        container.env_from = object(json!([{ "configMapRef": { "name": "settings" } }]));
        container.volume_mounts = object(json!([
            { "name": "cred", "mountPath": "/cred" },
            { "name": "api", "mountPath": "/api" },
            { "name": "data", "mountPath": "/data" },
        ]));
    })
}

/// The host loses power, and the API server too.
async fn power_cut(sim: &mut NodeSim) -> windlass_fake_api::FaultId {
    sim.kill_agent().await;
    sim.runtime.reboot();
    sim.volumes.reboot();
    sim.api.faults().outage()
}

/// Content of a file in a volume.
fn file(sim: &NodeSim, uid: &PodUid, volume: &str, path: &str) -> String {
    let payload = sim.volumes.payload(uid, volume).unwrap_or_default();
    let file = payload.files.get(path);
    file.map_or_else(String::new, |file| {
        String::from_utf8_lossy(&file.data).into_owned()
    })
}

fn issues(sim: &NodeSim, name: &str) -> Vec<String> {
    sim.view(name).map(|view| view.issues).unwrap_or_default()
}

fn blocker(sim: &NodeSim, name: &str) -> String {
    let blocker = sim.view(name).and_then(|view| view.blocker);
    blocker.map_or_else(String::new, |it| it.message)
}

/// Files of a directory that contain the secret, in the clear or as base64.
fn files_with_the_secret(dir: &Path) -> Vec<String> {
    // the base64 of its inner part, at each alignment
    let encoded = [
        "LWhvcnNlLWJhdHRlcnkt",
        "aG9yc2UtYmF0dGVyeS1z",
        "b3JzZS1iYXR0ZXJ5LXN0",
    ];
    let parts = ["horse-battery"].iter().chain(&encoded);
    let parts: Vec<&[u8]> = parts.map(|part| part.as_bytes()).collect();
    let entries = std::fs::read_dir(dir).expect("list");
    let paths = entries.map(|entry| entry.expect("entry").path());
    let with = paths.filter(|path| {
        let bytes = std::fs::read(path).expect("bytes");
        let has = |part: &&[u8]| bytes.windows(part.len()).any(|window| window == *part);
        parts.iter().any(has)
    });
    with.map(|path| path.display().to_string()).collect()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("list");
    let names = entries.map(|entry| entry.expect("entry").file_name());
    let mut names: Vec<_> = names
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn rebooted_pods_start_offline_with_kept_objects() {
    on_a_node_with_a_disk(81, true, async |sim, dir| {
        let web = create(sim, full("web"));
        let gone = create(sim, full("gone"));
        create(sim, pod("plain"));
        let all = ["web", "gone", "plain"];
        for name in all {
            sim.until("all run", 10 * SECOND, |sim| ready(sim, name))
                .await;
        }
        sim.pass(MINUTE).await;
        assert_eq!(
            names(dir),
            [
                "actuated_pods_state",
                "admitted_pods",
                "allocated_pods_state",
                "kept_objects",
                "kept_objects.key"
            ]
        );
        assert_eq!(files_with_the_secret(dir), [""; 0]);

        let outage = power_cut(sim).await;
        delete(sim, "gone", Some(0));
        sim.api
            .modify::<ConfigMap>(Some("default"), "settings", |map| {
                map.data = Some([("color".to_owned(), "red".to_owned())].into());
            });
        sim.start_agent().await;
        sim.pass(20 * SECOND).await;
        for name in all {
            assert_eq!(sim.blocker(name), "WaitingForApiServer", "{name}");
        }
        sim.until("all run again", 40 * SECOND, |sim| {
            [&web, &gone].iter().all(|uid| runs(sim, uid)) && sim.phase("plain") == "Running"
        })
        .await;
        assert_eq!(file(sim, &web, "cred", "password"), SECRET);
        assert_eq!(file(sim, &web, "api", "color"), "blue");
        assert!(!file(sim, &web, "api", "token").is_empty());
        for name in all {
            let issues = issues(sim, name);
            let text = "the API server is unreachable since the agent started; ConfigMaps, Secrets \
                        and tokens are those that were kept on this node at 2026-01-01T00:";
            assert!(
                issues.iter().any(|issue| issue.starts_with(text)),
                "{issues:?}"
            );
            assert_eq!(sim.blocker(name), "");
        }
        sim.pass(10 * MINUTE).await;
        assert_eq!(sim.runtime.starts(&web, "app"), 2, "once per boot");

        sim.api.faults().lift(outage);
        sim.until("the deleted pod ends", MINUTE, |sim| {
            sim.view("gone").is_none() && !runs(sim, &gone)
        })
        .await;
        sim.until("the change is seen", MINUTE, |sim| {
            file(sim, &web, "api", "color") == "red" && ready(sim, "web") && ready(sim, "plain")
        })
        .await;
        for name in ["web", "plain"] {
            sim.until("nothing is noted", 2 * MINUTE, |sim| {
                issues(sim, name).is_empty()
            })
            .await;
        }
        assert_eq!(sim.runtime.starts(&web, "app"), 2);
        sim.runtime.assert_invariants();
        assert_eq!(sim.volumes.violations(), [""; 0]);
    });
}

#[test]
fn rebooted_pods_wait_without_the_setting() {
    on_a_node_with_a_disk(82, false, async |sim, dir| {
        let web = create(sim, full("web"));
        sim.until("it runs", 10 * SECOND, |sim| ready(sim, "web"))
            .await;
        sim.pass(MINUTE).await;
        let without_objects = [
            "actuated_pods_state",
            "admitted_pods",
            "allocated_pods_state",
        ];
        assert_eq!(names(dir), without_objects);
        assert_eq!(files_with_the_secret(dir), [""; 0]);
        let outage = power_cut(sim).await;
        sim.start_agent().await;
        sim.pass(10 * MINUTE).await;
        assert_eq!(sim.blocker("web"), "WaitingForApiServer");
        assert_eq!(sim.runtime.starts(&web, "app"), 1);
        sim.api.faults().lift(outage);
        sim.until("it runs again", MINUTE, |sim| ready(sim, "web"))
            .await;
    });
}

#[test]
fn pod_that_is_newer_than_the_copy_waits() {
    on_a_node_with_a_disk(83, true, async |sim, _| {
        let web = create(sim, full("web"));
        sim.until("it runs", 10 * SECOND, |sim| ready(sim, "web"))
            .await;
        sim.pass(MINUTE).await;
        let new = create(sim, pod("new"));
        sim.until("it runs", 3 * SECOND, |sim| ready(sim, "new"))
            .await;
        let outage = power_cut(sim).await;
        sim.start_agent().await;
        sim.until("the older pod runs", MINUTE, |sim| runs(sim, &web))
            .await;
        sim.pass(5 * MINUTE).await;
        assert_eq!(sim.blocker("new"), "WaitingForApiServer");
        assert_eq!(sim.runtime.starts(&new, "app"), 1);
        sim.api.faults().lift(outage);
        sim.until("it runs", MINUTE, |sim| ready(sim, "new")).await;
    });
}

#[test]
fn expired_token_blocks_its_pod_until_the_api_server_is_back() {
    on_a_node_with_a_disk(84, true, async |sim, _| {
        let web = create(sim, full("web"));
        let plain = create(sim, pod("plain"));
        for name in ["web", "plain"] {
            sim.until("both run", 10 * SECOND, |sim| ready(sim, name))
                .await;
        }
        sim.pass(MINUTE).await;
        let outage = power_cut(sim).await;
        // the power is back after two hours
        sim.pass(2 * HOUR).await;
        sim.start_agent().await;
        sim.until("the other pod runs", MINUTE, |sim| runs(sim, &plain))
            .await;
        sim.pass(MINUTE).await;
        assert_eq!(sim.blocker("web"), "FailedMount");
        let why = blocker(sim, "web");
        assert!(
            why.contains("failed to fetch token: the kept token expired at"),
            "{why}"
        );
        assert_eq!(sim.runtime.starts(&web, "app"), 1);
        sim.api.faults().lift(outage);
        sim.until("it runs", MINUTE, |sim| ready(sim, "web")).await;
    });
}

#[test]
fn container_restarts_after_agent_restart_in_an_outage() {
    on_a_node_with_a_disk(85, true, async |sim, _| {
        sim.runtime
            .set_behavior("default/crash/app", Behavior::exits(5 * SECOND, 1));
        let crash = create(sim, full("crash"));
        let quiet = create(sim, full("quiet"));
        sim.until("both run", 10 * SECOND, |sim| {
            ready(sim, "quiet") && runs(sim, &crash)
        })
        .await;
        sim.pass(MINUTE).await;
        // only the agent restarts
        sim.kill_agent().await;
        sim.api.faults().outage();
        let before = sim.runtime.starts(&crash, "app");
        sim.start_agent().await;
        sim.until("it restarts", 6 * MINUTE, |sim| {
            sim.runtime.starts(&crash, "app") > before + 1
        })
        .await;
        assert_eq!(sim.runtime.starts(&quiet, "app"), 1);
    });
}

#[test]
fn reachable_api_server_is_used_instead_of_the_copy() {
    on_a_node_with_a_disk(86, true, async |sim, _| {
        let gone = create(sim, full("gone"));
        let web = create(sim, full("web"));
        for name in ["web", "gone"] {
            sim.until("both run", 10 * SECOND, |sim| ready(sim, name))
                .await;
        }
        sim.pass(MINUTE).await;
        let outage = power_cut(sim).await;
        delete(sim, "gone", Some(0));
        sim.start_agent().await;
        // the network of the host is up after 20 s
        sim.pass(20 * SECOND).await;
        sim.api.faults().lift(outage);
        sim.until("one runs", MINUTE, |sim| {
            ready(sim, "web") && runs(sim, &web)
        })
        .await;
        sim.until("the other is forgotten", MINUTE, |sim| {
            sim.view("gone").is_none()
        })
        .await;
        assert_eq!(sim.runtime.starts(&gone, "app"), 1);
    });
}
