//! The SyncLoop: the centre where everything that can happen to a pod meets.
//!
//! For whoever builds an agent out of the other crates. One actor, one closed enum of causes
//! ([`SyncLoopEvent`]), one match. It keeps the set of desired pods, admits them, and tells
//! PodWorkers what to do; it waits for nothing and no one. Its two decisions are pure and of use
//! alone: what a change of the desired pods asks of the workers, and which pods the node takes.
//!
//! # The way in
//!
//! * [`SyncLoop`] is the actor, [`SyncLoopDeps`] what it works with, [`SyncLoopHealth`] when it
//!   last turned
//! * [`SyncLoopEvent`] is the list of causes: whatever makes the loop turn is in it
//! * [`desired::DesiredPods`] turns a change into what it asks of each worker
//!   ([`dispatch::Dispatch`])
//! * [`admissions::Admissions`] remembers which pods were taken, and rejects what does not fit
//!
//! # Example
//!
//! ```
//! use windlass_sync_loop::desired::DesiredPods;
//! use windlass_types::{Pod, PodOp, PodSource, PodUpdate, SharedPod, names};
//!
//! let mut pod = Pod::default();
//! pod.metadata.uid = Some("u1".to_owned());
//! let source = (names::ANN_CONFIG_SOURCE.to_owned(), "file".to_owned());
//! pod.metadata.annotations = Some([source].into());
//!
//! let mut desired = DesiredPods::default();
//! let mut apply = |op, pods| {
//!     let dispatches = desired.apply(PodUpdate { op, source: PodSource::File, pods });
//!     dispatches.iter().map(ToString::to_string).collect::<Vec<_>>()
//! };
//! assert_eq!(apply(PodOp::Add, vec![SharedPod::new(pod)]), ["run(u1)"]);
//! assert_eq!(apply(PodOp::Set, vec![]), ["remove(u1)"]);
//! ```
//!
//! `cargo run -p windlass-sync-loop --example admit_pods` follows pods of two sources through
//! changes and admission on a small node.
//!
//! # What it promises
//!
//! * An iteration never waits. A check of the runtime that is not answered within 10 s counts as
//!   failed.
//! * Config changes wait in a mailbox of 50 and hold their sender back; everything else coalesces
//!   for each pod. One check and one clean-up are under way at most.
//! * No pod is stopped as an orphan before every configured source has spoken, except for what a
//!   static pod replaces.
//! * A pod is admitted once: who runs, or was admitted before a restart, is not asked again.
//!
//! # What it does not do
//!
//! It neither starts nor stops containers, reads no manifest and talks to no API server. It ends
//! with the process: after a restart the set is built anew from the sources.
//!
//! # Inside
//!
//! * `event` the causes
//! * `desired` the set of desired pods, `dispatch` what a config change asks of a worker: pure
//! * `admissions` which pods the node has taken: pure
//! * `actor` the loop
//! * `housekeeping` the periodic clean-up, off the loop
//! * `runtime_check` is the runtime there, and when to ask again: pure

mod event;

pub mod admissions;
pub mod desired;
mod dispatch;
mod runtime_check;

mod actor;
mod housekeeping;

pub use actor::{AdmissionDeps, SyncLoop, SyncLoopDeps, SyncLoopHealth};
pub use event::SyncLoopEvent;
