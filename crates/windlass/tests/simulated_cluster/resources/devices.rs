//! Devices of plugins.

use windlass_container_manager::StateFile;
use windlass_testing::NodeSim;
use windlass_types::PodUid;

use super::{config, failure, pod_with};
use crate::fixture::*;
use crate::{MINUTE, SECOND};

const GPU: &str = "vendor.com/gpu";
const NIC: &str = "vendor.com/nic";

/// Number of devices in capacity and allocatable of the node.
fn counts(sim: &NodeSim) -> [Option<String>; 2] {
    let status = node(sim).and_then(|node| node.status).unwrap_or_default();
    [status.capacity, status.allocatable].map(|list| {
        let amount = list.as_ref().and_then(|list| list.get(GPU));
        amount.map(|amount| amount.0.clone())
    })
}

fn has(sim: &NodeSim, capacity: &str, allocatable: &str) -> bool {
    counts(sim) == [Some(capacity.to_owned()), Some(allocatable.to_owned())]
}

/// Device nodes of the running container.
fn devices(sim: &NodeSim, uid: &PodUid) -> Vec<String> {
    let devices = config(sim, uid).devices.into_iter();
    devices.map(|device| device.host_path).collect()
}

async fn until_ready(sim: &NodeSim, name: &str) {
    sim.until("the pod is ready", 10 * SECOND, |sim| ready(sim, name))
        .await;
}

#[test]
fn pod_gets_devices_and_frees_them_at_its_end() {
    on_a_ready_node(1, async |sim| {
        sim.devices
            .register(GPU, &[("gpu0", true), ("gpu1", true), ("gpu2", false)]);
        sim.until("the node has devices", SECOND, |sim| has(sim, "3", "2"))
            .await;
        let first = create(sim, pod_with("first", &[(GPU, "2")]));
        until_ready(sim, "first").await;
        assert_eq!(devices(sim, &first), ["/dev/gpu0", "/dev/gpu1"]);
        let file = sim.devices.file(StateFile::Devices).expect("a checkpoint");
        assert!(file.contains(first.as_str()), "{file}");
        // no device is left
        create(sim, pod_with("late", &[(GPU, "1")]));
        sim.until("it fails", 10 * SECOND, |sim| {
            phase(sim, "late") == "Failed"
        })
        .await;
        let expected = "UnexpectedAdmissionError: Pod was rejected: Allocate failed due to \
                        requested number of devices unavailable for vendor.com/gpu. Requested: 1, \
                        Available: 0, which is unexpected";
        assert_eq!(failure(sim, "late"), expected);
        delete(sim, "first", None);
        sim.until("first is gone", 20 * SECOND, |sim| {
            get(sim, "first").is_none()
        })
        .await;
        let next = create(sim, pod_with("next", &[(GPU, "1")]));
        until_ready(sim, "next").await;
        assert_eq!(devices(sim, &next), ["/dev/gpu0"]);
    });
}

#[test]
fn pod_keeps_devices_over_kill_and_waits_for_plugin() {
    on_a_ready_node(2, async |sim| {
        sim.devices.register(GPU, &[("gpu0", true), ("gpu1", true)]);
        sim.until("the node has devices", SECOND, |sim| has(sim, "2", "2"))
            .await;
        let kept = create(sim, pod_with("kept", &[(GPU, "1")]));
        until_ready(sim, "kept").await;
        sim.kill_agent().await;
        let new = create(sim, pod_with("new", &[(GPU, "1")]));
        sim.start_agent().await;
        sim.until("it waits", MINUTE, |sim| {
            sim.blocker("new") == "WaitingForResources"
        })
        .await;
        sim.pass(30 * SECOND).await;
        // a running pod is not affected, and the capacity is 0 until the plugin registers
        assert!(runs(sim, &kept));
        assert_eq!(phase(sim, "kept"), "Running");
        assert!(has(sim, "0", "0"));
        let blocker = sim.view("new").and_then(|entry| entry.blocker);
        let message = blocker.map(|blocker| blocker.message);
        let expected = "waiting for the device plugin of vendor.com/gpu";
        assert_eq!(message.as_deref(), Some(expected));
        sim.devices.register(GPU, &[("gpu0", true), ("gpu1", true)]);
        until_ready(sim, "new").await;
        assert_eq!(devices(sim, &new), ["/dev/gpu1"]);
        assert_eq!(sim.devices.allocations().len(), 2);
    });
}

