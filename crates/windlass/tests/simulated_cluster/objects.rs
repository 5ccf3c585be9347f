//! Missing, slow and shared references of pods.

use serde_json::json;
use windlass_fake_api::On;
use windlass_testing::fake_runtime::Operation;
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::corev1::ConfigMap;

use crate::fixture::*;
use crate::{MINUTE, SECOND};

/// A pod whose environment comes from a ConfigMap.
fn configured(name: &str, config_map: &str) -> PodBuilder {
    pod(name).with(|pod| {
        let container = &mut pod.spec.as_mut().expect("spec").containers[0];
        let from = json!([{ "configMapRef": { "name": config_map } }]);
        container.env_from = serde_json::from_value(from).expect("envFrom");
    })
}

fn config_map(sim: &NodeSim, name: &str, key: &str, value: &str) {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.namespace = Some("default".to_owned());
    object.data = Some([(key.to_owned(), value.to_owned())].into());
    sim.api.create(&object);
}

#[test]
fn pod_waits_for_config_map_and_starts_once_present() {
    on_a_ready_node(1, async |sim| {
        // more than may start concurrently
        let waiting: Vec<_> = (0..8).map(|i| format!("w{i}")).collect();
        for name in &waiting {
            create(sim, configured(name, "settings"));
        }
        sim.until("they say what they wait for", 5 * SECOND, |sim| {
            waiting.iter().all(|name| {
                let blocker = sim.view(name).and_then(|view| view.blocker);
                blocker.is_some_and(|blocker| blocker.to_string().contains("settings"))
            })
        })
        .await;
        create(sim, pod("free"));
        sim.until("another pod is not held up", SECOND, |sim| {
            ready(sim, "free")
        })
        .await;
        sim.pass(10 * MINUTE).await;
        assert!(waiting.iter().all(|name| sim.phase(name) == "Pending"));
        let made = sim.runtime.calls_of(Operation::CreateContainer, "");
        assert_eq!(made.len(), 1, "only that of `free`");
        let reason = waiting_for(sim, "w0");
        assert_eq!(reason, "CreateContainerConfigError");
        config_map(sim, "settings", "COLOR", "blue");
        sim.until("they run", SECOND, |sim| {
            waiting.iter().all(|name| sim.phase(name) == "Running")
        })
        .await;
        let uid = windlass_types::PodExt::uid(&get(sim, "w0").expect("there"));
        let app = sim.runtime.running(&uid, "app").expect("runs");
        let env = sim.runtime.container_config(&app.id).expect("made").envs;
        assert!(
            env.iter().any(|e| format!("{e:?}").contains("COLOR")),
            "{env:?}"
        );
    });
}

#[test]
fn missing_config_map_volume_delays_sandbox() {
    on_a_ready_node(5, async |sim| {
        for i in 0..8 {
            let waiting = pod(&format!("w{i}")).with(|pod| {
                let volumes = json!([{ "name": "v", "configMap": { "name": "settings" } }]);
                let spec = pod.spec.as_mut().expect("spec");
                spec.volumes = serde_json::from_value(volumes).expect("volumes");
            });
            create(sim, waiting);
        }
        create(sim, pod("free"));
        sim.until("another pod is not held up", SECOND, |sim| {
            ready(sim, "free")
        })
        .await;
        sim.pass(5 * MINUTE).await;
        assert_eq!(waiting_for(sim, "w0"), "ContainerCreating");
        assert_eq!(sim.blocker("w0"), "FailedMount");
        let blocker = sim.view("w0").and_then(|view| view.blocker);
        let blocker = blocker.expect("a blocker").to_string();
        assert!(blocker.contains("settings"), "{blocker}");
        assert_eq!(sim.runtime.sandboxes().len(), 1, "only that of `free`");
        config_map(sim, "settings", "COLOR", "blue");
        sim.until("they run", SECOND, |sim| {
            (0..8).all(|i| sim.phase(&format!("w{i}")) == "Running")
        })
        .await;
    });
}

#[test]
fn config_map_of_110_pods_has_one_watch() {
    on_a_ready_node(2, async |sim| {
        config_map(sim, "shared", "COLOR", "blue");
        sim.api.clear_requests();
        let names: Vec<_> = (0..110).map(|i| format!("p{i}")).collect();
        for name in &names {
            create(sim, configured(name, "shared"));
        }
        sim.until("all run", MINUTE, |sim| {
            names.iter().all(|name| sim.phase(name) == "Running")
        })
        .await;
        let requests = sim.api.requests();
        let about = requests.iter().filter(|r| r.path.contains("/configmaps"));
        let about: Vec<_> = about.filter(|r| r.query.contains("shared")).collect();
        assert_eq!(about.len(), 1, "{about:#?}");
        let gets = requests
            .iter()
            .filter(|r| r.path.ends_with("/configmaps/shared"))
            .count();
        assert_eq!(gets, 0);
    });
}

#[test]
fn slow_config_map_read_delays_only_its_pods() {
    on_a_ready_node(3, async |sim| {
        config_map(sim, "slow", "COLOR", "blue");
        sim.api
            .faults()
            .slow(On::path("*/configmaps*"), 20 * SECOND);
        let slow: Vec<_> = (0..8).map(|i| format!("s{i}")).collect();
        for name in &slow {
            create(sim, configured(name, "slow"));
        }
        sim.pass(SECOND).await;
        for i in 0..8 {
            create(sim, pod(&format!("f{i}")));
        }
        sim.until("the others are ready", 2 * SECOND, |sim| {
            (0..8).all(|i| ready(sim, &format!("f{i}")))
        })
        .await;
        assert!(slow.iter().all(|name| sandbox_calls(sim, name) == 0));
        sim.until("and they later", 45 * SECOND, |sim| {
            slow.iter().all(|name| ready(sim, name))
        })
        .await;
    });
}

#[test]
fn config_map_is_watched_only_while_referenced() {
    on_a_ready_node(4, async |sim| {
        config_map(sim, "settings", "COLOR", "blue");
        create(sim, configured("web", "settings"));
        sim.until("web is ready", SECOND, |sim| ready(sim, "web"))
            .await;
        delete(sim, "web", None);
        sim.until("web is gone", 10 * SECOND, |sim| sim.view("web").is_none())
            .await;
        sim.pass(MINUTE).await;
        sim.api.clear_requests();
        sim.api.faults().close_watches();
        sim.pass(10 * MINUTE).await;
        let requests = sim.api.requests().into_iter();
        let about = requests.filter(|r| r.query.contains("settings"));
        assert_eq!(about.count(), 0, "no further request");
    });
}
