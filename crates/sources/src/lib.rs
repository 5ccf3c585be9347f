//! Pod sources (manifest files, a URL, the API server) and the storage that merges them.
//!
//! Each source is an actor that sends snapshots of its pods to a [`PodStorage`]. The storage
//! compares them with the previous snapshots and sends additions, updates and removals.
//!
//! # The way in
//!
//! * [`FileSource`] follows a directory or a file, [`HttpSource`] a URL, [`ApiSource`] this node's
//!   pods at the API server; each has a config struct of its name
//! * [`PodStorage`] merges; [`PodStorageDeps`] are its dependencies
//! * `windlass_actors::SourceSnapshot` is the message of a source
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use windlass_actors::SourceSnapshot;
//! use windlass_mailboxes::{MailboxSender, SystemClock, start_actor};
//! use windlass_sources::{FileSource, FileSourceConfig};
//!
//! /// Reads manifests for as long as the program runs. Call it inside `windlass_mailboxes::run_actors`.
//! fn follow(storage: MailboxSender<SourceSnapshot>) {
//!     start_actor(FileSource::new(FileSourceConfig {
//!         path: "/etc/kubernetes/manifests".into(),
//!         node_name: "node1".to_owned(),
//!         period: Duration::from_secs(20),
//!         clock: Arc::new(SystemClock),
//!         storage,
//!     }));
//! }
//! ```
//!
//! `cargo run -p windlass-sources --example merge_sources` merges a directory, a URL and a custom
//! source, and edits one of them.
//!
//! # What it promises
//!
//! * A snapshot is complete: a repeat changes nothing, the next one repairs a lost one.
//! * A file that is renamed into the directory is read within milliseconds (inotify), at the latest
//!   after one period. An invalid manifest is reported and keeps its pods for one period; other
//!   manifests are not affected.
//! * A failing URL, file system or API server changes no pod.
//! * The UID of a static pod is a hash of its manifest, node and origin: a restart keeps UIDs, an
//!   edit is a removal and an addition.
//! * Nothing is dropped: a slow reader delays the sources. A manifest has at most 10 MiB.
//!
//! # What it does not do
//!
//! It runs no pods. Sources are independent: if a file and a URL have pods with the same full name,
//! the workers decide. Manifests are parsed in `windlass_manifests::static_pod`, merges decided in
//! `windlass_manifests::merge`.
//!
//! # Inside
//!
//! Each part is a pure state (`state.rs`), its I/O (`io.rs`, `watch.rs`) and the actor that joins
//! them (`actor.rs`).

mod api;
mod file;
mod http;
mod storage;

mod snapshot;

use windlass_mailboxes::ActorKind;

pub use api::{ApiSource, ApiSourceConfig};
pub use file::{FileSource, FileSourceConfig};
pub use http::{HttpSource, HttpSourceConfig};
pub use storage::{PodStorage, PodStorageDeps};

/// Receives only its completions: a pass, an event and a timer, one of each in flight.
pub const API_SOURCE: ActorKind = ActorKind::new("ApiSource", 4);

/// Three sources with one snapshot in flight each: 3, doubled.
pub const POD_STORAGE: ActorKind = ActorKind::new("PodStorage", 8);
