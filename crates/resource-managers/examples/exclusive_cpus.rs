//! Assigns exclusive CPUs of a machine with 8 NUMA nodes and 512 CPUs to a pod.
//!
//! Runs without a container runtime.

use std::sync::Arc;

use windlass_resource_managers::cpu::{CpuManager, CpuSettings};
use windlass_topology::fake::FakeMachine;
use windlass_types::{Pod, PodExt};

const POD: &str = r#"{"metadata": {"uid": "uid"}, "spec": {"containers": [
    {"name": "large", "resources": {"limits": {"cpu": "150", "memory": "1Gi"},
                                    "requests": {"cpu": "150", "memory": "1Gi"}}},
    {"name": "small", "resources": {"limits": {"cpu": "3", "memory": "1Gi"},
                                    "requests": {"cpu": "3", "memory": "1Gi"}}}]}}"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = FakeMachine {
        nodes: 8,
        sockets: 2,
        uncores: 32,
        cores: 256,
        threads: 2,
        ..FakeMachine::default()
    };
    let pod: Pod = serde_json::from_str(POD)?;
    for option in [
        "full-pcpus-only",
        "distribute-cpus-across-numa",
        "prefer-align-cpus-by-uncorecache",
    ] {
        let settings = CpuSettings {
            is_static: true,
            options: [(option.to_owned(), "true".to_owned())].into(),
            beta_options: true,
            reserved_milli: 2000,
            ..CpuSettings::default()
        };
        let mut manager = CpuManager::new(&settings, Arc::new(machine.build()))?;
        println!("{option}:");
        for container in pod.containers() {
            let name = &container.name;
            if let Err(error) = manager.allocate(&pod, container, None) {
                println!("  {name}: {error}");
            } else if let Some(cpus) = manager.cpus_of(&pod.uid(), name) {
                println!("  {name}: {cpus}");
            }
        }
    }
    Ok(())
}
