//! State of the agent: configuration, running pods, profiles, verbosity.

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

pub(crate) fn routes(settings: &NodeApiSettings) -> Router<NodeApi> {
    let routes = Router::new()
        .route("/configz", get(configz))
        .route("/runningpods", get(running_pods))
        .route("/runningpods/", get(running_pods));
    let routes = match settings.debug_flags {
        true => routes.route("/debug/flags/v", any(verbosity)),
        false => routes.route("/debug/flags/v", any(|| endpoint_disabled("flags"))),
    };
    match settings.profiling {
        true => routes
            .route("/debug/pprof/", get(profiles))
            .route("/debug/pprof/{profile}", get(profile)),
        false => routes
            .route("/debug/pprof/", any(|| endpoint_disabled("profiling")))
            .route(
                "/debug/pprof/{*rest}",
                any(|| endpoint_disabled("profiling")),
            ),
    }
}

async fn endpoint_disabled(what: &'static str) -> Response {
    text(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{what} endpoint is disabled."),
    )
}

async fn configz(State(api): State<NodeApi>) -> Response {
    json(&json!({"kubeletconfig": &*api.configz}))
}

/// Lists what the runtime runs: a pod for each ready sandbox, with its running containers.
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
        let desired = api.status_store.get(&it.uid);
        let running = containers.iter().filter(|container| {
            container.sandbox_id == it.id && container.state == ContainerState::Running
        });
        // the runtime's list has no image names; the desired pod has
        let desired_image = |name: &str| {
            let spec = desired.as_ref()?.pod.spec.as_ref()?;
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
                        image: desired_image(&container.name),
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
    json(&PodList::new(pods))
}

/// Accepts PUT with a number; 406 for other methods, as upstream.
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

/// Shortens a client's text for a response.
fn shorten(text: &str) -> String {
    text.chars()
        .take(64)
        .collect::<String>()
        .escape_debug()
        .to_string()
}

/// Explains which profiling tools to use on the node.
fn no_profiles() -> String {
    let pid = std::process::id();
    format!(
        "/debug/pprof/\n\ncmdline\n\n\
         Windlass is not written in Go: the profiles of Go's runtime (allocs, block, goroutine, heap, \
         mutex, profile, threadcreate, trace) do not exist. Use on the node:\n  \
         CPU: perf record --call-graph dwarf -p {pid} -- sleep 30\n  \
         memory: VmRSS in /proc/{pid}/status, or process_resident_memory_bytes of /metrics\n  \
         threads: gdb -p {pid} -batch -ex 'thread apply all backtrace'\n  \
         one pod: windlassctl timeline pod <name> -n <namespace>"
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
