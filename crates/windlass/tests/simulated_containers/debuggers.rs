//! Ephemeral containers.

use windlass_testing::fake_runtime::{Behavior, Pull};
use windlass_testing::{NodeSim, simulate_cluster};
use windlass_types::Pod;
use windlass_types::corev1::EphemeralContainer;

use crate::fixture::{line, nothing_lives, pod, running_in_a_cluster, starts};
use crate::{IMAGE, MINUTE, SECOND};

fn add_debugger(sim: &NodeSim, name: &str, image: &str) {
    sim.api.modify::<Pod>(Some("default"), "web", |pod| {
        let spec = pod.spec.get_or_insert_default();
        let debuggers = spec.ephemeral_containers.get_or_insert_default();
        debuggers.push(EphemeralContainer {
            name: name.to_owned(),
            image: Some(image.to_owned()),
            image_pull_policy: Some("IfNotPresent".to_owned()),
            target_container_name: Some("a".to_owned()),
            ..EphemeralContainer::default()
        });
    });
}

#[test]
fn ephemeral_container_starts_once_in_running_pod() {
    simulate_cluster(6, async |sim| {
        let uid = running_in_a_cluster(sim, pod("web").container("a", IMAGE)).await;
        let a = sim.runtime.running(&uid, "a").expect("a").id;
        sim.runtime
            .set_behavior("debug", Behavior::exits(5 * SECOND, 1));
        add_debugger(sim, "debug", IMAGE);
        sim.until("the debugger runs", 3 * SECOND, |sim| {
            sim.runtime.running(&uid, "debug").is_some()
        })
        .await;
        let debugger = sim.runtime.running(&uid, "debug").expect("it runs").id;
        let config = sim.runtime.container_config(&debugger).expect("config");
        assert_eq!(config.security.pid_target, Some(a.clone()));
        sim.pass(5 * MINUTE).await;
        sim.kill_agent().await;
        sim.start_agent().await;
        sim.pass(5 * MINUTE).await;
        assert_eq!(starts(sim, &uid, ["a", "debug"]), [1, 1]);
        assert_eq!(sim.runtime.running(&uid, "a").expect("a").id, a);
        let line = line(sim, "web");
        assert!(
            line.starts_with("Running ") && line.contains("debug:Error=1"),
            "{line}"
        );
        // a running one stops with its pod
        add_debugger(sim, "second", IMAGE);
        sim.until("the second runs", 3 * SECOND, |sim| {
            sim.runtime.running(&uid, "second").is_some()
        })
        .await;
        assert!(sim.api.delete::<Pod>(Some("default"), "web", None));
        sim.until("the pod is gone", 20 * SECOND, |sim| {
            sim.api.get::<Pod>(Some("default"), "web").is_none()
        })
        .await;
        assert!(nothing_lives(sim, &uid));
        sim.runtime.assert_invariants();
    });
}

#[test]
fn failing_ephemeral_container_is_reported_and_retried() {
    simulate_cluster(7, async |sim| {
        let uid = running_in_a_cluster(sim, pod("web").container("a", IMAGE)).await;
        sim.runtime.set_pull("tools:1", Pull::not_found("tools:1"));
        add_debugger(sim, "debug", "tools:1");
        sim.until("it reports why", 5 * SECOND, |sim| {
            line(sim, "web").contains("debug:ErrImagePull")
                || line(sim, "web").contains("debug:ImagePullBackOff")
        })
        .await;
        assert_eq!(sim.phase("web"), "Running");
        sim.runtime.set_pull("tools:1", Pull::default());
        sim.until("it runs", 2 * MINUTE, |sim| {
            sim.runtime.running(&uid, "debug").is_some()
        })
        .await;
        assert_eq!(starts(sim, &uid, ["a", "debug"]), [1, 1]);
    });
}

#[test]
fn ephemeral_container_does_not_block_pod_success() {
    simulate_cluster(8, async |sim| {
        sim.runtime
            .set_behavior("a", Behavior::exits(20 * SECOND, 0));
        let once = pod("web").restart_policy("Never").container("a", IMAGE);
        let uid = running_in_a_cluster(sim, once).await;
        add_debugger(sim, "debug", IMAGE);
        sim.until("it succeeds", MINUTE, |sim| sim.phase("web") == "Succeeded")
            .await;
        sim.until("all has stopped", 20 * SECOND, |sim| {
            nothing_lives(sim, &uid)
        })
        .await;
        assert_eq!(sim.runtime.starts(&uid, "debug"), 1);
    });
}
