//! The SyncLoop: the centre where everything that can happen to a pod meets.
//!
//! One actor, one closed enum of causes ([`SyncLoopEvent`]), one match ([`actor`]). It keeps the
//! set of desired pods and tells PodWorkers what to do; it waits for nothing and no one.
//!
//! * [`event`] the causes
//! * [`desired`] the set of desired pods, [`dispatch`] what a config change asks of a worker: pure
//! * [`admissions`] which pods the node has taken: pure
//! * [`actor`] the loop
//! * [`housekeeping`] the periodic clean-up, off the loop
//! * [`runtime_check`] is the runtime there, and when to ask again: pure

pub mod event;

pub mod admissions;
pub mod desired;
pub mod dispatch;
pub mod runtime_check;

pub mod actor;
pub mod housekeeping;

pub use actor::{AdmissionDeps, SyncLoop, SyncLoopDeps, SyncLoopHealth};
pub use event::SyncLoopEvent;
