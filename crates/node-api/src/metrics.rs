//! `/metrics` and `/metrics/probes`: metrics of the agent and the size of logs.

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use windlass_health::metrics_response;
use windlass_stats::log_metrics;

use crate::NodeApi;

pub(crate) fn routes() -> Router<NodeApi> {
    Router::new()
        .route("/metrics", get(all))
        .route("/metrics/probes", get(probes))
}

async fn all(State(api): State<NodeApi>) -> Response {
    api.health.before_scrape();
    let logs = log_metrics(&api.stats.logs().await);
    metrics_response(api.metrics.render().map(|text| text + &logs))
}

async fn probes(State(api): State<NodeApi>) -> Response {
    metrics_response(api.metrics.probes.render())
}
