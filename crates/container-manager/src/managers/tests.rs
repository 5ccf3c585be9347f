//! Memory of init containers that have ended.

use serde_json::json;
use windlass_resource_managers::cpu::CpuSettings;
use windlass_resource_managers::memory::{MemoryConfig, reserved_memory};
use windlass_resource_managers::topology::TopologyConfig;
use windlass_topology::fake::FakeMachine;
use windlass_types::ObservedContainer;

use super::*;

/// A node with the policy `Static`.
fn node() -> Managers {
    let machine = FakeMachine::default().build();
    let amounts = BTreeMap::from([("memory".to_owned(), "1Gi".parse().expect("an amount"))]);
    let reserved = reserved_memory(&[(0, amounts.clone())], &amounts, &machine);
    let memory = MemoryConfig {
        policy: MemoryPolicy::Static,
        reserved: reserved.expect("it adds up"),
        pod_level: false,
    };
    let topology = TopologyManager::new(TopologyConfig::default(), &machine);
    let cpus = CpuManager::new(&CpuSettings::default(), Arc::new(machine.clone()));
    Managers::new(ManagerParts {
        topology: topology.expect("a policy"),
        cpus: cpus.expect("settings"),
        unlimited_exclusive_cpus: true,
        reports_health: true,
        cpu_retry: Duration::from_secs(10),
        memory: MemoryManager::new(memory, &machine),
        devices: Devices::default(),
        machine,
    })
}

/// A Guaranteed pod with the init container `setup`, the sidecar `proxy`, the init container
/// `migrate` and the container `app`.
fn pod() -> Pod {
    let amounts = json!({ "cpu": "1", "memory": "256Mi" });
    let container = |name: &str| {
        let resources = json!({ "limits": amounts, "requests": amounts });
        json!({ "name": name, "resources": resources })
    };
    let mut sidecar = container("proxy");
    sidecar["restartPolicy"] = "Always".into();
    let pod = json!({
        "metadata": { "name": "web", "uid": "a" },
        "spec": {
            "initContainers": [container("setup"), sidecar, container("migrate")],
            "containers": [container("app")],
        },
    });
    serde_json::from_value(pod).expect("a pod")
}

#[test]
fn memory_of_init_containers_is_free_when_later_ones_run() {
    // (running containers, those with memory afterwards)
    for (running, expected) in [
        ("", "setup proxy migrate app"),
        ("setup", "setup proxy migrate app"),
        ("proxy", "proxy migrate app"),
        ("proxy migrate", "proxy migrate app"),
        ("proxy app", "proxy app"),
    ] {
        let (mut managers, pod) = (node(), pod());
        let all = pod.init_containers().iter().chain(pod.containers());
        for (served, container) in all.clone().enumerate() {
            let hint = managers.place(&pod, container, served).expect("a place");
            managers.allocate(&pod, container, hint).expect("memory");
        }
        let containers = running.split_whitespace().map(|name| ObservedContainer {
            name: name.to_owned(),
            state: ContainerState::Running,
            ..ObservedContainer::default()
        });
        let observed = ObservedPod {
            containers: containers.collect(),
            ..ObservedPod::default()
        };
        let is_freed = managers.free_init_containers(&pod, &observed);
        let names = all.map(|container| container.name.as_str());
        let names: Vec<&str> = names
            .filter(|name| managers.memory.memory_nodes("a", name).is_some())
            .collect();
        assert_eq!(names.join(" "), expected, "{running}");
        assert_eq!(is_freed, names.len() < 4, "{running}");
        assert!(!managers.free_init_containers(&pod, &observed), "only once");
    }
}
