//! Admits pods to a node with 2 CPUs until it is full, and prints the decisions.
//!
//! `cargo run -p windlass-node-rules --example fill_a_node -- 750m` sets the CPU request of each
//! pod; the default is 600m.
//!
//! Runs without a container runtime.

use std::error::Error;

use serde_json::json;
use windlass_node_rules::admission::{
    AdmissionInput, AdmissionPolicy, NodeLoad, Pressure, SysctlAllowList, admit,
};
use windlass_node_rules::resize::ResizePolicy;
use windlass_types::corev1::Node;
use windlass_types::{Pod, PodExt};

fn main() -> Result<(), Box<dyn Error>> {
    let cpu = std::env::args().nth(1).unwrap_or_else(|| "600m".to_owned());
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "node1", "labels": {"zone": "a"}},
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "110"}},
    }))?;
    let policy = AdmissionPolicy {
        sysctls: SysctlAllowList::new((6, 1), &[])?,
        app_armor: false,
        pod_level_resources: true,
        declared_features: None,
        resize: ResizePolicy::default(),
    };
    let mut pods = Vec::new();
    for index in 0..5 {
        pods.push(pod(&format!("web-{index}"), &cpu, json!({}))?);
    }
    pods.push(pod("elsewhere", "10m", json!({"zone": "b"}))?);

    let mut load = NodeLoad::default();
    for pod in &pods {
        let result = admit(AdmissionInput {
            pod,
            node: &node,
            load: &load,
            policy: &policy,
            strict_groups: None,
            pressure: Pressure::default(),
            shutting_down: false,
        });
        match result {
            Ok(()) => {
                load.add(pod);
                println!("{}: admitted", pod.name());
            }
            Err(rejection) => println!("{}: {rejection}", pod.name()),
        }
    }
    Ok(())
}

fn pod(name: &str, cpu: &str, selector: serde_json::Value) -> serde_json::Result<Pod> {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {
            "nodeSelector": selector,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
    }))
}
