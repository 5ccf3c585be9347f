//! Configurations of sandboxes and containers, and the fields whose change restarts a container.

use std::sync::Arc;

use serde_json::json;
use windlass_cgroups::MemoryTree;
use windlass_runtime::CgroupSettings;
use windlass_runtime_config::pod_cgroup::NodeLimits;
use windlass_testing::{NodeSim, simulate_cluster};
use windlass_types::Pod;
use windlass_types::cri::{CgroupDriver, ContainerConfig, RuntimeHandler, SandboxConfig};

use crate::fixture::{pod, prepare, running_in_a_cluster, starts};
use crate::{IMAGE, MINUTE, SECOND};

fn sandbox(sim: &NodeSim, name: &str) -> SandboxConfig {
    let all = sim.runtime.sandboxes().into_iter();
    let configs = all.filter_map(|(id, ..)| sim.runtime.sandbox_config(&id));
    configs
        .into_iter()
        .find(|config| config.name == name)
        .expect("a sandbox")
}

/// Configuration of container `a` of a static pod.
fn container(sim: &NodeSim, name: &str) -> ContainerConfig {
    let uid = format!("{name}-uid").into();
    let running = sim.runtime.running(&uid, "a").expect("runs");
    sim.runtime.container_config(&running.id).expect("created")
}

fn set(pod: &mut Pod, spec: serde_json::Value) {
    let mut all = serde_json::to_value(pod.spec.take()).expect("JSON");
    for (key, value) in spec.as_object().expect("an object") {
        all[key] = value.clone();
    }
    pod.spec = serde_json::from_value(all).expect("a spec");
}

#[test]
fn host_ports_of_containers_are_passed_to_runtime() {
    windlass_testing::simulate(20, async |sim| {
        prepare(sim);
        let ports = json!([
            { "containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "TCP" },
            { "containerPort": 53, "hostPort": 5353, "protocol": "UDP" },
        ]);
        let web = pod("web").container_with("a", IMAGE, |c| {
            c.ports = serde_json::from_value(ports).expect("ports");
        });
        sim.desire([web.build()]).await;
        sim.until("it runs", 5 * SECOND, |sim| sim.phase("web") == "Running")
            .await;
        let mapped: Vec<String> = sandbox(sim, "web")
            .port_mappings
            .iter()
            .map(|m| {
                let (from, to) = (m.host_port, m.container_port);
                format!("{:?} {}:{from}:{to}", m.protocol, m.host_ip)
            })
            .collect();
        assert_eq!(mapped, ["Tcp 10.0.0.1:8080:80", "Udp :5353:53"]);
    });
}

#[test]
fn overhead_counts_in_sandbox_cgroup_and_admission() {
    windlass_testing::simulate(21, async |sim| {
        prepare(sim);
        let tree = MemoryTree::v1(&["cpu", "memory", "pids"]);
        sim.kill_agent().await;
        sim.cgroups = Some(CgroupSettings {
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
            reserved: Vec::new(),
            qos_memory: None,
        });
        sim.start_agent().await;
        let with_overhead = |name: &str, cpu: &str| {
            let resources = json!({ "limits": { "cpu": "500m", "memory": "64Mi" } });
            let builder = pod(name).container_with("a", IMAGE, |c| {
                c.resources = serde_json::from_value(resources).expect("resources");
            });
            let overhead = json!({ "overhead": { "cpu": cpu, "memory": "16Mi" } });
            builder.with(|pod| set(pod, overhead)).build()
        };
        // the node has 1000 CPUs
        let pods = [with_overhead("web", "250m"), with_overhead("huge", "1000")];
        sim.desire(pods).await;
        sim.until("one runs", 5 * SECOND, |sim| {
            sim.phase("web") == "Running" && sim.phase("huge") == "Failed"
        })
        .await;
        let status = sim.view("huge").expect("an entry").status;
        assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));

        let config = sandbox(sim, "web");
        let overhead = config.overhead.expect("passed to the runtime");
        assert_eq!(
            (overhead.cpu_shares, overhead.memory_limit),
            (256, 16 << 20)
        );
        let resources = config.resources.expect("resources");
        assert_eq!(resources.memory_limit, 64 << 20, "without the overhead");
        let memory = tree.file("/kubepods/podweb-uid/memory.limit_in_bytes");
        assert_eq!(memory.as_deref(), Some("83886080"), "with the overhead");
    });
}

#[test]
fn unmasked_proc_mount_requires_user_namespace() {
    simulate_cluster(22, async |sim| {
        prepare(sim);
        let handler = RuntimeHandler {
            user_namespaces: true,
            ..RuntimeHandler::default()
        };
        sim.runtime.set_features(vec![handler], Some(true));
        sim.start_agent().await;
        let with_proc = |name: &str, proc_mount: &str, host_users: bool| {
            let security = json!({ "procMount": proc_mount });
            let builder = pod(name).container_with("a", IMAGE, |c| {
                c.security_context = serde_json::from_value(security).expect("a context");
            });
            let users = json!({ "hostUsers": host_users });
            builder.with(|pod| set(pod, users)).build()
        };
        sim.desire([
            with_proc("open", "Unmasked", false),
            with_proc("masked", "Default", false),
            with_proc("rejected", "Unmasked", true),
        ])
        .await;
        sim.until("two run", 5 * SECOND, |sim| {
            sim.phase("open") == "Running" && sim.phase("masked") == "Running"
        })
        .await;
        let masked = |name: &str| {
            let security = container(sim, name).security;
            [security.masked_paths.len(), security.readonly_paths.len()]
        };
        assert_eq!(masked("open"), [0, 0]);
        assert!(masked("masked").iter().all(|count| *count > 0));
        sim.pass(MINUTE).await;
        assert_eq!(starts(sim, &"rejected-uid".into(), ["a"]), [0]);
        let blocker = sim.view("rejected").and_then(|view| view.blocker);
        let blocker = blocker.expect("a blocker").to_string();
        assert!(blocker.contains("procMount"), "{blocker}");
    });
}

#[test]
fn only_changed_image_restarts_container() {
    simulate_cluster(23, async |sim| {
        sim.runtime.add_image("busybox:2");
        let web = pod("web").restart_policy("Never").container("a", IMAGE);
        let uid = running_in_a_cluster(sim, web).await;
        let hash = |sim: &NodeSim| {
            let running = sim.runtime.running(&uid, "a").expect("runs");
            let config = sim.runtime.container_config(&running.id);
            let mut annotations = config.expect("created").annotations;
            annotations.remove("io.kubernetes.container.hash")
        };
        let before = hash(sim).expect("a hash");
        let change = |sim: &NodeSim, key: &str, value: serde_json::Value| {
            sim.api.modify::<Pod>(Some("default"), "web", |pod| {
                let mut spec = serde_json::to_value(&pod.spec).expect("JSON");
                spec["containers"][0][key] = value;
                pod.spec = serde_json::from_value(spec).expect("a spec");
            });
        };
        change(sim, "env", json!([{ "name": "COLOR", "value": "blue" }]));
        sim.pass(MINUTE).await;
        assert_eq!(starts(sim, &uid, ["a"]), [1]);
        change(sim, "image", json!("busybox:2"));
        sim.until("it is restarted", MINUTE, |sim| {
            starts(sim, &uid, ["a"]) == [2] && sim.runtime.running(&uid, "a").is_some()
        })
        .await;
        assert_ne!(hash(sim).expect("a hash"), before);
        sim.pass(MINUTE).await;
        assert_eq!(starts(sim, &uid, ["a"]), [2]);
    });
}
