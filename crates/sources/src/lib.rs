//! Where desired pods come from: manifest files, a URL, the API server, and the storage that merges
//! them.
//!
//! For whoever wants to be told which pods a node is asked to run, and what changed about them.
//! Each source is an actor that tells a [`PodStorage`] all that it has; the storage compares that
//! with what the source said before and answers with additions, updates and removals.
//!
//! # The way in
//!
//! * [`FileSource`] follows a directory or a file, [`HttpSource`] a URL, [`ApiSource`] this node's
//!   pods at the API server; each has a config struct of its name
//! * [`PodStorage`] merges; [`PodStorageDeps`] say how changes are told and to whom
//! * `windlass_actors::SourceSnapshot` is what a source says: whoever sends one is a source
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use windlass_actors::{MailboxSender, SourceSnapshot, SystemClock, start_actor};
//! use windlass_sources::{FileSource, FileSourceConfig};
//!
//! /// Reads manifests for as long as the program runs. Call it inside `windlass_actors::run_actors`.
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
//! `cargo run -p windlass-sources --example merge_sources` merges a directory, a URL and a source
//! of its own, and edits one of them.
//!
//! # What it promises
//!
//! * A snapshot is complete: a double changes nothing, the next one repairs a lost one.
//! * A file that is renamed into the directory is read within milliseconds (inotify), and at the
//!   latest after a period. A manifest that turns bad keeps its pods for one period; it is told,
//!   and takes nothing else down.
//! * A failing URL, file system or API server changes no pod.
//! * The UID of a static pod is a hash of its manifest, its node and its origin: a restart tells
//!   the same pods, an edit is a removal and an addition.
//! * Nothing is dropped: a storage whose reader is slow holds the sources back. A manifest is at
//!   most 10 MiB.
//!
//! # What it does not do
//!
//! It runs nothing, and sources do not see each other: a file and a URL may both ask for a pod of
//! one name, and the workers decide. What a manifest means is decided in
//! `windlass_manifests::static_pod`, what a merge says in `windlass_manifests::merge`.
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

pub use api::{ApiSource, ApiSourceConfig};
pub use file::{FileSource, FileSourceConfig};
pub use http::{HttpSource, HttpSourceConfig};
pub use storage::{PodStorage, PodStorageDeps};
