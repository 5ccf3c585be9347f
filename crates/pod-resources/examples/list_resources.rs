//! Serves PodResources in a temporary directory and lists the pods, as a monitoring program does.
//!
//! `cargo run -p windlass-pod-resources --example list_resources`
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;

use serde_json::{from_value, json};
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;
use windlass_metrics::Metrics;
use windlass_node_proto::podresources_v1 as v1;
use windlass_node_proto::podresources_v1::pod_resources_lister_client::PodResourcesListerClient;
use windlass_pod_resources::{PodResources, Socket, serve_pod_resources};
use windlass_status::{PodStatusEntry, PodStatusStore};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let root_dir = tempfile::tempdir()?;
    let status_store = PodStatusStore::new();
    status_store.publish(entry("web", "Running")?);
    status_store.publish(entry("job", "Succeeded")?);

    let socket = Socket::PodResources.bind(root_dir.path())?;
    // true: only active pods
    let service = PodResources::new(status_store, true, Metrics::new()?.pod_resources);
    let shutdown = CancellationToken::new();
    let server = tokio::spawn(serve_pod_resources(socket, service, shutdown.clone()));

    let path = Socket::PodResources.path(root_dir.path());
    let endpoint = Endpoint::from_shared(format!("unix://{}", path.display()))?;
    let mut client = PodResourcesListerClient::new(endpoint.connect().await?);
    let answer = client.list(v1::ListPodResourcesRequest {}).await?;
    for pod in answer.into_inner().pod_resources {
        for container in pod.containers {
            let (cpus, devices) = (container.cpu_ids.len(), container.devices.len());
            println!(
                "{}/{} {}: {cpus} CPUs and {devices} devices of its own",
                pod.namespace, pod.name, container.name
            );
        }
    }
    let missing = v1::GetPodResourcesRequest {
        pod_name: "job".to_owned(),
        pod_namespace: "default".to_owned(),
    };
    match client.get(missing).await {
        Err(status) => println!("job: {:?}: {}", status.code(), status.message()),
        Ok(_) => return Err("a pod that has ended uses nothing".into()),
    }
    drop(client);
    shutdown.cancel();
    server.await??;
    Ok(())
}

fn entry(name: &str, phase: &str) -> Result<PodStatusEntry, serde_json::Error> {
    let pod = json!({
        "metadata": {"namespace": "default", "name": name, "uid": format!("uid-of-{name}")},
        "spec": {"containers": [{"name": "app", "image": "nginx"}]},
    });
    Ok(PodStatusEntry {
        status: Arc::new(from_value(json!({"phase": phase}))?),
        observed: true,
        ..PodStatusEntry::new(Arc::new(from_value(pod)?))
    })
}
