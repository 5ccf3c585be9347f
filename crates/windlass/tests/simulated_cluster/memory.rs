//! Swap, huge pages and memory protection: container configurations, cgroups, Node object.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_cgroups::MemoryTree;
use windlass_pod_inputs::node_facts::{MemoryQos, MemorySettings};
use windlass_runtime::CgroupSettings;
use windlass_runtime_config::pod_cgroup::NodeLimits;
use windlass_testing::{NodeSim, PodBuilder, simulate_cluster};
use windlass_types::PodUid;
use windlass_types::cri::{CgroupDriver, LinuxResources};

use crate::fixture::*;
use crate::{MINUTE, SECOND};

const GIB: i64 = 1 << 30;

/// Runs a scenario on a ready node with 8 GiB of memory and these settings.
fn with_memory(
    seed: u64,
    tree: &MemoryTree,
    memory: MemorySettings,
    scenario: impl AsyncFnOnce(&mut NodeSim),
) {
    simulate_cluster(seed, async |sim| {
        latencies(sim);
        sim.facts.memory_capacity = 8 * GIB;
        sim.machine.swap = u64::try_from(memory.swap_capacity).expect("a size");
        let sizes = memory.huge_page_sizes.iter();
        sim.machine.huge_pages = sizes.map(|size| (size / 1024, 8)).collect();
        sim.facts.memory = memory;
        sim.cgroups = Some(CgroupSettings {
            tree: Arc::new(tree.clone()),
            slices: None,
            root: String::new(),
            driver: CgroupDriver::Cgroupfs,
            node: NodeLimits::default(),
            pids_limit: None,
            reserved: Vec::new(),
            qos_memory: None,
        });
        sim.start_agent().await;
        sim.until("the node is ready", 2 * SECOND, node_ready).await;
        scenario(sim).await;
    });
}

fn with_resources(pod: PodBuilder, requests: Value, limits: Value) -> PodBuilder {
    pod.with(|pod| {
        let resources = json!({"requests": requests, "limits": limits});
        let container = &mut pod.spec.as_mut().expect("spec").containers[0];
        container.resources = serde_json::from_value(resources).expect("resources");
    })
}

/// Creates a pod and waits for it.
async fn run(sim: &NodeSim, name: &str, requests: Value, limits: Value) -> PodUid {
    let uid = create(sim, with_resources(pod(name), requests, limits));
    sim.until("it runs", 10 * SECOND, |sim| ready(sim, name))
        .await;
    uid
}

/// Resources in the configuration of the container of a pod.
fn resources(sim: &NodeSim, uid: &PodUid) -> LinuxResources {
    let running = sim.runtime.running(uid, "app").expect("runs");
    let config = sim.runtime.container_config(&running.id);
    config.expect("created").resources
}

/// A unified value of the container of a pod.
fn unified(sim: &NodeSim, uid: &PodUid, key: &str) -> Option<String> {
    resources(sim, uid).unified.get(key).cloned()
}

fn swap(limited: bool) -> MemorySettings {
    MemorySettings {
        swap_controller: true,
        limited_swap: limited,
        swap_capacity: 2 * GIB,
        ..MemorySettings::default()
    }
}

#[test]
fn container_resources_follow_requests_and_limits() {
    let tree = MemoryTree::v2();
    with_memory(125, &tree, MemorySettings::default(), async |sim| {
        let limits = json!({"cpu": "500m", "memory": "1Gi"});
        let uid = run(sim, "web", json!({"cpu": "250m"}), limits).await;
        let found = resources(sim, &uid);
        assert_eq!((found.cpu_shares, found.cpu_period), (256, 100_000));
        assert_eq!((found.cpu_quota, found.memory_limit), (50_000, GIB));
        // an eighth of the memory
        assert_eq!(found.oom_score_adj, 875);
        assert_eq!(found.memory_swap_limit, 0);
    });
}

