//! Limits of all pods and of daemons, with cgroups that do not accept them at first.

use std::sync::Arc;

use windlass_cgroups::MemoryTree;
use windlass_runtime::CgroupSettings;
use windlass_runtime_config::node_cgroups::{Daemons, NodeLimit};
use windlass_runtime_config::pod_cgroup::{CgroupValues, NodeLimits};
use windlass_testing::{NodeSim, simulate_cluster};
use windlass_types::corev1::Event;
use windlass_types::cri::CgroupDriver;

use crate::fixture::*;
use crate::{MINUTE, SECOND};

const ENFORCED: &str = "NodeAllocatableEnforced";
/// I/O queue of the cgroups of all pods.
const NODE_QUEUE: &str = "cgroup:node:cgroups";
const FAILED: &str = "FailedNodeAllocatableEnforcement";

fn settings(tree: &MemoryTree) -> CgroupSettings {
    CgroupSettings {
        tree: Arc::new(tree.clone()),
        slices: None,
        root: String::new(),
        driver: CgroupDriver::Cgroupfs,
        node: NodeLimits {
            milli_cpu: 2000,
            memory: 1 << 30,
            pids: 100,
        },
        pids_limit: None,
        reserved: vec![NodeLimit::Reserved {
            daemons: Daemons::Kube,
            compressible: false,
            cgroup: "/daemons".to_owned(),
            values: Some(CgroupValues {
                memory_limit: Some(1 << 20),
                ..CgroupValues::default()
            }),
        }],
        qos_memory: None,
    }
}

/// Messages of the node's events with this reason, with their counts.
fn messages(sim: &NodeSim, reason: &str) -> Vec<(i32, String)> {
    let events = sim.api.list::<Event>().into_iter();
    let of_node = events.filter(|event| event.involved_object.kind.as_deref() == Some("Node"));
    let with_reason = of_node.filter(|event| event.reason.as_deref() == Some(reason));
    let mut messages: Vec<_> = with_reason
        .map(|event| (event.count.unwrap_or(1), event.message.unwrap_or_default()))
        .collect();
    messages.sort();
    messages
}

/// Starts a node whose cgroup file system hangs.
fn on_a_node_with_hung_cgroups(seed: u64, scenario: impl AsyncFnOnce(&mut NodeSim, MemoryTree)) {
    simulate_cluster(seed, async |sim| {
        latencies(sim);
        let tree = MemoryTree::v1(&["cpu", "memory", "pids"]);
        sim.cgroups = Some(settings(&tree));
        sim.files.hang_queue(NODE_QUEUE, true);
        sim.start_agent().await;
        scenario(sim, tree).await;
    });
}

#[test]
fn node_is_ready_after_cgroups_of_pods_exist() {
    on_a_node_with_hung_cgroups(92, async |sim, tree| {
        sim.pass(5 * SECOND).await;
        assert!(!node_ready(sim));
        assert_eq!(tree.cgroups(), Vec::<String>::new());
        sim.files.hang_queue(NODE_QUEUE, false);
        sim.until("the node is ready", 2 * SECOND, node_ready).await;
        for path in ["/kubepods", "/kubepods/burstable", "/kubepods/besteffort"] {
            assert!(tree.cgroups().contains(&format!("memory:{path}")), "{path}");
        }
    });
}

#[test]
fn hung_cgroup_file_system_delays_readiness_by_10_s() {
    on_a_node_with_hung_cgroups(93, async |sim, _| {
        sim.pass(9 * SECOND).await;
        assert!(!node_ready(sim));
        sim.until("the node is ready", 2 * SECOND, node_ready).await;
        create(sim, pod("web"));
        sim.pass(5 * SECOND).await;
        assert!(!ready(sim, "web"));
        sim.files.hang_queue(NODE_QUEUE, false);
        sim.until("the pod runs", 10 * SECOND, |sim| ready(sim, "web"))
            .await;
    });
}

#[test]
fn failed_limits_are_retried_each_minute_with_events() {
    on_a_ready_node(91, async |sim| {
        let tree = MemoryTree::v1(&["cpu", "memory", "pids"]);
        tree.set_read_only("pids");
        sim.kill_agent().await;
        sim.cgroups = Some(settings(&tree));
        sim.start_agent().await;
        create(sim, pod("web"));
        sim.until("a pod runs", 10 * SECOND, |sim| ready(sim, "web"))
            .await;
        let pods = "Failed to update Node Allocatable Limits [\"kubepods\"]: cgroup /kubepods \
                    does not exist or lacks controllers: pids";
        let daemons = "Failed to enforce Kube Reserved Cgroup Limits on \"/daemons\": cgroup \
                       /daemons does not exist or lacks controllers: memory";
        sim.until("both fail", 10 * SECOND, |sim| {
            messages(sim, FAILED).len() == 2
        })
        .await;
        let expected = [(1, daemons.to_owned()), (1, pods.to_owned())];
        assert_eq!(messages(sim, FAILED), expected);
        assert_eq!(messages(sim, ENFORCED), []);

        tree.enter("memory", "/daemons", 7, false);
        sim.until("the daemons are limited", 65 * SECOND, |sim| {
            messages(sim, ENFORCED).len() == 1
        })
        .await;
        let limited = "Updated limits on kube reserved cgroup /daemons";
        assert_eq!(messages(sim, ENFORCED)[0].1, limited);
        let limit = tree.file("/daemons/memory.limit_in_bytes");
        assert_eq!(limit.as_deref(), Some("1048576"));

        tree.set_writable("pids");
        sim.until("the pods are limited", 65 * SECOND, |sim| {
            messages(sim, ENFORCED).len() == 2
        })
        .await;
        assert_eq!(tree.file("/kubepods/pids.max").as_deref(), Some("100"));
        // both are set: nothing more happens
        let failures = messages(sim, FAILED);
        sim.pass(5 * MINUTE).await;
        assert_eq!(messages(sim, FAILED), failures);
        assert!(ready(sim, "web"));
    });
}
