//! Where desired pods come from.
//!
//! [`file`] and [`http`] turn manifests into static pods, [`api`] reads this node's pods from the
//! API server; [`storage`] merges what all sources
//! say and tells the SyncLoop what changed. Each part is a pure state (`state.rs`), its I/O
//! (`io.rs`, `watch.rs`) and the actor that joins them (`actor.rs`). What a manifest means is
//! decided in `windlass_core::static_pod`.

pub mod api;
pub mod file;
pub mod http;
pub mod storage;

mod snapshot;

pub use api::{ApiSource, ApiSourceConfig};
pub use file::{FileSource, FileSourceConfig};
pub use http::{HttpSource, HttpSourceConfig};
pub use storage::{PodStorage, PodStorageDeps};