#[test]
fn limited_swap_is_for_burstable_pods_in_proportion() {
    with_memory(120, &MemoryTree::v2(), swap(true), async |sim| {
        let status = serde_json::to_value(node(sim).and_then(|node| node.status));
        let info = &status.expect("a status")["nodeInfo"];
        assert_eq!(info["swap"]["capacity"], 2 * GIB);

        let quarter = json!({"memory": "2Gi"});
        let burstable = run(sim, "burstable", quarter.clone(), json!({})).await;
        let equal = run(sim, "equal", quarter.clone(), quarter.clone()).await;
        let best_effort = run(sim, "best-effort", json!({}), json!({})).await;
        let both = json!({"cpu": "1", "memory": "2Gi"});
        let guaranteed = run(sim, "guaranteed", json!({}), both).await;
        let critical = with_resources(pod("critical"), quarter.clone(), json!({}));
        let critical = create(
            sim,
            critical.with(|pod| {
                pod.spec.as_mut().expect("spec").priority = Some(2_000_000_000);
            }),
        );
        let manifest = with_resources(static_pod("manifest"), quarter, json!({})).build();
        let static_uid = PodUid::from("manifest-uid");
        sim.desire([manifest]).await;
        sim.until("all run", 10 * SECOND, |sim| {
            runs(sim, &critical) && runs(sim, &static_uid)
        })
        .await;

        let limit = |uid: &PodUid| unified(sim, uid, "memory.swap.max");
        assert_eq!(limit(&burstable).as_deref(), Some("536870912"));
        for uid in [&equal, &best_effort, &guaranteed, &critical, &static_uid] {
            assert_eq!(limit(uid).as_deref(), Some("0"), "{uid}");
        }
    });
}

#[test]
fn no_swap_is_enforced_on_both_cgroup_versions() {
    // LimitedSwap has no effect on cgroup v1
    for (cgroup_v2, limited) in [(true, false), (false, false), (false, true)] {
        simulate_cluster(121, async |sim| {
            latencies(sim);
            sim.facts.memory = swap(limited);
            sim.facts.memory_capacity = 8 * GIB;
            sim.facts.cgroup_v2 = cgroup_v2;
            sim.start_agent().await;
            let (requests, limits) = (json!({"memory": "1Gi"}), json!({"memory": "2Gi"}));
            let uid = run(sim, "web", requests, limits).await;
            let limit = unified(sim, &uid, "memory.swap.max");
            assert_eq!(limit.as_deref(), cgroup_v2.then_some("0"));
            let on_v1 = resources(sim, &uid).memory_swap_limit;
            assert_eq!(on_v1, if cgroup_v2 { 0 } else { 2 * GIB });
        });
    }
}

#[test]
fn huge_pages_are_limited_admitted_and_reported() {
    let pages = MemorySettings {
        huge_page_sizes: vec![2 << 20],
        ..MemorySettings::default()
    };
    for (tree, file) in [
        (MemoryTree::v2(), "hugetlb.2MB.max"),
        (
            MemoryTree::v1(&["cpu", "memory", "pids", "hugetlb"]),
            "hugetlb.2MB.limit_in_bytes",
        ),
    ] {
        with_memory(122, &tree, pages.clone(), async |sim| {
            let status = serde_json::to_value(node(sim).and_then(|node| node.status));
            let status = status.expect("a status");
            for list in ["capacity", "allocatable"] {
                assert_eq!(status[list]["hugepages-2Mi"], "16Mi");
            }
            let limits = |size: &str| json!({"memory": "64Mi", "hugepages-2Mi": size});
            let large = run(sim, "large", json!({}), limits("12Mi")).await;
            let plain = run(sim, "plain", json!({"cpu": "1"}), json!({})).await;
            for (uid, bytes) in [(&large, 12 << 20), (&plain, 0)] {
                let path = format!("/kubepods/burstable/pod{uid}/{file}");
                assert_eq!(tree.file(&path), Some(bytes.to_string()), "{path}");
                let expected = [("2MB".to_owned(), bytes)].into();
                assert_eq!(resources(sim, uid).huge_page_limits, expected);
            }
            // 4 MiB are left
            let rejected = with_resources(pod("rejected"), json!({}), limits("6Mi"));
            create(sim, rejected);
            sim.until("it is rejected", 5 * SECOND, |sim| {
                phase(sim, "rejected") == "Failed"
            })
            .await;
            let status = get(sim, "rejected").and_then(|pod| pod.status);
            let reason = status.and_then(|status| status.reason);
            assert_eq!(reason.as_deref(), Some("OutOfhugepages-2Mi"));
            run(sim, "small", json!({}), limits("4Mi")).await;
        });
    }
}

