//! Exclusive CPUs, the shared pool, and alignment.

use serde_json::json;
use windlass_resource_managers::cpu::CpuSettings;
use windlass_resource_managers::topology::{TopologyConfig, TopologyPolicy};
use windlass_testing::fake_runtime::{Behavior, Operation};
use windlass_testing::{NodeSim, simulate_cluster};
use windlass_topology::fake::FakeMachine;
use windlass_types::{Pod, PodExt, PodUid};

use super::{config, failure, pod_with};
use crate::SECOND;
use crate::fixture::*;

/// Runs a scenario on a node with two NUMA nodes of four cores each and the policy `static`; CPU 0
/// is reserved.
fn on_static_cpus(seed: u64, policy: TopologyPolicy, scenario: impl AsyncFnOnce(&mut NodeSim)) {
    simulate_cluster(seed, async |sim| {
        latencies(sim);
        sim.resources.machine = FakeMachine {
            nodes: 2,
            sockets: 2,
            cores: 8,
            threads: 1,
            ..FakeMachine::default()
        }
        .build();
        sim.resources.cpus = CpuSettings {
            is_static: true,
            reserved_milli: 1000,
            ..CpuSettings::default()
        };
        sim.resources.topology = TopologyConfig {
            policy,
            ..TopologyConfig::default()
        };
        sim.start_agent().await;
        sim.until("the node is ready", 2 * SECOND, node_ready).await;
        scenario(sim).await;
    });
}

fn cpus(sim: &NodeSim, uid: &PodUid) -> String {
    config(sim, uid).resources.cpuset_cpus
}

async fn until_ready(sim: &NodeSim, name: &str) {
    sim.until("the pod is ready", 10 * SECOND, |sim| ready(sim, name))
        .await;
}

#[test]
fn resize_during_an_agent_restart_waits_only_for_admission() {
    on_static_cpus(8, TopologyPolicy::None, async |sim| {
        let dir = tempfile::tempdir().expect("a directory");
        sim.kill_agent().await;
        sim.admitted_pods = Some(dir.path().to_owned());
        sim.start_agent().await;
        let limits = [("cpu", "2"), ("memory", "64Mi")];
        create(sim, pod_with("exclusive", &limits));
        until_ready(sim, "exclusive").await;
        sim.pass(SECOND).await;
        sim.kill_agent().await;
        sim.api.modify::<Pod>(Some("default"), "exclusive", |pod| {
            let spec = pod.spec.get_or_insert_default();
            let resources = json!({"requests": limits_of("96Mi"), "limits": limits_of("96Mi")});
            spec.containers[0].resources = serde_json::from_value(resources).expect("resources");
        });
        sim.start_agent().await;
        sim.until("it is resized", 20 * SECOND, |sim| {
            !sim.runtime
                .calls_of(Operation::UpdateContainer, "")
                .is_empty()
        })
        .await;
    });
}

fn limits_of(memory: &str) -> serde_json::Value {
    json!({"cpu": "2", "memory": memory})
}

#[test]
fn exclusive_cpus_are_free_when_their_pod_has_succeeded() {
    on_static_cpus(9, TopologyPolicy::None, async |sim| {
        let limits = [("cpu", "5"), ("memory", "64Mi")];
        let exclusive = |name| pod_with(name, &limits).restart_policy("Never");
        sim.runtime.script("app", vec![Behavior::exits(SECOND, 0)]);
        create(sim, exclusive("first"));
        until_ready(sim, "first").await;
        // a CNI plugin takes its time
        sim.runtime
            .set_latency(Operation::StopPodSandbox, 8 * SECOND);
        let phase = |sim: &NodeSim, name| get(sim, name).and_then(|pod| pod.status?.phase);
        sim.until("first has succeeded", 20 * SECOND, |sim| {
            phase(sim, "first").as_deref() == Some("Succeeded")
        })
        .await;
        create(sim, exclusive("second"));
        until_ready(sim, "second").await;
    });
}

