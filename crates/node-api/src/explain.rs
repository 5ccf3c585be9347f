//! Endpoints for `windlassctl -o json`, beyond upstream: timeline and explanation of a pod
//! (`/windlass/v1/pods/<namespace>/<pod>/timeline` and `…/explain`), and usage of node and pods
//! (`/windlass/v1/top`).
//!
//! *bound* a timeline has at most 8 KiB, about 20 KiB as JSON. Usage requests share the scrape
//! limiter.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use windlass_stats::StatsSelection;
use windlass_stats::usage::{CgroupUsage, NodeUsage, PodUsage};
use windlass_types::top::{ContainerTop, CpuMemoryUsage, NodeTop, PodTop};

use crate::NodeApi;
use crate::answer::{json, text};
use crate::usage::{ScrapeLimiter, limit_scrapes};

pub(crate) fn routes(limiter: ScrapeLimiter) -> Router<NodeApi> {
    let limit = from_fn_with_state(limiter, limit_scrapes);
    Router::new()
        .route(
            "/windlass/v1/pods/{namespace}/{pod}/timeline",
            get(timeline),
        )
        .route("/windlass/v1/pods/{namespace}/{pod}/explain", get(explain))
        .route("/windlass/v1/top", get(top).layer(limit))
}

type PodPath = Path<(String, String)>;

async fn timeline(State(api): State<NodeApi>, Path((namespace, pod)): PodPath) -> Response {
    response(&pod, api.explainer.timeline(&namespace, &pod))
}

async fn explain(State(api): State<NodeApi>, Path((namespace, pod)): PodPath) -> Response {
    response(&pod, api.explainer.explanation(&namespace, &pod))
}

/// Returns the usage, busiest pods first.
async fn top(State(api): State<NodeApi>) -> Response {
    let selection = StatsSelection::CPU_AND_MEMORY;
    match tokio::try_join!(api.stats.node(selection), api.stats.pods(selection)) {
        Ok((node, pods)) => json(&node_top(&api.node_name, &node, pods).busiest_first()),
        Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    }
}

fn node_top(name: &str, node: &NodeUsage, pods: Vec<PodUsage>) -> NodeTop {
    let pods = pods.into_iter().map(|pod| PodTop {
        usage: cpu_memory_usage(pod.cgroup.as_ref()),
        namespace: pod.namespace,
        pod: pod.name,
        containers: pod
            .containers
            .into_iter()
            .map(|container| ContainerTop {
                usage: cpu_memory_usage(container.cgroup.as_ref()),
                name: container.name,
            })
            .collect(),
    });
    NodeTop {
        node: name.to_owned(),
        usage: cpu_memory_usage(Some(&node.cgroup)),
        pods: pods.collect(),
    }
}

fn cpu_memory_usage(cgroup: Option<&CgroupUsage>) -> CpuMemoryUsage {
    let (cpu, memory) = cgroup.map_or((None, None), |it| (it.cpu.as_ref(), it.memory.as_ref()));
    CpuMemoryUsage {
        cpu_nano_cores: cpu.and_then(|cpu| cpu.nano_cores),
        memory_bytes: memory.map(|memory| memory.working_set),
    }
}

fn response(pod: &str, found: Option<impl Serialize>) -> Response {
    match found {
        Some(found) => json(&found),
        None => text(StatusCode::NOT_FOUND, format!("pod \"{pod}\" not found")),
    }
}
