//! What the agent is doing: running pods, configuration, flags, profiles, verbosity, checkpoints.

use axum::Router;

use crate::NodeApi;

/// The group.
pub(crate) fn routes() -> Router<NodeApi> {
    Router::new()
}
