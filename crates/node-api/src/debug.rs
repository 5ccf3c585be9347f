//! What the agent is doing: configuration, running pods, profiles, verbosity.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use serde_json::json;
use windlass_types::ContainerState;
use windlass_types::PodExt;
use windlass_types::corev1::{Container, Pod, PodSpec};
use windlass_types::cri::ListFilter;
use windlass_types::metav1::ObjectMeta;

use crate::answer::{json, text};
use crate::pods::PodList;
use crate::{NodeApi, NodeApiSettings};

/// The group.
pub(crate) fn routes(settings: &NodeApiSettings) -> Router<NodeApi> {
    let routes = Router::new()
        .route("/configz", get(configz))
        .route("/runningpods", get(running_pods))
        .route("/runningpods/", get(running_pods));
    let routes = match settings.debug_flags {
        true => routes.route("/debug/flags/v", any(verbosity)),
        false => routes.route("/debug/flags/v", any(|| is_off("flags"))),
    };
    match settings.profiling {
        true => routes
            .route("/debug/pprof/", get(profiles))
            .route("/debug/pprof/{profile}", get(profile)),
        false => routes
            .route("/debug/pprof/", any(|| is_off("profiling")))
            .route("/debug/pprof/{*rest}", any(|| is_off("profiling"))),
    }
}

async fn is_off(what: &'static str) -> Response {
    text(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{what} endpoint is disabled."),
    )
}

async fn configz(State(api): State<NodeApi>) -> Response {
    json(&json!({"kubeletconfig": &*api.configz}))
}

/// What the runtime runs, whoever asked for it: a pod for each sandbox that is ready, with the
/// containers that run.
async fn running_pods(State(api): State<NodeApi>) -> Response {
    let all = ListFilter::default();
    let sandboxes = match api.runtime.list_pod_sandboxes(&all).await {
        Ok(sandboxes) => sandboxes,
        Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    };
    let containers = match api.runtime.list_containers(&all).await {
        Ok(containers) => containers,
        Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    };
    let pods = sandboxes.iter().filter(|sandbox| sandbox.ready).map(|it| {
        let asked = api.board.get(&it.uid);
        let running = containers.iter().filter(|container| {
            container.sandbox_id == it.id && container.state == ContainerState::Running
        });
        // the runtime's list has no image names; what was asked for has
        let image_of = |name: &str| {
            let spec = asked.as_ref()?.pod.spec.as_ref()?;
            spec.containers
                .iter()
                .find(|it| it.name == name)?
                .image
                .clone()
        };
        Pod {
            metadata: ObjectMeta {
                name: Some(it.name.clone()),
                namespace: Some(it.namespace.clone()),
                uid: Some(it.uid.to_string()),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec {
                containers: running
                    .map(|container| Container {
                        name: container.name.clone(),
                        image: image_of(&container.name),
                        ..Container::default()
                    })
                    .collect(),
                ..PodSpec::default()
            }),
            status: None,
        }
    });
    let mut pods: Vec<_> = pods.collect();
    pods.sort_by_key(|pod| pod.full_name());
    json(&PodList::of(pods))
}

/// PUT of a number; 406 for anything but PUT, as upstream.
async fn verbosity(
    State(api): State<NodeApi>,
    method: axum::http::Method,
    body: Bytes,
) -> Response {
    if method != axum::http::Method::PUT {
        return text(
            StatusCode::NOT_ACCEPTABLE,
            "unsupported http method; use PUT with a number as the body",
        );
    }
    let body = String::from_utf8_lossy(&body);
    let set = match body.trim().parse() {
        Ok(verbosity) => api.verbosity.set(verbosity),
        Err(error) => Err(format!("{error}")),
    };
    match set {
        Ok(()) => text(
            StatusCode::OK,
            format!("successfully set klog.logging.verbosity to {}", body.trim()),
        ),
        Err(error) => text(
            StatusCode::BAD_REQUEST,
            format!(
                "failed to set klog.logging.verbosity {}: {error}",
                shorten(&body)
            ),
        ),
    }
}

/// As much of a stranger's text as an answer repeats.
fn shorten(text: &str) -> String {
    text.chars()
        .take(64)
        .collect::<String>()
        .escape_debug()
        .to_string()
}

/// What there is, and what to use instead of what there is not.
fn no_profiles() -> String {
    let pid = std::process::id();
    format!(
        "/debug/pprof/\n\ncmdline\n\n\
         This is no program in Go: the profiles of Go's runtime (allocs, block, goroutine, heap, \
         mutex, profile, threadcreate, trace) have no counterpart here. On the node there are\n  \
         of the processor: perf record --call-graph dwarf -p {pid} -- sleep 30\n  \
         of memory: VmRSS in /proc/{pid}/status, or process_resident_memory_bytes of /metrics\n  \
         of what threads do: gdb -p {pid} -batch -ex 'thread apply all backtrace'\n  \
         of one pod: windlassctl timeline pod <name> -n <namespace>"
    )
}

async fn profiles() -> Response {
    text(StatusCode::OK, no_profiles())
}

async fn profile(Path(name): Path<String>) -> Response {
    if name != "cmdline" {
        return text(StatusCode::NOT_IMPLEMENTED, no_profiles());
    }
    let line: Vec<_> = std::env::args_os()
        .map(|it| it.to_string_lossy().into_owned())
        .collect();
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    (kind, line.join("\0")).into_response()
}
