//! The node API: port 10250 and a subset of it on the read-only port.
//!
//! Serves kubectl, the API server, Prometheus and metrics-server as the Go kubelet does. Each file
//! is a group of endpoints with one `routes()`.
//!
//! *owns* nothing: pods come from the pod status store, metrics from `windlass_stats`, logs from
//! files, streams from the runtime · *invariant* no handler runs before `windlass_auth` has
//! authorized its request · *bound* see each group.
//!
//! # Entry points
//!
//! * [`router`] has all endpoints of one of the two ports ([`ServerType`])
//! * [`NodeApi`] is the shared state of the handlers, built from [`NodeApiDeps`]
//! * [`NodeApiSettings`] selects the endpoints, by configuration fields and feature gates
//! * [`traced`] creates spans of requests
//!
//! # Example
//!
//! ```no_run
//! use windlass_https::{Limits, Transport, serve};
//! use windlass_node_api::{NodeApi, NodeApiDeps, ServerType, router};
//!
//! # async fn run(deps: NodeApiDeps, listener: tokio::net::TcpListener) {
//! // plain HTTP without authentication: only health, pods, statistics and metrics
//! let service = router(NodeApi::new(deps), ServerType::ReadOnly);
//! serve(listener, service, Transport::Plain, Limits::default(), Default::default()).await;
//! # }
//! ```
//!
//! Queries can be parsed without a server:
//!
//! ```
//! use windlass_node_api::queries::StreamQuery;
//!
//! let uri = "/exec/default/web/app?command=ls&output=1&error=1".parse()?;
//! let query = StreamQuery::new(&uri).map_err(|_| "invalid")?;
//! let streams = query.streams().map_err(|_| "invalid")?;
//! assert!(streams.stdout && streams.stderr && !streams.stdin);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! `cargo run -p windlass-node-api --example ask_the_node` sends requests to an API with one pod.
//!
//! # Guarantees
//!
//! * Paths, queries, status codes and messages match upstream.
//! * Long responses (`/metrics/cadvisor`, logs) are produced in parts, as fast as the client reads.
//! * No path leaves a pod's directory or `/var/log` through a link.
//! * A slow client blocks only its own connection and permit.
//!
//! # Limits
//!
//! Authentication and authorization are in `windlass_auth`, TLS in `windlass_https`, statistics in
//! `windlass_stats`. Without `windlass_auth::require_auth` in front, the router of
//! [`ServerType::ReadWrite`] runs commands for every client.

mod answer;
mod api;
mod requests;

mod debug;
mod explain;
mod health;
mod logs;
mod metrics;
mod pods;
mod spans;
mod streaming;
mod usage;
mod zpages;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::any;

pub use api::{NodeApi, NodeApiDeps, NodeApiSettings, Verbosity};
pub use logs::Journals;
pub use spans::{RequestSpans, traced};

/// Query parsers. They handle untrusted input.
pub mod queries {
    pub use crate::logs::{BadOptions, NodeQuery, PodLogOptions};
    pub use crate::streaming::{Query as StreamQuery, StreamRejection};
}

/// Port of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerType {
    /// 10250: authenticated and authorized.
    ReadWrite,
    /// `readOnlyPort`: plain HTTP without authentication.
    ReadOnly,
}

/// Returns the endpoints of a port. The caller adds authentication.
pub fn router(api: NodeApi, server: ServerType) -> Router {
    let debugging = server == ServerType::ReadWrite && api.settings.debugging;
    let limiter = usage::ScrapeLimiter::new();
    let routes = always_on(limiter.clone()).merge(match debugging {
        true => self::debugging(&api.settings, limiter),
        false => disabled(),
    });
    routes
        .fallback(not_found)
        .layer(from_fn_with_state((api.clone(), server), requests::count))
        .with_state(api)
}

/// Returns the endpoints of both ports: health, pods, statistics, metrics.
fn always_on(limiter: usage::ScrapeLimiter) -> Router<NodeApi> {
    health::routes()
        .merge(pods::routes())
        .merge(metrics::routes())
        .merge(usage::routes(limiter))
}

/// Returns the endpoints of `enableDebuggingHandlers`: logs, streams, running pods, configuration.
fn debugging(settings: &NodeApiSettings, limiter: usage::ScrapeLimiter) -> Router<NodeApi> {
    debug::routes(settings)
        .merge(zpages::routes(settings))
        .merge(logs::routes(settings))
        .merge(streaming::routes())
        .merge(explain::routes(limiter))
}

/// Returns 405 for the same paths, with the reason.
fn disabled() -> Router<NodeApi> {
    let below = ["run", "exec", "attach", "portForward", "containerLogs"];
    let trees = ["runningpods", "debug/pprof", "logs"];
    let mut routes = Router::new();
    for name in below.into_iter().chain(trees) {
        routes = routes
            .route(&format!("/{name}/"), any(debugging_is_disabled))
            .route(&format!("/{name}/{{*rest}}"), any(debugging_is_disabled));
    }
    routes
}

async fn debugging_is_disabled() -> Response {
    answer::text(
        StatusCode::METHOD_NOT_ALLOWED,
        "Debug endpoints are disabled.",
    )
}

async fn not_found() -> Response {
    answer::text(StatusCode::NOT_FOUND, "404 page not found")
}

#[cfg(test)]
mod sockets;
#[cfg(test)]
mod tests;