#[test]
fn wait_for_a_plugin_is_bounded() {
    on_a_ready_node(3, async |sim| {
        sim.devices.register(GPU, &[("gpu0", true)]);
        sim.until("the node has devices", SECOND, |sim| has(sim, "1", "1"))
            .await;
        sim.kill_agent().await;
        sim.start_agent().await;
        create(sim, pod_with("web", &[(GPU, "1")]));
        sim.until("it waits", MINUTE, |sim| {
            sim.blocker("web") == "WaitingForResources"
        })
        .await;
        // upstream's suite gives it a minute
        sim.until("it fails", 50 * SECOND, |sim| phase(sim, "web") == "Failed")
            .await;
        let text = failure(sim, "web");
        let prefix = "UnexpectedAdmissionError: Pod was rejected: Allocate failed due to ";
        assert!(text.starts_with(prefix) && text.contains(GPU), "{text}");
    });
}

#[test]
fn pod_keeps_devices_over_a_reboot_if_plugin_registers_in_time() {
    for registers in [true, false] {
        on_a_ready_node(8, async |sim| {
            sim.devices.register(GPU, &[("gpu0", true), ("gpu1", true)]);
            sim.until("the node has devices", SECOND, |sim| has(sim, "2", "2"))
                .await;
            let uid = create(sim, pod_with("web", &[(GPU, "1")]));
            until_ready(sim, "web").await;
            sim.kill_agent().await;
            sim.runtime.reboot();
            sim.start_agent().await;
            sim.until("it waits", MINUTE, |sim| {
                sim.blocker("web") == "WaitingForResources"
            })
            .await;
            assert!(!runs(sim, &uid));
            if registers {
                sim.devices.register(GPU, &[("gpu0", true), ("gpu1", true)]);
                sim.until("it runs again", 20 * SECOND, |sim| runs(sim, &uid))
                    .await;
                assert_eq!(devices(sim, &uid), ["/dev/gpu0"]);
            } else {
                sim.until("it fails", 50 * SECOND, |sim| phase(sim, "web") == "Failed")
                    .await;
                let expected = "UnexpectedAdmissionError: Pod was rejected: Allocate failed due \
                                to no healthy devices present; cannot allocate unhealthy devices \
                                vendor.com/gpu, which is unexpected";
                assert_eq!(failure(sim, "web"), expected);
            }
        });
    }
}

#[test]
fn pod_that_waits_for_a_plugin_can_be_deleted() {
    on_a_ready_node(4, async |sim| {
        sim.devices.register(GPU, &[("gpu0", true)]);
        sim.until("the node has devices", SECOND, |sim| has(sim, "1", "1"))
            .await;
        sim.kill_agent().await;
        sim.start_agent().await;
        create(sim, pod_with("web", &[(GPU, "1")]));
        sim.until("it waits", MINUTE, |sim| {
            sim.blocker("web") == "WaitingForResources"
        })
        .await;
        delete(sim, "web", None);
        sim.until("it is gone", 20 * SECOND, |sim| get(sim, "web").is_none())
            .await;
        sim.devices.register(GPU, &[("gpu0", true)]);
        sim.pass(MINUTE).await;
        assert!(sim.devices.allocations().is_empty());
    });
}

#[test]
fn hung_plugin_delays_only_its_pods() {
    on_a_ready_node(5, async |sim| {
        sim.devices.register(GPU, &[("gpu0", true)]);
        sim.devices.register(NIC, &[("nic0", true)]);
        sim.devices.hang(GPU, true);
        sim.until("the node has devices", SECOND, |sim| has(sim, "1", "1"))
            .await;
        create(sim, pod_with("hung", &[(GPU, "1")]));
        sim.pass(SECOND).await;
        create(sim, pod_with("nic", &[(NIC, "1")]));
        create(sim, pod("plain"));
        until_ready(sim, "nic").await;
        until_ready(sim, "plain").await;
        sim.until("the call is shown", 10 * SECOND, |sim| {
            sim.blocker("hung") == "WaitingForResources"
        })
        .await;
        sim.until("it fails", 2 * MINUTE, |sim| phase(sim, "hung") == "Failed")
            .await;
        let text = failure(sim, "hung");
        assert!(text.contains("context deadline exceeded"), "{text}");
        // its device is free again
        sim.devices.hang(GPU, false);
        create(sim, pod_with("next", &[(GPU, "1")]));
        until_ready(sim, "next").await;
    });
}

