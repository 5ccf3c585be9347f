//! Updates the API server from the pod status store: statuses, finished deletions, mirror pods.
//!
//! `windlass_pod_status::status_sync` and `mirror` decide what is due, from the entry in the store
//! and the last known object; there is no read before a write. `machines` has a state machine for
//! each pod and the request queue, `io` sends requests, `start_latency` measures pod starts. No pod
//! waits for this actor.

mod actor;
mod io;
mod machines;
mod start_latency;
#[cfg(test)]
mod tests;

pub use actor::{StatusManager, StatusManagerDeps};
