//! The agent as a library, for `main` and for simulations of the whole agent. Links all crates: to
//! use one part of the agent, depend on the crate of that part.
//!
//! # Entry points
//!
//! * [`build`] configuration and host → [`wiring::AgentParts`]: every port and setting of an agent
//! * [`wiring::spawn`] parts → running actors, as a [`wiring::Agent`]
//! * [`cluster`] API clients, credentials and reporting settings of a cluster node
//! * [`health`] the named checks behind `/healthz`
//! * [`node_summary`] the node and the state of its API server connection, for `windlassctl status`
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use windlass::{build, wiring};
//! use windlass_mailboxes::{SystemClock, run_actors};
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
//!     // health, metrics and the node API are served by the binary only
//!     agent.shutdown.token().cancelled().await;
//!     Ok(())
//! })
//! # }
//! ```
//!
//! `windlass-testing` runs the same agent on a virtual clock. `cargo run -p windlass -- --help` runs the
//! binary.
//!
//! # Guarantees
//!
//! The wiring has no logic: a simulation runs the same actors as the binary. After an agent restart
//! the new run takes over all state; containers keep running.
//!
//! # Out of scope
//!
//! Logging, signals, sockets and the watchdog belong to the binary (`main`, `servers`). The API is
//! not stable.

pub mod build;
pub mod cluster;
pub mod health;
pub mod node_summary;
pub mod wiring;
