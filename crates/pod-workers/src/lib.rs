//! The pod workers: a registry, and a worker for each pod UID.
//!
//! For agents built from the other crates: it schedules the syncs of desired pods. A worker runs
//! one job at a time (sync, terminating sync, terminated sync), coalesces updates in that time,
//! retries failures and publishes the results.
//!
//! # The way in
//!
//! * [`PodWorkers`] is the actor that holds the registry and starts the workers; [`PodWorkersDeps`]
//!   and [`WorkerDeps`] are their dependencies
//! * [`registry::state::Registry`] decides which pods have a worker and which wait: pure, usable
//!   alone
//! * [`StartLimiter`] limits concurrent pod starts: usable alone
//! * the states and retries of a worker are in `windlass_pod_lifecycle::pod_worker`, pure as well
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use windlass_actors::{UpdateKind, UpdatePod};
//! use windlass_pod_workers::registry::state::Registry;
//! use windlass_types::{Pod, PodExt, names};
//!
//! /// A static pod `web` with this UID.
//! fn web(uid: &str) -> Arc<Pod> {
//!     let mut pod = Pod::default();
//!     pod.metadata.uid = Some(uid.to_owned());
//!     pod.metadata.name = Some("web".to_owned());
//!     let source = (names::ANN_CONFIG_SOURCE.to_owned(), "file".to_owned());
//!     pod.metadata.annotations = Some([source].into());
//!     Arc::new(pod)
//! }
//!
//! let mut registry = Registry::default();
//! let mut run = |pod: Arc<Pod>| {
//!     let effects = registry.update(&pod.uid(), UpdatePod::new(UpdateKind::Run(pod)));
//!     effects.iter().map(ToString::to_string).collect::<Vec<_>>()
//! };
//! assert_eq!(run(web("old")), ["start(old)"]);
//! assert_eq!(run(web("new")), ["queue(new behind old)"]);
//! ```
//!
//! `cargo run -p windlass-pod-workers --example replace_pod` shows the updates of a static pod with
//! an edited manifest, and a burst of starts.
//!
//! # What it promises
//!
//! * One worker per UID, one job in flight per worker; states never go back.
//! * Two static pods with the same full name never run together: the newer waits for the
//!   termination of the older. A removed static pod that is desired again after its termination
//!   starts without its old containers.
//! * Memory grows with pods, not with messages; no update is dropped. A termination is never
//!   queued, and its grace period only shrinks.
//! * A start slot is held for at most 2 s, so a hung start does not block other pods.
//! * A job may be cancelled at any await; failures are retried according to their retry class.
//!
//! # What it does not do
//!
//! It does not call the runtime: a job gets the observed pod from the PLEG (`windlass-pleg`),
//! volumes from `windlass-volume-manager`, and runs the sync in `windlass-runtime`.
//! `windlass-sync-loop` determines the desired pods. A panic ends the process; containers keep
//! running and are adopted.
//!
//! # Inside
//!
//! * `registry` the pods with a worker, pods blocked on the termination of one with the same full
//!   name, and pods that restart after their termination
//! * `worker` the `PodWorker` actor around `windlass_pod_lifecycle::pod_worker`, and its jobs
//! * `start_limiter` the limit of concurrent pod starts

pub mod registry;
mod start_limiter;
pub mod worker;

use windlass_mailboxes::ActorKind;

pub use registry::{PodWorkers, PodWorkersDeps};
pub use start_limiter::StartLimiter;
pub use worker::WorkerDeps;

/// The queries of one housekeeping round, plus slack; updates and states of workers are slots.
pub const POD_WORKERS: ActorKind = ActorKind::new("PodWorkers", 4);

/// Receives a slot and its completions: one job, one timer, one kill in flight.
pub(crate) const POD_WORKER: ActorKind = ActorKind::new("PodWorker", 4);