#[test]
fn ended_plugin_leaves_capacity_for_five_minutes() {
    on_a_ready_node(6, async |sim| {
        sim.devices.register(GPU, &[("gpu0", true)]);
        sim.until("the node has devices", SECOND, |sim| has(sim, "1", "1"))
            .await;
        let uid = create(sim, pod_with("web", &[(GPU, "1")]));
        until_ready(sim, "web").await;
        sim.devices.register(NIC, &[("nic0", true)]);
        sim.pass(SECOND).await;
        // its grace period ends earlier
        sim.devices.stop(NIC);
        sim.pass(10 * SECOND).await;
        sim.devices.stop(GPU);
        sim.until("no device is healthy", 20 * SECOND, |sim| {
            has(sim, "1", "0")
        })
        .await;
        sim.pass(4 * MINUTE).await;
        assert!(has(sim, "1", "0"), "{:?}", counts(sim));
        sim.until("no device is left", 2 * MINUTE, |sim| has(sim, "0", "0"))
            .await;
        assert!(runs(sim, &uid));
        sim.devices.register(GPU, &[("gpu0", true)]);
        sim.until("it is back", 20 * SECOND, |sim| has(sim, "1", "1"))
            .await;
    });
}

#[test]
fn kill_after_allocation_converges_to_the_same_devices() {
    for milliseconds in [0, 5, 20, 60, 120, 200] {
        on_a_ready_node(7, async |sim| {
            sim.devices.register(GPU, &[("gpu0", true), ("gpu1", true)]);
            sim.until("the node has devices", SECOND, |sim| has(sim, "2", "2"))
                .await;
            let uid = create(sim, pod_with("web", &[(GPU, "1")]));
            sim.until("the plugin was called", SECOND, |sim| {
                !sim.devices.allocations().is_empty()
            })
            .await;
            sim.pass(std::time::Duration::from_millis(milliseconds))
                .await;
            sim.kill_agent().await;
            sim.start_agent().await;
            sim.pass(2 * SECOND).await;
            sim.devices.register(GPU, &[("gpu0", true), ("gpu1", true)]);
            until_ready(sim, "web").await;
            assert_eq!(devices(sim, &uid), ["/dev/gpu0"], "{milliseconds}");
            sim.runtime.assert_invariants();
        });
    }
}

#[test]
fn health_of_devices_is_in_the_status_of_their_container() {
    on_a_ready_node(9, async |sim| {
        sim.devices.register(GPU, &[("gpu0", true)]);
        sim.until("the node has devices", SECOND, |sim| has(sim, "1", "1"))
            .await;
        create(sim, pod_with("web", &[(GPU, "1")]));
        until_ready(sim, "web").await;
        let health = |sim: &NodeSim| {
            let status = get(sim, "web").and_then(|pod| pod.status);
            let containers = status.and_then(|status| status.container_statuses);
            let container = containers?.into_iter().next()?;
            let resource = container.allocated_resources_status?.into_iter().next()?;
            let device = resource.resources?.into_iter().next()?;
            Some(format!(
                "{} {} {}",
                resource.name, device.resource_id, device.health?
            ))
        };
        let expected = |health: &str| Some(format!("{GPU} gpu0 {health}"));
        assert_eq!(health(sim), expected("Healthy"));
        sim.devices.list(GPU, &[("gpu0", false)]);
        sim.until("it is reported", 10 * SECOND, |sim| {
            health(sim) == expected("Unhealthy")
        })
        .await;
        sim.until("allocatable shrinks", 20 * SECOND, |sim| has(sim, "1", "0"))
            .await;
        assert!(ready(sim, "web"));
    });
}

#[test]
fn damaged_checkpoint_is_set_aside() {
    on_a_ready_node(8, async |sim| {
        sim.kill_agent().await;
        sim.devices.set_file(StateFile::Devices, "{\"Data\": 7");
        sim.start_agent().await;
        sim.devices.register(GPU, &[("gpu0", true)]);
        create(sim, pod("plain"));
        until_ready(sim, "plain").await;
        sim.until("the node has devices", 20 * SECOND, |sim| {
            has(sim, "1", "1")
        })
        .await;
    });
}
