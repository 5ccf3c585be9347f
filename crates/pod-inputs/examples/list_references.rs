//! Prints the references, QoS class and kernel settings of a pod.
//!
//! `cargo run -p windlass-pod-inputs --example list_references -- pod.json` reads a pod as JSON;
//! without an argument it reads one of its own.
//!
//! Runs without a container runtime.

use std::error::Error;

use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_inputs::pod_references::pod_references;
use windlass_pod_inputs::resources::{check_amounts, container_resources, qos_class};
use windlass_types::{Pod, PodExt};

const DEFAULT: &str = r#"{
    "metadata": {"name": "web", "namespace": "default", "uid": "1"},
    "spec": {
        "imagePullSecrets": [{"name": "registry"}],
        "containers": [{
            "name": "web",
            "envFrom": [{"configMapRef": {"name": "settings", "optional": true}}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"cpu": "1"}}
        }],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "web-data"}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
        ]
    }
}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let text = match std::env::args().nth(1) {
        Some(path) => std::fs::read_to_string(path)?,
        None => DEFAULT.to_owned(),
    };
    let pod: Pod = serde_json::from_str(&text)?;
    check_amounts(&pod)?;
    println!("pod {}", pod.full_name());
    for reference in pod_references(&pod).to_string().split("; ") {
        println!("  refers to {reference}");
    }
    println!("  QoS class {}", qos_class(&pod));
    let node = NodeFacts {
        memory_capacity: 8 << 30,
        ..NodeFacts::default()
    };
    for container in pod.containers() {
        let resources = container_resources(&pod, container, &node);
        println!("  container {}", container.name);
        println!("    CPU shares    {}", resources.cpu_shares);
        println!("    CPU quota     {} µs", resources.cpu_quota);
        println!("    OOM score adj {}", resources.oom_score_adj);
    }
    Ok(())
}
