//! `/healthz` with its checks, and the same as metrics: `/metrics/slis`.

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use axum::routing::get;
use windlass_health::{all_checks, health_response, metrics_response};

use crate::NodeApi;

pub(crate) fn routes() -> Router<NodeApi> {
    Router::new()
        .route("/healthz", get(all))
        .route("/healthz/", get(all))
        .route("/healthz/{check}", get(one))
        .route("/metrics/slis", get(slis))
}

async fn all(State(api): State<NodeApi>, RawQuery(query): RawQuery) -> Response {
    health_response(&*api.health, None, query.as_deref())
}

async fn one(
    State(api): State<NodeApi>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    health_response(&*api.health, Some(&name), query.as_deref())
}

/// Runs all checks on each scrape.
async fn slis(State(api): State<NodeApi>) -> Response {
    for check in all_checks(&*api.health) {
        api.metrics.slis.observe(check.name, check.result.is_ok());
    }
    metrics_response(api.metrics.slis.render())
}
