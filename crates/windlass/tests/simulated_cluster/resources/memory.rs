//! Memory of NUMA nodes.

use std::collections::BTreeMap;

use serde_json::json;
use windlass_container_manager::StateFile;
use windlass_resource_managers::memory::{MemoryConfig, MemoryPolicy, reserved_memory};
use windlass_testing::fake_runtime::Behavior;
use windlass_testing::{NodeSim, PodBuilder, simulate_cluster};
use windlass_topology::NumaNode;
use windlass_topology::fake::FakeMachine;
use windlass_types::PodUid;

use super::{config, failure, pod_with};
use crate::SECOND;
use crate::fixture::*;

/// Runs a scenario on a node with two NUMA nodes of 1 GiB and the policy `Static`; 256 MiB of node 0
/// are reserved.
fn on_static_memory(seed: u64, scenario: impl AsyncFnOnce(&mut NodeSim)) {
    simulate_cluster(seed, async |sim| {
        latencies(sim);
        let machine = FakeMachine {
            nodes: 2,
            sockets: 2,
            cores: 2,
            memory: NumaNode {
                memory: 1 << 30,
                ..NumaNode::default()
            },
            ..FakeMachine::default()
        }
        .build();
        let amount = "256Mi".parse().expect("a quantity");
        let amounts = BTreeMap::from([("memory".to_owned(), amount)]);
        let reserved = reserved_memory(&[(0, amounts.clone())], &amounts, &machine);
        sim.resources.memory = MemoryConfig {
            policy: MemoryPolicy::Static,
            reserved: reserved.expect("it adds up"),
            pod_level: false,
        };
        sim.resources.machine = machine;
        sim.start_agent().await;
        sim.until("the node is ready", 2 * SECOND, node_ready).await;
        scenario(sim).await;
    });
}

fn memory_nodes(sim: &NodeSim, uid: &PodUid) -> String {
    config(sim, uid).resources.cpuset_mems
}

async fn start(sim: &mut NodeSim, pod: PodBuilder, name: &str) -> PodUid {
    let uid = create(sim, pod);
    sim.until("the pod is ready", 10 * SECOND, |sim| ready(sim, name))
        .await;
    uid
}

#[test]
fn guaranteed_pods_have_memory_of_a_node_and_keep_it() {
    on_static_memory(1, async |sim| {
        let limits = [("cpu", "100m"), ("memory", "512Mi")];
        let first = start(sim, pod_with("first", &limits), "first").await;
        let second = start(sim, pod_with("second", &limits), "second").await;
        let other = start(sim, pod("other"), "other").await;
        assert_eq!(memory_nodes(sim, &first), "0");
        assert_eq!(memory_nodes(sim, &second), "1");
        assert_eq!(memory_nodes(sim, &other), "");
        create(
            sim,
            pod_with("third", &[("cpu", "100m"), ("memory", "600Mi")]),
        );
        sim.until("it fails", 10 * SECOND, |sim| {
            phase(sim, "third") == "Failed"
        })
        .await;
        assert_eq!(
            failure(sim, "third"),
            "UnexpectedAdmissionError: Pod was rejected: Allocate failed due to [memorymanager] \
             failed to get the default NUMA affinity, no NUMA nodes with enough memory is \
             available, which is unexpected"
        );
        sim.kill_agent().await;
        sim.start_agent().await;
        sim.pass(20 * SECOND).await;
        delete(sim, "first", None);
        sim.until("it is gone", 20 * SECOND, |sim| get(sim, "first").is_none())
            .await;
        // node 1 is still used by the second pod
        let limits = [("cpu", "100m"), ("memory", "700Mi")];
        let fourth = start(sim, pod_with("fourth", &limits), "fourth").await;
        assert_eq!(memory_nodes(sim, &fourth), "0");
    });
}

#[test]
fn pod_beyond_the_memory_of_the_node_is_counted() {
    on_static_memory(3, async |sim| {
        create(sim, pod_with("web", &[("cpu", "100m"), ("memory", "8Ti")]));
        sim.until("it fails", 10 * SECOND, |sim| phase(sim, "web") == "Failed")
            .await;
        let text = failure(sim, "web");
        assert!(text.contains("[memorymanager]"), "{text}");
        let families = &sim.metrics.resource_managers;
        assert_eq!(families.memory_requests.get(), 1.0);
        assert_eq!(families.memory_errors.get(), 1.0);
    });
}

#[test]
fn memory_of_ended_init_container_is_free() {
    on_static_memory(2, async |sim| {
        sim.runtime
            .set_behavior("default/web/setup", Behavior::exits(SECOND, 0));
        let limits = json!({"cpu": "100m", "memory": "512Mi"});
        let pod = pod_with("web", &[("cpu", "100m"), ("memory", "256Mi")]).init_container_with(
            "setup",
            "busybox:1",
            |container| {
                let resources = json!({"limits": limits, "requests": limits});
                container.resources = serde_json::from_value(resources).expect("resources");
            },
        );
        let web = start(sim, pod, "web").await;
        assert_eq!(memory_nodes(sim, &web), "0");
        // 512 MiB of node 0 are left only without the init container
        let limits = [("cpu", "100m"), ("memory", "512Mi")];
        let next = start(sim, pod_with("next", &limits), "next").await;
        assert_eq!(memory_nodes(sim, &next), "0");
    });
}

#[test]
fn state_files_are_written_from_the_start_to_the_stop() {
    on_static_memory(4, async |sim| {
        sim.kill_agent().await;
        sim.devices.remove_file(StateFile::Memory);
        sim.start_agent().await;
        let agent = sim.agent().expect("runs").clone();
        let writes = agent.assigned.state_writes();
        writes.first_ended().await;
        let first = sim.devices.file(StateFile::Memory).expect("the file");
        assert!(first.contains("\"policyName\":\"Static\""), "{first}");
        writes.stop().await;
        sim.until("the node is ready", 2 * SECOND, node_ready).await;
        let limits = [("cpu", "1"), ("memory", "512Mi")];
        create(sim, pod_with("late", &limits));
        sim.pass(20 * SECOND).await;
        assert_eq!(sim.devices.file(StateFile::Memory), Some(first));
        assert!(!ready(sim, "late"), "its memory is not on the disk");
    });
}
