//! What the node, its pods and their containers use, read when somebody asks.
//!
//! [`usage`] has the figures as plain data. Who measures implements [`StatsSource`]; who shows
//! them (the summary, `/metrics/resource`, `/metrics/cadvisor`, `windlassctl top`) takes that data.

pub mod usage;

pub mod source;

pub use source::{StatsSource, Wanted};
