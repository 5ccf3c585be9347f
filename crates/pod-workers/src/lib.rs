//! The pod workers: a registry, and a worker for each pod UID.
//!
//! For whoever builds an agent out of the other crates: it is the part between "this pod is
//! desired" and "this pass over the pod is to be made now". A worker runs one job at a time (sync,
//! kill, release), coalesces what is asked meanwhile, retries what failed and publishes what came
//! of it.
//!
//! # The way in
//!
//! * [`PodWorkers`] is the actor that holds the registry and starts the workers; [`PodWorkersDeps`]
//!   and [`WorkerDeps`] are what it and they work with
//! * [`registry::state::Registry`] decides who has a worker and who waits: pure, usable alone
//! * [`StartLimiter`] lets so many pods start at a time, in order: usable alone
//! * a worker's phases and retries are `windlass_pod_lifecycle::pod_worker`, pure as well
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
//! assert_eq!(run(web("old")), ["spawn(old)"]);
//! assert_eq!(run(web("new")), ["hold(new behind old)"]);
//! ```
//!
//! `cargo run -p windlass-pod-workers --example replace_pod` goes through the life of a static pod
//! whose manifest is edited, and through a burst of starts.
//!
//! # What it promises
//!
//! * One worker for each UID, one job in flight for each; a phase never goes back.
//! * Two static pods of one name never run at once: the newer waits until the older has gone.
//! * Memory grows with pods, not with messages; nothing that is asked is dropped. A kill never
//!   waits in line, and its grace period only shrinks.
//! * A start slot is leased for 2 s, so a pod whose start hangs stops no other.
//! * A job may be cancelled at any await; what failed is tried again as its class of error says.
//!
//! # What it does not do
//!
//! It neither looks at the runtime nor talks to it: a job asks the PLEG (`windlass-pleg`), has
//! volumes set up (`windlass-volume-manager`) and hands the pass to `windlass-runtime`. Which pods
//! are desired is `windlass-sync-loop`'s part. Workers do not survive a panic: the process ends,
//! the containers go on and are adopted.
//!
//! # Inside
//!
//! * `registry` who has a worker, who waits for a predecessor of the same name, who is to come back
//!   after it stopped
//! * `worker` the `PodWorker` actor around `windlass_pod_lifecycle::pod_worker`, and its jobs
//! * `start_limiter` how many pods start at a time, in order

pub mod registry;
mod start_limiter;
pub mod worker;

use windlass_mailboxes::ActorKind;

pub use registry::{PodWorkers, PodWorkersDeps};
pub use start_limiter::StartLimiter;
pub use worker::WorkerDeps;

/// One completion in flight for each of 250 workers, plus slack.
pub const POD_WORKERS: ActorKind = ActorKind::new("PodWorkers", 256);

/// Receives a slot and its completions: one job, one timer, one kill in flight.
pub const POD_WORKER: ActorKind = ActorKind::new("PodWorker", 4);
