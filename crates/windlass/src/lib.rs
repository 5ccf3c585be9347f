//! The agent as a library: what `main` does in four steps, so that a simulation can do the same.
//!
//! * [`build`] configuration and machine → [`wiring::AgentParts`]
//! * [`wiring`] parts → running actors; the only file that knows every actor
//! * [`health`] the named checks behind `/healthz`

pub mod build;
pub mod health;
pub mod wiring;