#[test]
fn exclusive_cpus_leave_the_shared_pool_and_return() {
    on_static_cpus(1, TopologyPolicy::None, async |sim| {
        let shared = create(sim, pod("shared"));
        until_ready(sim, "shared").await;
        assert_eq!(cpus(sim, &shared), "0-7");
        let limits = [("cpu", "2"), ("memory", "64Mi")];
        let exclusive = create(sim, pod_with("exclusive", &limits));
        until_ready(sim, "exclusive").await;
        let resources = config(sim, &exclusive).resources;
        assert_eq!(resources.cpuset_cpus, "1-2");
        assert_eq!(resources.cpu_quota, -1);
        sim.until("the pool shrinks", SECOND, |sim| {
            cpus(sim, &shared) == "0,3-7"
        })
        .await;
        let families = &sim.metrics.resource_managers;
        assert_eq!(families.exclusive_cpus.get(), 2.0);
        assert_eq!(families.shared_pool.get(), 5000.0);
        assert_eq!(families.cpu_requests.get(), 1.0);
        // fractions are of the shared pool
        let limits = [("cpu", "1500m"), ("memory", "64Mi")];
        let fraction = create(sim, pod_with("fraction", &limits));
        until_ready(sim, "fraction").await;
        let resources = config(sim, &fraction).resources;
        assert_eq!(resources.cpuset_cpus, "0,3-7");
        assert_eq!(resources.cpu_quota, 150_000);
        // after a kill nothing changes
        sim.kill_agent().await;
        sim.start_agent().await;
        sim.pass(20 * SECOND).await;
        assert_eq!(cpus(sim, &exclusive), "1-2");
        delete(sim, "exclusive", None);
        sim.until("it is gone", 20 * SECOND, |sim| {
            get(sim, "exclusive").is_none()
        })
        .await;
        sim.until("the pool grows", SECOND, |sim| cpus(sim, &shared) == "0-7")
            .await;
    });
}

#[test]
fn pod_without_alignment_is_rejected() {
    on_static_cpus(2, TopologyPolicy::SingleNumaNode, async |sim| {
        let fits = create(sim, pod_with("fits", &[("cpu", "3"), ("memory", "64Mi")]));
        until_ready(sim, "fits").await;
        assert_eq!(cpus(sim, &fits), "1-3");
        create(sim, pod_with("wide", &[("cpu", "5"), ("memory", "64Mi")]));
        sim.until("it fails", 10 * SECOND, |sim| {
            phase(sim, "wide") == "Failed"
        })
        .await;
        let expected = "TopologyAffinityError: Pod was rejected: Resources cannot be allocated \
                        with Topology locality";
        assert_eq!(failure(sim, "wide"), expected);
        let text = sim.metrics.render().expect("text");
        let counts = |line: &str| {
            text.lines()
                .any(|it| it.starts_with("kubelet_") && it.ends_with(line))
        };
        assert!(
            counts("failure_count{boundary=\"numa_node\",scope=\"container\"} 1"),
            "{text}"
        );
        assert!(
            counts("failure_count{boundary=\"numa_node\",scope=\"pod\"} 0"),
            "{text}"
        );
        assert!(
            counts("resources_count{boundary=\"physical_cpu\",scope=\"container\"} 0"),
            "{text}"
        );
        let next = create(sim, pod_with("next", &[("cpu", "4"), ("memory", "64Mi")]));
        until_ready(sim, "next").await;
        assert_eq!(cpus(sim, &next), "4-7");
    });
}

#[test]
fn pod_beyond_the_node_is_counted_by_its_manager() {
    on_static_cpus(6, TopologyPolicy::None, async |sim| {
        let counted = |sim: &NodeSim| {
            let families = &sim.metrics.resource_managers;
            let errors = families.cpu_errors.get();
            [
                families.cpu_requests.get(),
                errors,
                families.exclusive_cpus.get(),
            ]
        };
        let failed = |name: &'static str| move |sim: &NodeSim| phase(sim, name) == "Failed";
        // sysctls are checked before the managers
        let forbidden = pod_with("sysctl", &[("cpu", "1001"), ("memory", "64Mi")]).with(|pod| {
            let sysctls = json!({"sysctls": [{"name": "kernel.panic", "value": "1"}]});
            let spec = pod.spec.as_mut().expect("spec");
            spec.security_context = serde_json::from_value(sysctls).expect("sysctls");
        });
        create(sim, forbidden);
        sim.until("it fails", 10 * SECOND, failed("sysctl")).await;
        assert!(failure(sim, "sysctl").starts_with("SysctlForbidden"));
        assert_eq!(counted(sim), [0.0, 0.0, 0.0]);
        // the manager rejects it
        create(
            sim,
            pod_with("cpus", &[("cpu", "1001"), ("memory", "64Mi")]),
        );
        sim.until("it fails", 10 * SECOND, failed("cpus")).await;
        let expected = "UnexpectedAdmissionError: Pod was rejected: Allocate failed due to not \
                        enough cpus available to satisfy request: requested=1001, available=7, \
                        which is unexpected";
        assert_eq!(failure(sim, "cpus"), expected);
        assert_eq!(counted(sim), [1.0, 1.0, 0.0]);
        // the manager admits it
        create(sim, pod_with("memory", &[("cpu", "2"), ("memory", "8Ti")]));
        sim.until("it fails", 10 * SECOND, failed("memory")).await;
        let text = failure(sim, "memory");
        assert!(text.starts_with("OutOfmemory: "), "{text}");
        assert_eq!(counted(sim), [2.0, 1.0, 0.0]);
        // and its CPUs are free
        let next = create(sim, pod_with("next", &[("cpu", "7"), ("memory", "64Mi")]));
        until_ready(sim, "next").await;
        assert_eq!(cpus(sim, &next), "1-7");
    });
}

