//! Prints the main fields of a pod.
//!
//! `cargo run -p windlass-types --example describe_pod -- pod.json` reads one pod as
//! `kubectl get pod <name> -o json` prints it; without an argument it reads a built-in pod.
//!
//! Runs without a container runtime.

use std::error::Error;

use windlass_types::{Pod, PodExt, PodOp, PodUpdate, SharedPod};

const BUILT_IN: &str = r#"{
    "metadata": {
        "name": "web-node1", "namespace": "default", "uid": "5d41402abc4b2a76",
        "annotations": {"kubernetes.io/config.source": "file"}
    },
    "spec": {
        "restartPolicy": "OnFailure",
        "initContainers": [{"name": "prepare", "image": "busybox"}],
        "containers": [{"name": "web", "image": "nginx:1.29"}]
    }
}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let text = match std::env::args().nth(1) {
        Some(path) => std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?,
        None => BUILT_IN.to_owned(),
    };
    let pod: Pod = serde_json::from_str(&text)?;

    let kind = if pod.is_static() { "static" } else { "API" };
    println!("pod        {}", pod.full_name());
    println!("uid        {}", pod.uid());
    println!("source     {}, so it is a {kind} pod", pod.source());
    println!("restarts   {:?}", pod.restart_policy());
    println!("grace      {} s", pod.termination_grace_seconds());
    for (list, containers) in [
        ("init", pod.init_containers()),
        ("container", pod.containers()),
    ] {
        for container in containers {
            let image = container.image.as_deref().unwrap_or("no image");
            println!("{list:10} {} ({image})", container.name);
        }
    }

    let update = PodUpdate {
        op: PodOp::Add,
        source: pod.source(),
        pods: vec![SharedPod::new(pod)],
    };
    println!("as a change of the desired pods: {update}");
    Ok(())
}
