//! Serves the control API of an agent with one pod, and lists the pod as a client.
//!
//! `cargo run -p windlass-control --example follow_pods`
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;
use windlass_control::{ControlService, NodeSource, serve_control};
use windlass_grpc_sockets::bind_socket;
use windlass_health::{HealthCheck, HealthSource};
use windlass_mailboxes::SystemClock;
use windlass_metrics::Metrics;
use windlass_node_proto::windlass_v1::ListPodsRequest;
use windlass_node_proto::windlass_v1::windlass_client::WindlassClient;
use windlass_pod_inputs::paths::NodePaths;
use windlass_stats::usage::{NodeUsage, PodUsage};
use windlass_stats::{StatsError, StatsSelection, StatsSource, StatsUnavailable};
use windlass_status::{PodExplainer, PodStatusEntry, PodStatusStore};
use windlass_timelines::Timelines;
use windlass_types::Pod;
use windlass_types::view::NodeSummary;

/// An agent that measures nothing and is always healthy.
#[derive(Debug)]
struct Idle;

#[async_trait]
impl StatsSource for Idle {
    async fn node(&self, _: StatsSelection) -> Result<NodeUsage, StatsError> {
        Err(StatsError::Node(StatsUnavailable::Unknown))
    }

    async fn pods(&self, _: StatsSelection) -> Result<Vec<PodUsage>, StatsError> {
        Ok(Vec::new())
    }
}

impl HealthSource for Idle {
    fn checks(&self) -> Vec<HealthCheck> {
        Vec::new()
    }
}

impl NodeSource for Idle {
    fn summary(&self) -> NodeSummary {
        NodeSummary {
            name: "node1".to_owned(),
            cluster: None,
            hung_operations: Vec::new(),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let root_dir = std::env::temp_dir().join(format!("follow-pods-{}", std::process::id()));
    std::fs::create_dir_all(&root_dir)?;
    let path = root_dir.join("windlass.sock");
    let store = PodStatusStore::new();
    store.publish(entry()?);
    let shutdown = CancellationToken::new();
    let service = ControlService {
        rejected: watch::channel(Vec::new()).1,
        explainer: PodExplainer {
            status_store: store.clone(),
            timelines: Timelines::new(Arc::new(SystemClock), None),
            eviction: watch::channel(Arc::default()).1,
            node_name: "node1".to_owned(),
        },
        status_store: store,
        stats: Arc::new(Idle),
        metrics: Metrics::new()?,
        health: Arc::new(Idle),
        node: Arc::new(Idle),
        paths: NodePaths {
            pod_logs_dir: root_dir.join("logs"),
            root_dir: root_dir.clone(),
        },
        logs: Default::default(),
        clock: Arc::new(SystemClock),
        shutdown: shutdown.clone(),
    };
    let server = tokio::spawn(serve_control(bind_socket(&path)?, service));

    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://localhost")
        .connect_with_connector(connector)
        .await?;
    let mut client = WindlassClient::new(channel);
    let pods = client
        .list_pods(ListPodsRequest::default())
        .await?
        .into_inner();
    for pod in pods.pods {
        println!(
            "{} bytes of JSON, worker state {}",
            pod.pod_json.len(),
            pod.worker_state
        );
    }
    drop(client);
    shutdown.cancel();
    server.await??;
    std::fs::remove_dir_all(&root_dir)?;
    Ok(())
}

fn entry() -> Result<PodStatusEntry, serde_json::Error> {
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
        "spec": {"containers": [{"name": "web"}]},
    }))?;
    Ok(PodStatusEntry::new(Arc::new(pod)))
}
