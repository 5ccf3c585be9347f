//! What is used: `/stats/summary`, `/metrics/resource`, `/metrics/cadvisor`.

use axum::Router;

use crate::NodeApi;

/// The group.
pub(crate) fn routes() -> Router<NodeApi> {
    Router::new()
}
