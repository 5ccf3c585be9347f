//! Logs of containers and of the machine.

mod containers;
mod options;

use axum::Router;
use axum::routing::get;

use crate::{NodeApi, NodeApiSettings};

/// The group.
pub(crate) fn routes(_: &NodeApiSettings) -> Router<NodeApi> {
    Router::new().route(
        "/containerLogs/{namespace}/{pod}/{container}",
        get(containers::read),
    )
}

#[cfg(test)]
mod tests;
