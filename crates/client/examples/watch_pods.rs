//! Watches the pods of one node, through any failure of the API server.
//!
//! `cargo run -p windlass-client --example watch_pods -- <kubeconfig> <name of the node>`

use std::path::Path;
use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use windlass_client::{ApiClients, ApiServerConfig, ClientLimits, ReflectEvent, Selector, reflect};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: watch_pods <kubeconfig> <node name>";
    let kubeconfig = arguments.next().ok_or(usage)?;
    let node = arguments.next().ok_or(usage)?;

    let config = ApiServerConfig::from_kubeconfig(Path::new(&kubeconfig))?;
    let clients = ApiClients::connect(&config, &ClientLimits::default())?;
    let selector = Selector {
        fields: Some(format!("spec.nodeName={node}")),
        ..Selector::default()
    };
    let mut pods = pin!(reflect::<Pod>(clients.watch, selector));
    while let Some(event) = pods.next().await {
        match event {
            ReflectEvent::Synced(all) => println!("{} pods", all.len()),
            ReflectEvent::Applied(pod) => println!("changed {}", name(&pod)),
            ReflectEvent::Deleted(pod) => println!("gone    {}", name(&pod)),
            ReflectEvent::Failed { error, retry_in } => {
                println!("{error}; again in {} ms", retry_in.as_millis());
            }
            ReflectEvent::Resumed => println!("the watch works again"),
        }
    }
    Ok(())
}

fn name(pod: &Pod) -> String {
    let meta = &pod.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}", meta.name.as_deref().unwrap_or_default())
}
