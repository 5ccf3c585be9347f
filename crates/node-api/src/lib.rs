//! The node's own API: what port 10250 (and, in part, the read-only port) answers.
//!
//! *owns* nothing: pods come from the board, figures from `windlass_stats`, logs from files, streams
//! from the runtime · *invariant* no handler runs before `windlass_auth` has let its request
//! through · *bound* see each group.
//!
//! Each file is a group of endpoints and has one `routes()`.

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
mod why;
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
    let routes = match debugging {
        true => always_on().merge(self::debugging(&api.settings)),
        false => always_on().merge(disabled()),
    };
    routes
        .fallback(not_found)
        .layer(from_fn_with_state((api.clone(), server), requests::count))
        .with_state(api)
}

/// The group that the read-only port has too: health, pods, statistics, metrics.
fn always_on() -> Router<NodeApi> {
    health::routes()
        .merge(pods::routes())
        .merge(metrics::routes())
        .merge(usage::routes())
}

/// What `enableDebuggingHandlers` turns on: logs, streams, what runs, configuration.
fn debugging(settings: &NodeApiSettings) -> Router<NodeApi> {
    debug::routes(settings)
        .merge(zpages::routes(settings))
        .merge(logs::routes(settings))
        .merge(streaming::routes())
        .merge(why::routes())
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
