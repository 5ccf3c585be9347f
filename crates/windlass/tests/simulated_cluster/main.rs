//! The whole agent as a cluster node on a virtual clock, with a failing API server.
//!
//! The API server is `windlass-fake-api` in the same process. No disk is simulated: a restarted
//! agent has the state of API server and runtime only.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all are tests

mod audit;
mod fixture;

mod certificates;
mod claims;
mod deletion;
mod dra;
mod eviction;
mod images;
mod isolation;
mod kept;
mod many_volumes;
mod memory;
mod mirrors;
mod node_allocatable;
mod node_object;
mod objects;
mod offline;
mod ordinary;
mod outages;
mod peers;
mod pod_watch;
mod preemption;
mod resize_actuation;
mod resize_allocation;
mod resources;
mod restored;
mod slow_runtime;
mod storm;
mod tokens;
mod volume_limits;
mod volumes;

use std::time::Duration;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