#[test]
fn running_pod_has_a_quota_when_the_policy_becomes_none() {
    on_static_cpus(9, TopologyPolicy::None, async |sim| {
        let limits = [("cpu", "2"), ("memory", "64Mi")];
        let uid = create(sim, pod_with("web", &limits));
        until_ready(sim, "web").await;
        assert_eq!(config(sim, &uid).resources.cpu_quota, -1);
        let container = sim.runtime.running(&uid, "app").expect("runs").id;
        sim.kill_agent().await;
        sim.resources.cpus = CpuSettings::default();
        sim.start_agent().await;
        sim.until("its limit is in force", 10 * SECOND, |sim| {
            config(sim, &uid).resources.cpu_quota == 200_000
        })
        .await;
        let same = sim.runtime.running(&uid, "app").expect("runs").id;
        assert_eq!(same, container);
    });
}

/// A static pod with two exclusive CPUs.
fn manifest() -> Pod {
    let pod = static_pod("etcd").with(|pod| {
        let limits = json!({ "cpu": "2", "memory": "64Mi" });
        let spec = pod.spec.as_mut().expect("spec");
        let resources = json!({ "limits": limits, "requests": limits });
        spec.containers[0].resources = serde_json::from_value(resources).expect("amounts");
    });
    pod.build()
}

/// Runs the static pod, which ends at its grace period.
async fn run_stubborn(sim: &mut NodeSim) -> PodUid {
    let uid = manifest().uid();
    sim.runtime.set_behavior("app", Behavior::stubborn());
    sim.desire([manifest()]).await;
    sim.until("it runs", 10 * SECOND, |sim| runs(sim, &uid))
        .await;
    uid
}

/// The static pod was removed and added again.
async fn it_restarts(sim: &NodeSim, uid: &PodUid) {
    sim.until("it ends", 40 * SECOND, |sim| !runs(sim, uid))
        .await;
    sim.until("it runs again", 20 * SECOND, |sim| runs(sim, uid))
        .await;
    let restarted = &sim.metrics.workers.restarted_pods;
    assert_eq!(restarted.with_label_values(&["true"]).get(), 1.0);
    assert_eq!(cpus(sim, uid), "1-2");
    let shared = create(sim, pod("shared"));
    until_ready(sim, "shared").await;
    assert_eq!(cpus(sim, &shared), "0,3-7");
}

#[test]
fn static_pod_that_is_added_at_once_keeps_its_cpus() {
    on_static_cpus(7, TopologyPolicy::None, async |sim| {
        let uid = run_stubborn(sim).await;
        // its worker has not handled the removal
        sim.desire([]).await;
        sim.desire([manifest()]).await;
        it_restarts(sim, &uid).await;
    });
}

#[test]
fn cpus_of_a_terminating_pod_are_not_free() {
    on_static_cpus(8, TopologyPolicy::None, async |sim| {
        let uid = run_stubborn(sim).await;
        // the next pod with its UID waits for its end, and is removed before it
        for pods in [vec![], vec![manifest()], vec![]] {
            sim.desire(pods).await;
            sim.pass(SECOND / 2).await;
        }
        assert!(runs(sim, &uid), "it ends slowly");
        let next = create(sim, pod_with("next", &[("cpu", "2"), ("memory", "64Mi")]));
        until_ready(sim, "next").await;
        assert!(runs(sim, &uid), "it ends slowly");
        assert_eq!(cpus(sim, &next), "3-4");
        sim.until("its CPUs are free", 40 * SECOND, |sim| {
            sim.metrics.resource_managers.exclusive_cpus.get() == 2.0
        })
        .await;
    });
}

#[test]
fn static_pod_that_is_added_again_keeps_its_cpus() {
    on_static_cpus(5, TopologyPolicy::None, async |sim| {
        let uid = run_stubborn(sim).await;
        assert_eq!(cpus(sim, &uid), "1-2");
        sim.desire([]).await;
        sim.pass(SECOND).await;
        assert!(runs(sim, &uid), "it ends slowly");
        sim.desire([manifest()]).await;
        it_restarts(sim, &uid).await;
    });
}
