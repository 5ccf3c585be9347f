//! The agent as a library: what `main` does in four steps (parse, build, spawn, drain), so that a
//! simulation can do the same with other edges.
//!
//! For tests of the whole agent. Who wants a part of it takes the part's crate: this one links them all.
//!
//! # The way in
//!
//! * [`build`] configuration and machine → [`wiring::AgentParts`]: every port and setting of an agent
//! * [`wiring::spawn`] parts → running actors, as a [`wiring::Agent`]; the only place that knows every actor
//! * [`cluster`] what a node of a cluster has besides: clients, credentials, how it reports
//! * [`health`] the named checks behind `/healthz`
//! * [`standing`] which node it is and whether its API server answers, for `windlassctl status`
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use windlass::{build, wiring};
//! use windlass_actors::{SystemClock, run_actors};
//! use windlass_config::{KubeletFlags, load};
//! use windlass_metrics::Metrics;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = load(&KubeletFlags::from_args(std::env::args_os())?)?;
//! let runtime = Arc::new(tokio::runtime::Runtime::new()?);
//! run_actors(&runtime, async {
//!     let metrics = Metrics::new()?;
//!     let clients = build::RuntimeClients::connect(&config, &metrics)?;
//!     let parts = build::agent_parts(&config, Arc::new(SystemClock), metrics, &clients)?;
//!     let agent = wiring::spawn(parts);
//!     // it serves nothing: health, metrics and the node's API are the binary's
//!     agent.shutdown.token().cancelled().await;
//!     Ok(())
//! })
//! # }
//! ```
//!
//! `windlass-testing` has the same agent on a virtual clock; `cargo run -p windlass -- --help` is the
//! program.
//!
//! # What it promises
//!
//! The wiring decides nothing and replaces nothing: a simulation runs the same actors as the program. What
//! an agent leaves behind when it ends, its successor takes over; containers outlive both.
//!
//! # What it does not do
//!
//! No logging, no signals, no sockets, no watchdog: those are the program's (`main`, `servers`). Nothing
//! here is a stable interface.

pub mod build;
pub mod cluster;
pub mod health;
pub mod standing;
pub mod wiring;
