//! Liveness, readiness and startup probes of containers.
//!
//! Each probe kind has a manager, which writes its results to `windlass_actors::ProbeResults`.
//! Schedule, evaluation and thresholds are in `windlass_pod_lifecycle::probe`, the choice of
//! containers in `windlass_pod_lifecycle::probe_targets`.
//!
//! # The way in
//!
//! * [`ProbeManager`] is the actor, one for each `ProbeKind`; start it with
//!   `windlass_mailboxes::start_actor`
//! * [`ProbeDeps`] are its dependencies: the runtime for commands, `windlass_checks::NetChecks` for
//!   requests, the receivers of events and results
//! * it receives running containers as `windlass_actors::ProbePod` and sends `ProbeUpdate`
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use windlass_checks::Checks;
//! use windlass_cri::RuntimeService;
//! use windlass_actors::{ProbePod, ProbeResults, ProbeUpdate};
//! use windlass_hung_operations::HungOperations;
//! use windlass_mailboxes::{ActorKind, SlotReceiver, SlotSender};
//! use windlass_mailboxes::{SystemClock, slots, start_actor};
//! use windlass_metrics::Metrics;
//! use windlass_probes::{ProbeDeps, ProbeManager};
//! use windlass_types::{EventRecorder, PodUid, ProbeKind};
//!
//! /// Starts the readiness probes of all pods. Call it inside `run_actors`.
//! fn start(
//!     runtime: Arc<dyn RuntimeService>,
//!     checks: Arc<dyn Checks>,
//!     events: Arc<dyn EventRecorder>,
//!     metrics: Metrics,
//! ) -> (SlotSender<PodUid, ProbePod>, SlotReceiver<PodUid, ProbeUpdate>, ProbeResults) {
//!     let (sender, pods) = slots(windlass_probes::actor_kind(ProbeKind::Readiness), &metrics.mailboxes);
//!     let (updates, changed) = slots(ActorKind::new("SyncLoop", 50), &metrics.mailboxes);
//!     let results = ProbeResults::default();
//!     let deps = ProbeDeps {
//!         runtime,
//!         checks,
//!         events,
//!         clock: Arc::new(SystemClock),
//!         metrics,
//!         results: results.clone(),
//!         file: None, // results are not persisted
//!         updates,
//!         hung: HungOperations::new(Arc::new(SystemClock)),
//!     };
//!     start_actor(ProbeManager::new(ProbeKind::Readiness, deps, pods));
//!     (sender, changed, results)
//! }
//! ```
//!
//! `cargo run -p windlass-probes --example probe_server` probes an HTTP server that starts and
//! stops.
//!
//! # What it promises
//!
//! * A probe has at most one attempt in progress, with the timeout of the probe; periods that pass
//!   meanwhile are skipped. A hung attempt delays no other probe. All probes share one timer.
//! * A result applies to one container instance, and is persisted before it is published. A new
//!   manager with restored results repeats no startup probe and keeps containers ready.
//! * An attempt that fails on the node itself (no file, no memory) does not change the result.
//!
//! # What it does not do
//!
//! It restarts no container and removes none from service; it only publishes results. The initial
//! result is decided in `windlass_pod_lifecycle::probe_targets`.
//!
//! # Inside
//!
//! * `actor` the actor: messages, one timer, spawned attempts
//! * `probes` all probes of one kind and their results
//! * `timers` the due time of each probe
//! * `io` one probe attempt

mod actor;
mod io;
mod probes;
mod timers;

use windlass_mailboxes::ActorKind;
use windlass_types::ProbeKind;

pub use actor::ProbeManager;
pub use probes::ProbeDeps;

/// Label of the probe manager of a kind. It receives a slot per pod, its timer and the completions of
/// its probes.
pub const fn actor_kind(kind: ProbeKind) -> ActorKind {
    match kind {
        ProbeKind::Liveness => ActorKind::new("LivenessManager", 4),
        ProbeKind::Readiness => ActorKind::new("ReadinessManager", 4),
        ProbeKind::Startup => ActorKind::new("StartupManager", 4),
    }
}
