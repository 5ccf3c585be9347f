//! `/healthz` and its checks.

use axum::Router;

use crate::NodeApi;

/// The group.
pub(crate) fn routes() -> Router<NodeApi> {
    Router::new()
}
