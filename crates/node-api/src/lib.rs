//! The node's own API: what port 10250 (and, in part, the read-only port) answers.
//!
//! *owns* nothing: pods come from the board, figures from `windlass_stats`, logs from files, streams
//! from the runtime · *invariant* no handler runs before `windlass_auth` has let its request
//! through · *bound* see each group.
//!
//! Each file is a group of endpoints and has one `routes()`.

mod api;

mod debug;
mod health;
mod logs;
mod metrics;
mod pods;
mod streaming;
mod usage;
mod why;

use axum::Router;

pub use api::{NodeApi, NodeApiDeps, NodeApiSettings};

/// The group that the read-only port has too: health, pods, statistics, metrics.
pub fn always_on() -> Router<NodeApi> {
    health::routes()
        .merge(pods::routes())
        .merge(metrics::routes())
        .merge(usage::routes())
}

/// What `enableDebuggingHandlers` turns on: logs, streams, what runs, configuration, why.
pub fn debugging() -> Router<NodeApi> {
    debug::routes()
        .merge(logs::routes())
        .merge(streaming::routes())
        .merge(why::routes())
}
