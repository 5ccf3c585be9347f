//! Graceful shutdown of the machine: pods end in order before logind lets it go down.
//!
//! `logind` speaks D-Bus, `watch` keeps hold of it and tells what it says, `drain` stops one
//! group of pods after the other, `record` keeps the times, and the actor connects them. Which pods end when is decided in
//! [`windlass_pod_lifecycle::shutdown`]. Where there is no D-Bus (in a container) a shutdown is not
//! delayed, and one line says so.

mod actor;
mod drain;
mod logind;
mod record;
mod watch;

#[cfg(test)]
mod tests;

pub use actor::{NodeShutdown, NodeShutdownConfig};
pub use logind::{LogindBus, LogindError};
pub use record::ShutdownRecord;
