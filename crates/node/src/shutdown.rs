//! Graceful node shutdown: pods end by priority group before logind shuts the host down.
//!
//! `logind` speaks D-Bus, `watch` holds the connection and reports its signals, `drain` stops one
//! group of pods after the other, `record` persists the times. [`windlass_pod_lifecycle::shutdown`]
//! decides which pods end when. Without D-Bus (as in a container) a shutdown is not delayed, and
//! one log line reports that.

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
