//! `/pods`: what this node is asked to run.

use axum::Router;

use crate::NodeApi;

/// The group.
pub(crate) fn routes() -> Router<NodeApi> {
    Router::new()
}
