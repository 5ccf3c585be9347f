//! Logs of containers and of the host.

mod containers;
mod journal;
mod node_query;
mod options;
mod tree;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{any, get};

use crate::answer::text;
use crate::{NodeApi, NodeApiSettings};
pub use journal::Journals;
pub use node_query::NodeQuery;
pub use options::{BadOptions, PodLogOptions};

pub(crate) fn routes(settings: &NodeApiSettings) -> Router<NodeApi> {
    let containers = Router::new().route(
        "/containerLogs/{namespace}/{pod}/{container}",
        get(containers::read),
    );
    match settings.system_logs {
        true => containers
            .route("/logs", get(root))
            .route("/logs/", get(root))
            .route("/logs/{*path}", get(below)),
        false => containers
            .route("/logs/", any(disabled))
            .route("/logs/{*path}", any(disabled)),
    }
}

async fn disabled() -> Response {
    text(StatusCode::METHOD_NOT_ALLOWED, "logs endpoint is disabled.")
}

async fn root(State(api): State<NodeApi>, RawQuery(query): RawQuery) -> Response {
    system_logs(&api, "", query.as_deref().unwrap_or_default()).await
}

async fn below(
    State(api): State<NodeApi>,
    Path(path): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    system_logs(&api, &path, query.as_deref().unwrap_or_default()).await
}

async fn system_logs(api: &NodeApi, path: &str, query: &str) -> Response {
    if !api.settings.log_query {
        return tree::serve(api, path).await;
    }
    match NodeQuery::decode(query) {
        Ok(Some(query)) => journal::respond(api, &query, path).await,
        Ok(None) => tree::serve(api, path).await,
        Err(error) => text(StatusCode::BAD_REQUEST, error),
    }
}

#[cfg(test)]
pub(crate) mod tests;
