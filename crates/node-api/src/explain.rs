//! What `windlassctl` prints with `-o json`, beyond upstream: why a pod is as it is
//! (`/windlass/v1/pods/<namespace>/<pod>/timeline` and `…/explain`), and what node and pods use
//! (`/windlass/v1/top`).
//!
//! *bound* a timeline is 8 KiB at the most, some 20 KiB as JSON. Who asks what is used takes turns,
//! as scrapes do.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use windlass_stats::StatsSelection;
use windlass_stats::usage::{CgroupUsage, NodeUsage, PodUsage};
use windlass_types::top::{ContainerTop, NodeTop, PodTop, CpuMemoryUsage};

use crate::NodeApi;
use crate::answer::{json, text};
use crate::usage::{Turns, in_turn};

/// The group.
pub(crate) fn routes(turns: Turns) -> Router<NodeApi> {
    let turns = from_fn_with_state(turns, in_turn);
    Router::new()
        .route(
            "/windlass/v1/pods/{namespace}/{pod}/timeline",
            get(timeline),
        )
        .route("/windlass/v1/pods/{namespace}/{pod}/explain", get(explain))
        .route("/windlass/v1/top", get(top).layer(turns))
}

type Asked = Path<(String, String)>;

async fn timeline(State(api): State<NodeApi>, Path((namespace, pod)): Asked) -> Response {
    answer(&pod, api.explainer.timeline(&namespace, &pod))
}

async fn explain(State(api): State<NodeApi>, Path((namespace, pod)): Asked) -> Response {
    answer(&pod, api.explainer.explanation(&namespace, &pod))
}

/// The busiest pods first.
async fn top(State(api): State<NodeApi>) -> Response {
    let wanted = StatsSelection::CPU_AND_MEMORY;
    match tokio::try_join!(api.stats.node(wanted), api.stats.pods(wanted)) {
        Ok((node, pods)) => json(&of_node(&api.node_name, &node, pods).busiest_first()),
        Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    }
}

fn of_node(name: &str, node: &NodeUsage, pods: Vec<PodUsage>) -> NodeTop {
    let pods = pods.into_iter().map(|pod| PodTop {
        usage: used(pod.cgroup.as_ref()),
        namespace: pod.namespace,
        pod: pod.name,
        containers: pod
            .containers
            .into_iter()
            .map(|container| ContainerTop {
                usage: used(container.cgroup.as_ref()),
                name: container.name,
            })
            .collect(),
    });
    NodeTop {
        node: name.to_owned(),
        usage: used(Some(&node.cgroup)),
        pods: pods.collect(),
    }
}

fn used(cgroup: Option<&CgroupUsage>) -> CpuMemoryUsage {
    let (cpu, memory) = cgroup.map_or((None, None), |it| (it.cpu.as_ref(), it.memory.as_ref()));
    CpuMemoryUsage {
        cpu_nano_cores: cpu.and_then(|cpu| cpu.nano_cores),
        memory_bytes: memory.map(|memory| memory.working_set),
    }
}

fn answer(pod: &str, found: Option<impl Serialize>) -> Response {
    match found {
        Some(found) => json(&found),
        None => text(StatusCode::NOT_FOUND, format!("pod \"{pod}\" not found")),
    }
}
