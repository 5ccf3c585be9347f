//! Prints the devices and CPUs of pods.
//!
//! `cargo run -p windlass-node-proto --example decode_pod_resources -- answer.bin` decodes a
//! `ListPodResourcesResponse` from a file, as a client of the PodResources socket may have written
//! it; without an argument it encodes a sample first.
//!
//! Runs without a container runtime.

use std::error::Error;

use prost::Message;
use windlass_node_proto::podresources_v1::{
    ContainerDevices, ContainerResources, ListPodResourcesResponse, PodResources,
};

fn main() -> Result<(), Box<dyn Error>> {
    let bytes = match std::env::args().nth(1) {
        Some(path) => std::fs::read(&path).map_err(|error| format!("{path}: {error}"))?,
        None => sample().encode_to_vec(),
    };
    let answer = ListPodResourcesResponse::decode(bytes.as_slice())
        .map_err(|error| format!("not a ListPodResourcesResponse: {error}"))?;
    for pod in &answer.pod_resources {
        for container in &pod.containers {
            println!("{}/{} {}", pod.namespace, pod.name, container.name);
            println!("  CPUs {:?}", container.cpu_ids);
            for devices in &container.devices {
                println!("  {} {:?}", devices.resource_name, devices.device_ids);
            }
        }
    }
    Ok(())
}

fn sample() -> ListPodResourcesResponse {
    let devices = ContainerDevices {
        resource_name: "example.com/gpu".to_owned(),
        device_ids: vec!["gpu-0".to_owned(), "gpu-1".to_owned()],
        ..ContainerDevices::default()
    };
    let container = ContainerResources {
        name: "train".to_owned(),
        devices: vec![devices],
        cpu_ids: vec![2, 3],
        ..ContainerResources::default()
    };
    let pod = PodResources {
        name: "model".to_owned(),
        namespace: "default".to_owned(),
        containers: vec![container],
    };
    ListPodResourcesResponse {
        pod_resources: vec![pod],
    }
}
