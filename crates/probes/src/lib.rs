//! Liveness, readiness and startup probes of containers.
//!
//! For whoever wants containers asked on time, and verdicts after thresholds, as a kubelet does it:
//! by command, HTTP, TCP or gRPC. A manager for each kind; verdicts are in
//! `windlass_actors::ProbeResults`. What a probe asks, when, and what its answers come to is
//! decided in `windlass_pod_lifecycle::probe`, and whom it asks in `windlass_pod_lifecycle::probe_targets`.
//!
//! # The way in
//!
//! * [`ProbeManager`] is the actor, one for each `ProbeKind`; start it with
//!   `windlass_actors::start_actor`
//! * [`ProbeDeps`] are what it works with: the runtime for commands, `windlass_checks::NetChecks`
//!   for requests, where events and verdicts go
//! * `windlass_actors::ProbePod` tells it what runs of a pod; `ProbeUpdate` is what it answers with
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use windlass_checks::Checks;
//! use windlass_cri::RuntimeService;
//! use windlass_actors::{ActorKind, ProbePod, ProbeResults, ProbeUpdate, SlotReceiver, SlotSender};
//! use windlass_actors::{SystemClock, slots, start_actor};
//! use windlass_metrics::Metrics;
//! use windlass_probes::{ProbeDeps, ProbeManager};
//! use windlass_types::{EventRecorder, PodUid, ProbeKind};
//!
//! /// Starts the readiness probes of all pods that the lane tells of. Call it inside `run_actors`.
//! fn start(
//!     runtime: Arc<dyn RuntimeService>,
//!     checks: Arc<dyn Checks>,
//!     events: Arc<dyn EventRecorder>,
//!     metrics: Metrics,
//! ) -> (SlotSender<PodUid, ProbePod>, SlotReceiver<PodUid, ProbeUpdate>, ProbeResults) {
//!     let (lane, pods) = slots(ActorKind::ReadinessManager, &metrics);
//!     let (updates, changed) = slots(ActorKind::SyncLoop, &metrics);
//!     let results = ProbeResults::default();
//!     let deps = ProbeDeps {
//!         runtime,
//!         checks,
//!         events,
//!         clock: Arc::new(SystemClock),
//!         metrics,
//!         results: results.clone(),
//!         file: None, // verdicts then end with the process
//!         updates,
//!     };
//!     start_actor(ProbeManager::new(ProbeKind::Readiness, deps, pods));
//!     (lane, changed, results)
//! }
//! ```
//!
//! `cargo run -p windlass-probes --example probe_server` probes an HTTP server that comes and goes.
//!
//! # What it promises
//!
//! * One question of a probe is under way, each with the probe's own timeout; ticks that pass
//!   meanwhile fall out. One that hangs delays no other, and there is one timer however many wait.
//! * A verdict is about one container instance, and on the disk, if a file was given, before
//!   anybody hears of it. A new manager that is given the old verdicts asks nobody a second time
//!   whether it has started, and keeps ready who was.
//! * What the node itself could not ask (no file, no memory left) counts neither for nor against.
//!
//! # What it does not do
//!
//! It restarts nothing and takes nobody out of service: it says so, and others act. Before a first
//! verdict there is none: what is believed until then is decided by `windlass_pod_lifecycle::probe_targets`.
//!
//! # Inside
//!
//! * `actor` the actor: messages, one timer, the questions it spawns
//! * `probes` all probes of one kind and what they have come to
//! * `wheel` when each of them is due
//! * `io` one question

mod actor;
mod io;
mod probes;
mod wheel;

pub use actor::ProbeManager;
pub use probes::ProbeDeps;
