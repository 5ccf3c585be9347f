//! Liveness, readiness and startup probes of containers.
//!
//! A manager for each kind; verdicts are in `windlass_actors::ProbeResults`.

pub mod actor;

pub use actor::{ProbeDeps, ProbeManager};
