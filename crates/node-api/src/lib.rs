//! The node's own API: what port 10250 (and, in part, the read-only port) answers.
//!
//! For an agent that is to be asked by kubectl, the API server, Prometheus or metrics-server as they ask
//! a kubelet. Each file is a group of endpoints and has one `routes()`.
//!
//! *owns* nothing: pods come from the board, figures from `windlass_stats`, logs from files, streams
//! from the runtime · *invariant* no handler runs before `windlass_auth` has let its request
//! through · *bound* see each group.
//!
//! # The way in
//!
//! * [`router`] is everything that one of the two ports ([`ServerType`]) answers
//! * [`NodeApi`] is what handlers share, made of [`NodeApiDeps`]: ports, handles and paths
//! * [`NodeApiSettings`] says which endpoints there are, by configuration fields and feature gates
//! * [`traced`] makes spans of requests
//!
//! # Example
//!
//! ```no_run
//! use windlass_https::{Limits, Transport, serve};
//! use windlass_node_api::{NodeApi, NodeApiDeps, ServerType, router};
//!
//! # async fn run(deps: NodeApiDeps, listener: tokio::net::TcpListener) {
//! // in the clear and for everybody: health, pods, statistics and metrics, and nothing else
//! let service = router(NodeApi::new(deps), ServerType::ReadOnly);
//! serve(listener, service, Transport::Plain, Limits::default(), Default::default()).await;
//! # }
//! ```
//!
//! What a query says is read without a server, too, from any bytes:
//!
//! ```
//! use windlass_node_api::queries::StreamQuery;
//!
//! let uri = "/exec/default/web/app?command=ls&output=1&error=1".parse()?;
//! let query = StreamQuery::of(&uri).map_err(|_| "refused")?;
//! let streams = query.streams().map_err(|_| "refused")?;
//! assert!(streams.stdout && streams.stderr && !streams.stdin);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! `cargo run -p windlass-node-api --example ask_the_node` builds it over one pod and asks it.
//!
//! # What it promises
//!
//! Paths, queries, status codes and words are upstream's, where a client sees them. Long answers
//! (`/metrics/cadvisor`, logs) are made in parts, as fast as the client takes them. Nothing is opened by
//! following a link out of a pod's directory or of `/var/log`. A client that does not read holds its own
//! connection and nobody else's place for scrapes.
//!
//! # What it does not do
//!
//! It authenticates and authorizes nobody (`windlass_auth`), speaks no TLS (`windlass_https`), and
//! measures nothing (`windlass_stats`). Without `windlass_auth::require_auth` in front, the router of
//! [`ServerType::ReadWrite`] runs commands for everybody.

mod answer;
mod api;
mod requests;

mod debug;
mod health;
mod logs;
mod metrics;
mod pods;
mod spans;
mod streaming;
mod usage;
mod explain;
mod zpages;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::any;

pub use api::{NodeApi, NodeApiDeps, NodeApiSettings, Verbosity};
pub use logs::Journals;
pub use spans::{RequestSpans, traced};

/// What queries say, read from any bytes: strangers' input comes here first.
pub mod queries {
    pub use crate::logs::{BadOptions, NodeQuery, PodLogOptions};
    pub use crate::streaming::{Query as StreamQuery, Refusal};
}

/// Which port a request came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerType {
    /// 10250: authenticated and authorized.
    ReadWrite,
    /// `readOnlyPort`: in the clear, for everybody who reaches it.
    ReadOnly,
}

/// Everything that a port answers; who may ask is the caller's part.
pub fn router(api: NodeApi, server: ServerType) -> Router {
    let debugging = server == ServerType::ReadWrite && api.settings.debugging;
    let turns = usage::Turns::new();
    let routes = always_on(turns.clone()).merge(match debugging {
        true => self::debugging(&api.settings, turns),
        false => disabled(),
    });
    routes
        .fallback(not_found)
        .layer(from_fn_with_state((api.clone(), server), requests::count))
        .with_state(api)
}

/// The group that the read-only port has too: health, pods, statistics, metrics.
fn always_on(turns: usage::Turns) -> Router<NodeApi> {
    health::routes()
        .merge(pods::routes())
        .merge(metrics::routes())
        .merge(usage::routes(turns))
}

/// What `enableDebuggingHandlers` turns on: logs, streams, what runs, configuration.
fn debugging(settings: &NodeApiSettings, turns: usage::Turns) -> Router<NodeApi> {
    debug::routes(settings)
        .merge(zpages::routes(settings))
        .merge(logs::routes(settings))
        .merge(streaming::routes())
        .merge(explain::routes(turns))
}

/// The same without them: the client is told why.
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