#[test]
fn memory_qos_protects_requests_until_the_policy_changes() {
    let qos = |protects_requests| {
        Some(MemoryQos {
            protects_requests,
            throttling_factor: 0.9,
            allocatable: 8 * GIB,
            page_size: 4096,
        })
    };
    let tree = MemoryTree::v2();
    let memory = MemorySettings {
        qos: qos(true),
        ..MemorySettings::default()
    };
    with_memory(123, &tree, memory, async |sim| {
        let both = json!({"cpu": "1", "memory": "1Gi"});
        let guaranteed = run(sim, "guaranteed", json!({}), both).await;
        let (requests, limits) = (json!({"memory": "256Mi"}), json!({"memory": "512Mi"}));
        let burstable = run(sim, "burstable", requests.clone(), limits.clone()).await;
        let file = |path: String| tree.file(&path).unwrap_or_default();
        let of_class = [
            ("/kubepods/memory.min", "1342177280"),
            ("/kubepods/burstable/memory.low", "268435456"),
        ];
        sim.until("the classes are protected", 5 * SECOND, |_| {
            of_class
                .iter()
                .all(|(path, bytes)| tree.file(path).as_deref() == Some(*bytes))
        })
        .await;
        let min = file(format!("/kubepods/pod{guaranteed}/memory.min"));
        assert_eq!(min, "1073741824");
        let low = file(format!("/kubepods/burstable/pod{burstable}/memory.low"));
        assert_eq!(low, "268435456");
        let value = |sim: &NodeSim, uid: &PodUid, key: &str| {
            unified(sim, uid, &format!("memory.{key}")).unwrap_or_default()
        };
        assert_eq!(value(sim, &guaranteed, "min"), "1073741824");
        assert_eq!(value(sim, &guaranteed, "high"), "");
        assert_eq!(value(sim, &burstable, "low"), "268435456");
        assert_eq!(value(sim, &burstable, "high"), "510025728");
        let metrics = sim.metrics.render().expect("text");
        for line in ["min_bytes 1073741824", "low_bytes 268435456"] {
            let line = format!("\nkubelet_memory_qos_node_memory_{line}\n");
            assert!(metrics.contains(&line), "{line}");
        }

        sim.kill_agent().await;
        sim.facts.memory.qos = qos(false);
        sim.start_agent().await;
        sim.until("the classes are not protected", 2 * MINUTE, |_| {
            of_class
                .iter()
                .all(|(path, _)| tree.file(path).as_deref() == Some("0"))
        })
        .await;
        let late = run(sim, "late", requests, limits).await;
        assert_eq!(
            file(format!("/kubepods/burstable/pod{late}/memory.low")),
            "0"
        );
        assert_eq!(value(sim, &late, "low"), "0");
        assert_eq!(value(sim, &late, "high"), "510025728");
    });
}

#[test]
fn oom_kills_whole_container_unless_configured() {
    with_memory(
        124,
        &MemoryTree::v2(),
        MemorySettings::default(),
        async |sim| {
            let whole = run(sim, "whole", json!({}), json!({})).await;
            let group = |sim: &NodeSim, uid: &PodUid| unified(sim, uid, "memory.oom.group");
            assert_eq!(group(sim, &whole).as_deref(), Some("1"));
            let metrics = sim.metrics.render().expect("text");
            assert!(!metrics.contains("kubelet_memory_qos"), "without the gate");

            sim.kill_agent().await;
            sim.facts.single_process_oom_kill = true;
            sim.start_agent().await;
            let single = run(sim, "single", json!({}), json!({})).await;
            assert_eq!(group(sim, &single), None);
        },
    );
}
