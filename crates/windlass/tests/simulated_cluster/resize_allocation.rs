//! Resizes: a changed spec changes nothing until the node has allocated it.

use std::sync::Arc;

use serde_json::json;
use windlass_cgroups::MemoryTree;
use windlass_runtime::CgroupSettings;
use windlass_runtime_config::pod_cgroup::NodeLimits;
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::cri::CgroupDriver;
use windlass_types::{Pod, PodUid};

use crate::fixture::*;
use crate::{MINUTE, SECOND};

/// A pod that requests CPUs (of 1000 on the node) and as much memory as it may use.
fn sized(name: &str, cpus: &str, memory: &str) -> PodBuilder {
    pod(name).with(|pod| resize(pod, cpus, memory))
}

fn resize(pod: &mut Pod, cpus: &str, memory: &str) {
    let resources = json!({
        "requests": { "cpu": cpus, "memory": memory },
        "limits": { "memory": memory },
    });
    let spec = pod.spec.get_or_insert_default();
    spec.containers[0].resources = serde_json::from_value(resources).expect("resources");
}

/// Changes the sizes at the API server.
fn request_resize(sim: &NodeSim, name: &str, cpus: &str, memory: &str) {
    sim.api
        .modify::<Pod>(Some("default"), name, |pod| resize(pod, cpus, memory));
}

fn cgroups(tree: &MemoryTree) -> CgroupSettings {
    CgroupSettings {
        tree: Arc::new(tree.clone()),
        slices: None,
        root: String::new(),
        driver: CgroupDriver::Cgroupfs,
        node: NodeLimits {
            milli_cpu: 1_000_000,
            memory: 1 << 42,
            pids: 1000,
        },
        pids_limit: None,
        reserved: Vec::new(),
        qos_memory: None,
    }
}

/// CPU shares and memory limit of the container and of the cgroup of its pod.
fn sizes(sim: &NodeSim, tree: &MemoryTree, uid: &PodUid) -> [String; 2] {
    let running = sim.runtime.running(uid, "app").expect("a container");
    let config = sim.runtime.container_config(&running.id).expect("a config");
    let resources = config.resources;
    let file = |name: &str| {
        let path = format!("/kubepods/burstable/pod{uid}/{name}");
        tree.file(&path).unwrap_or_default()
    };
    [
        format!("{} {}", resources.cpu_shares, resources.memory_limit),
        format!("{} {}", file("cpu.shares"), file("memory.limit_in_bytes")),
    ]
}

async fn restart_container(sim: &NodeSim, uid: &PodUid) {
    let running = sim.runtime.running(uid, "app").expect("a container");
    sim.runtime.kill_container(&running.id, 1);
    sim.until("it restarts", 2 * MINUTE, |sim| {
        let now = sim.runtime.running(uid, "app");
        now.is_some_and(|now| now.id != running.id)
    })
    .await;
}

#[test]
fn sizes_that_are_not_allocated_change_nothing() {
    on_a_ready_node(201, async |sim| {
        let dir = tempfile::tempdir().expect("a directory");
        let tree = MemoryTree::v1(&["cpu", "memory", "pids"]);
        sim.kill_agent().await;
        sim.cgroups = Some(cgroups(&tree));
        sim.admitted_pods = Some(dir.path().to_owned());
        sim.start_agent().await;
        let web = create(sim, sized("web", "2", "64Mi"));
        sim.until("it runs", 10 * SECOND, |sim| ready(sim, "web"))
            .await;
        let allocated = ["2048 67108864", "2048 67108864"].map(str::to_owned);
        assert_eq!(sizes(sim, &tree, &web), allocated);

        // more than the node has
        request_resize(sim, "web", "2000", "32Mi");
        sim.pass(5 * SECOND).await;
        restart_container(sim, &web).await;
        assert_eq!(sizes(sim, &tree, &web), allocated);
        // the allocated value is counted
        create(sim, sized("large", "900", "1Gi"));
        sim.until("another runs", 5 * SECOND, |sim| ready(sim, "large"))
            .await;

        sim.kill_agent().await;
        sim.start_agent().await;
        sim.until("the agent knows it", MINUTE, |sim| {
            sim.phase("web") == "Running"
        })
        .await;
        restart_container(sim, &web).await;
        assert_eq!(sizes(sim, &tree, &web), allocated);
        let next = create(sim, sized("next", "98", "1Gi"));
        sim.until("another runs", 5 * SECOND, |sim| runs(sim, &next))
            .await;
    });
}
