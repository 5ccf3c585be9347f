//! The SyncLoop dispatches every event to the pod workers.
//!
//! It is one actor with one closed enum of events ([`SyncLoopEvent`]). It keeps the desired pods,
//! admits them and sends updates to PodWorkers; it never waits. Its decisions are pure: updates from
//! changes, admission, and the pods that are due at a tick.
//!
//! # The way in
//!
//! * [`SyncLoop`] is the actor, [`SyncLoopStreams`] what it receives, [`SyncLoopDeps`] its
//!   dependencies, [`SyncLoopHealth`] the time of its last iteration
//! * [`SyncLoopEvent`] is the list of all events
//! * [`desired::DesiredPods`] converts a change into updates of workers (`Dispatch`)
//! * [`admissions::AdmittedPodSet`] has the admitted pods, and rejects pods
//!
//! # Example
//!
//! ```
//! use windlass_sync_loop::desired::DesiredPods;
//! use windlass_types::{Pod, PodOp, PodSource, PodUpdate, SharedPod, names};
//!
//! let mut pod = Pod::default();
//! pod.metadata.uid = Some("u1".to_owned());
//! let source = (names::ANN_CONFIG_SOURCE.to_owned(), "file".to_owned());
//! pod.metadata.annotations = Some([source].into());
//!
//! let mut desired = DesiredPods::default();
//! let mut apply = |op, pods| {
//!     let dispatches = desired.apply(PodUpdate { op, source: PodSource::File, pods });
//!     dispatches.iter().map(ToString::to_string).collect::<Vec<_>>()
//! };
//! assert_eq!(apply(PodOp::Add, vec![SharedPod::new(pod)]), ["run(u1)"]);
//! assert_eq!(apply(PodOp::Set, vec![]), ["remove(u1)"]);
//! ```
//!
//! `cargo run -p windlass-sync-loop --example admit_pods` follows pods of two sources through
//! changes and admission on a small node.
//!
//! # What it promises
//!
//! * An iteration never waits. The runtime check has a timeout of 10 s.
//! * The loop ends when PodStorage has stopped; then the health check fails.
//! * Config changes wait in a mailbox of 50, which delays their sender; other events coalesce per
//!   pod. At most one check and one housekeeping round are in progress.
//! * No orphaned pod is terminated before all sources are ready, except a pod replaced by a static
//!   pod.
//! * A pod is admitted once: a running or previously admitted pod is not checked again.
//! * A changed size changes nothing until it is allocated; what the node has no room for is retried.
//! * A critical pod without room waits for the end of the pods that it preempts; other pods are
//!   admitted meanwhile. A termination that the node began continues after an agent restart.
//!
//! # What it does not do
//!
//! It neither starts nor stops containers, reads no manifests and sends no API requests. After a
//! restart the desired pods are rebuilt from the sources.
//!
//! # Inside
//!
//! * `event` the events
//! * `desired` the desired pods, `dispatch` the updates of workers: pure
//! * `admissions` the admitted pods, the preemptions and the allocation of sizes: pure
//! * `resizes` the queue of resizes: pure
//! * `pods_to_sync` the pods that are due at a sync tick: pure
//! * `actor` the loop
//! * `housekeeping` the housekeeping rounds, outside the loop
//! * `runtime_check` readiness of the runtime and the check interval: pure

mod event;

pub mod admissions;
pub mod desired;
mod dispatch;
pub(crate) mod pods_to_sync;
mod resizes;
mod runtime_check;

mod actor;
mod housekeeping;

use windlass_mailboxes::ActorKind;

pub use actor::{AdmissionDeps, SyncLoop, SyncLoopDeps, SyncLoopHealth, SyncLoopStreams};
pub use event::SyncLoopEvent;

/// As the upstream update channel; one merge yields at most 5 updates per source.
pub const SYNC_LOOP: ActorKind = ActorKind::new("SyncLoop", 50);
