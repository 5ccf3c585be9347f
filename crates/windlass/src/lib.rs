//! The agent as a library: what `main` does in four steps, so that a simulation can do the same.
//!
//! * [`build`] configuration and machine → [`wiring::AgentParts`]
//! * [`wiring`] parts → running actors; the only file that knows every actor
//! * [`cluster`] what a node of a cluster has besides: clients, credentials, how it reports
//! * [`health`] the named checks behind `/healthz`
//! * [`standing`] which node it is and whether its API server answers, for `windlassctl status`

pub mod build;
pub mod cluster;
pub mod health;
pub mod standing;
pub mod wiring;
