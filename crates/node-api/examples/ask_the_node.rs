//! Builds the node API over a pod status store with one pod and sends requests as kubectl and
//! Prometheus do. Authentication is left out: `windlass_auth::require_auth` goes in front of the
//! router.
//!
//! `cargo run -p windlass-node-api --example ask_the_node -- [/run/containerd/containerd.sock]`
//!
//! With the socket of a runtime it also lists the running pods.
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use serde_json::{from_value, json};
use tower::ServiceExt;
use windlass_actors::StatusCache;
use windlass_cri::{CriClient, CriOptions};
use windlass_health::{HealthCheck, HealthSource};
use windlass_mailboxes::SystemClock;
use windlass_metrics::Metrics;
use windlass_node_api::{
    Journals, NodeApi, NodeApiDeps, NodeApiSettings, ServerType, Verbosity, router,
};
use windlass_pod_inputs::paths::NodePaths;
use windlass_stats::usage::{NodeUsage, PodUsage};
use windlass_stats::{MachineFacts, StatsError, StatsSelection, StatsSource, StatsUnavailable};
use windlass_status::PodExplainer;
use windlass_status::{PodStatusEntry, PodStatusStore};
use windlass_streams::{Limits, Sessions};
use windlass_timelines::Timelines;
use windlass_types::Clock;

/// Health, statistics and verbosity of an idle node.
#[derive(Debug)]
struct Idle;

impl HealthSource for Idle {
    fn checks(&self) -> Vec<HealthCheck> {
        Vec::new()
    }
}

#[async_trait::async_trait]
impl StatsSource for Idle {
    async fn node(&self, _: StatsSelection) -> Result<NodeUsage, StatsError> {
        Err(StatsError::Node(StatsUnavailable::Unknown))
    }

    async fn pods(&self, _: StatsSelection) -> Result<Vec<PodUsage>, StatsError> {
        Err(StatsError::Pods(StatsUnavailable::Unknown))
    }
}

impl Verbosity for Idle {
    fn set(&self, _: u32) -> Result<(), String> {
        Err("not supported".to_owned())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args().nth(1);
    let mut paths = vec![
        "/healthz",
        "/pods",
        "/configz",
        "/stats/summary",
        "/metrics",
    ];
    paths.extend(socket.as_ref().map(|_| "/runningpods/"));
    paths.push("/nowhere");
    // not dialed before the first request
    let socket = socket.as_deref().unwrap_or("/nowhere");
    let runtime = Arc::new(CriClient::connect(
        socket,
        CriOptions::new(Metrics::new()?.runtime_calls),
    )?);
    let service = router(NodeApi::new(deps(runtime)?), ServerType::ReadWrite);
    for path in paths {
        let request = Request::get(path).body(Body::empty())?;
        let answer = service.clone().oneshot(request).await?;
        let status = answer.status();
        let body = to_bytes(answer.into_body(), 1 << 20).await?;
        let text = String::from_utf8_lossy(&body);
        let begin: String = text.chars().take(160).collect();
        println!(
            "GET {path}: {status}, {} bytes\n  {}",
            body.len(),
            begin.replace('\n', "\n  ")
        );
    }
    Ok(())
}

fn deps(runtime: Arc<CriClient>) -> Result<NodeApiDeps, Box<dyn Error>> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let status_store = PodStatusStore::new();
    status_store.publish(entry()?);
    let explainer = PodExplainer {
        status_store: status_store.clone(),
        timelines: Timelines::new(Arc::clone(&clock), None),
        eviction: tokio::sync::watch::channel(Arc::default()).1,
        node_name: "n1".to_owned(),
    };
    Ok(NodeApiDeps {
        status_store,
        cache: StatusCache::new(),
        explainer,
        runtime: runtime.clone(),
        streams: runtime,
        sessions: Sessions::new(Limits::default(), Default::default()),
        stats: Arc::new(Idle),
        machine: Arc::new(MachineFacts::default()),
        health: Arc::new(Idle),
        metrics: Metrics::new()?,
        paths: NodePaths::default(),
        logs: Default::default(),
        journals: Journals::new("journalctl"),
        system_logs: "/var/log".into(),
        node_name: "n1".to_owned(),
        configz: Arc::new(json!({"port": 10250})),
        flagz: Arc::default(),
        verbosity: Arc::new(Idle),
        version: "v1.36.0".to_owned(),
        started: clock.now(),
        settings: NodeApiSettings {
            debugging: true,
            profiling: false,
            debug_flags: false,
            system_logs: false,
            log_query: false,
            log_streams: false,
            checkpoint: false,
            websockets: true,
            flagz: false,
            statusz: false,
        },
        clock,
        shutdown: Default::default(),
    })
}

fn entry() -> Result<PodStatusEntry, serde_json::Error> {
    let pod = json!({
        "metadata": {"namespace": "default", "name": "web", "uid": "1234"},
        "spec": {"containers": [{"name": "app", "image": "nginx"}]},
    });
    Ok(PodStatusEntry {
        status: Arc::new(from_value(json!({"phase": "Running"}))?),
        observed: true,
        ..PodStatusEntry::new(Arc::new(from_value(pod)?))
    })
}
