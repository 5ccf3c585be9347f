//! Liveness, readiness and startup probes of containers.
//!
//! A manager for each kind; verdicts are in `windlass_actors::ProbeResults`. What a probe asks,
//! when, and what its answers come to is decided in `windlass_core::probe`, and whom it asks in
//! `windlass_core::probe_targets`.
//!
//! * [`actor`] the actor: messages, one timer, the questions it spawns
//! * [`probes`] all probes of one kind and what they have come to
//! * [`wheel`] when each of them is due
//! * [`io`] one question

pub mod actor;
pub mod io;
pub mod probes;
pub mod wheel;

pub use actor::ProbeManager;
pub use probes::ProbeDeps;
