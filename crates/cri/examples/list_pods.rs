//! What a container runtime has: its version, whether it is ready, its pods and their containers.
//!
//! `cargo run -p windlass-cri --example list_pods -- /run/containerd/containerd.sock`

use std::error::Error;

use windlass_cri::{CriClient, CriOptions, ImageService, RuntimeService};
use windlass_metrics::Metrics;
use windlass_types::cri::ListFilter;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args().nth(1);
    let socket = socket.ok_or("usage: list_pods <socket of the container runtime>")?;
    let runtime = CriClient::connect(&socket, CriOptions::new(Metrics::new()?.runtime_calls))?;

    let version = runtime.version().await;
    let version = version.map_err(|error| error.to_string())?;
    println!(
        "{} {}, CRI {}",
        version.name, version.version, version.api_version
    );
    let status = runtime.status().await?;
    for problem in [status.runtime_error, status.network_error]
        .into_iter()
        .flatten()
    {
        println!("not ready: {problem}");
    }
    println!("{} images", runtime.list_images().await?.len());

    let all = ListFilter::default();
    let containers = runtime.list_containers(&all).await?;
    for pod in runtime.list_pod_sandboxes(&all).await? {
        let state = if pod.ready { "ready" } else { "not ready" };
        println!(
            "{}/{} attempt {} {state}",
            pod.namespace, pod.name, pod.attempt
        );
        for container in containers.iter().filter(|it| it.sandbox_id == pod.id) {
            // the status has more details than the list
            let detail = runtime.container_status(&container.id).await?.observed;
            println!("  {} {:?} {}", detail.name, detail.state, detail.image);
        }
    }
    Ok(())
}
