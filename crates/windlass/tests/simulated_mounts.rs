//! Mounts of containers on a virtual clock: image volumes, subpaths, and mounts in the pod status.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all are tests

use std::time::Duration;

use serde_json::{Value, json};
use windlass_testing::fake_runtime::Pull;
use windlass_testing::{NodeSim, PodBuilder, simulate};
use windlass_types::cri::RuntimeHandler;
use windlass_types::{Pod, PodExt};

const SECOND: Duration = Duration::from_secs(1);
const MODEL: &str = "registry.local/model:1";

/// A pod with these containers, the empty directory `data` and the image `model`.
fn pod(name: &str, containers: Value) -> Pod {
    let mut containers = containers;
    for container in containers.as_array_mut().expect("a list") {
        container["image"] = json!("busybox:1");
    }
    let spec = json!({
        "containers": containers,
        "volumes": [
            {"name": "data", "emptyDir": {}},
            {"name": "model", "image": {"reference": MODEL, "pullPolicy": "IfNotPresent"}},
        ],
    });
    let builder = PodBuilder::new(name);
    builder
        .with(|pod| pod.spec = Some(serde_json::from_value(spec).expect("a pod spec")))
        .build()
}

/// State of a container as the pod's status shows it: `running`, or why it waits.
fn state(sim: &NodeSim, pod: &str, container: &str) -> String {
    let Some(view) = sim.view(pod) else {
        return "unknown".to_owned();
    };
    let mut all = view.status.container_statuses.iter().flatten();
    let found = all.find(|status| status.name == container);
    let state = found.and_then(|status| status.state.clone());
    let state = state.unwrap_or_default();
    let waits = state.waiting.and_then(|waiting| waiting.reason);
    waits.unwrap_or_else(|| match state.running {
        Some(_) => "running".to_owned(),
        None => "unknown".to_owned(),
    })
}

#[test]
fn image_volume_pull_delays_only_its_container() {
    simulate(31, async |sim| {
        sim.runtime.add_image("busybox:1");
        sim.runtime.set_pull(MODEL, Pull::not_found(MODEL));
        let web = pod(
            "web",
            json!([
                {"name": "plain"},
                {"name": "user", "volumeMounts": [{"name": "model", "mountPath": "/m"}]},
            ]),
        );
        let uid = web.uid();
        sim.start_agent().await;
        sim.desire([web]).await;
        sim.until("the image cannot be pulled", 30 * SECOND, |sim| {
            state(sim, "web", "plain") == "running" && state(sim, "web", "user") == "ErrImagePull"
        })
        .await;
        // the back-off survives the restart
        sim.kill_agent().await;
        sim.runtime.set_pull(MODEL, Pull::default());
        sim.start_agent().await;
        sim.until("it runs once the image is there", 90 * SECOND, |sim| {
            state(sim, "web", "user") == "running"
        })
        .await;
        let user = sim.runtime.running(&uid, "user").expect("it runs");
        let config = sim.runtime.container_config(&user.id).expect("its own");
        let mounted = config.mounts[0].image.as_ref().expect("an image");
        assert_eq!(mounted.user_specified_image, MODEL);
        assert!(config.mounts[0].readonly);
        assert_eq!(sim.runtime.starts(&uid, "plain"), 1);
    });
}

#[test]
fn status_reports_recursive_read_only_mounts() {
    let check = |can: bool, expected: &str| {
        simulate(32, async |sim| {
            sim.runtime.add_image("busybox:1");
            let handler = RuntimeHandler {
                recursive_read_only_mounts: can,
                ..RuntimeHandler::default()
            };
            sim.runtime.set_features(vec![handler], None);
            let mount = json!({
                "name": "data", "mountPath": "/x", "readOnly": true,
                "recursiveReadOnly": "IfPossible",
            });
            sim.start_agent().await;
            sim.desire([pod("web", json!([{"name": "a", "volumeMounts": [mount]}]))])
                .await;
            let reported = |sim: &NodeSim| {
                let statuses = sim.view("web")?.status.container_statuses.clone()?;
                statuses[0].volume_mounts.clone()?[0]
                    .recursive_read_only
                    .clone()
            };
            sim.until("it runs", 30 * SECOND, |sim| {
                state(sim, "web", "a") == "running"
            })
            .await;
            assert_eq!(reported(sim).as_deref(), Some(expected));
        });
    };
    check(true, "Enabled");
    check(false, "Disabled");
}

#[test]
fn escaping_subpath_blocks_container_until_fixed() {
    simulate(33, async |sim| {
        sim.runtime.add_image("busybox:1");
        sim.files.lead_out("current", true);
        let mount = json!({"name": "data", "mountPath": "/x", "subPath": "current"});
        let web = pod(
            "web",
            json!([{"name": "a", "volumeMounts": [mount]}, {"name": "b"}]),
        );
        sim.start_agent().await;
        sim.desire([web]).await;
        sim.until("it is refused", 30 * SECOND, |sim| {
            let refused = state(sim, "web", "a") == "CreateContainerConfigError";
            refused && state(sim, "web", "b") == "running"
        })
        .await;
        sim.files.lead_out("current", false);
        sim.until("it is tried again by itself", 15 * SECOND, |sim| {
            state(sim, "web", "a") == "running"
        })
        .await;
    });
}
