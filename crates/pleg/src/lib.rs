//! The Pod Lifecycle Event Generator: keeps the cache of what the runtime has.
//!
//! Three things make it look: a runtime event (a hint that triggers the read of one pod), a
//! request of a pod worker that has just changed something, and the relist that verifies
//! everything and finds what events missed. There is one writer of the cache, [`Pleg`];
//! inspections run in parallel, bounded, each with a deadline, so a sandbox that hangs delays
//! only its own pod.
//!
//! * [`actor`] the actor
//! * [`queue`] which pods are being read, who waits, when to read again: pure
//! * [`io`] the reads themselves

pub mod actor;
pub mod io;
pub mod queue;

pub use actor::{Pleg, PlegDeps};
