//! The Pod Lifecycle Event Generator (PLEG): caches the observed state of pods and reports changes.
//!
//! For programs that follow the pods of a container runtime: a monitor, a log shipper, another
//! agent. A pod is inspected after a runtime event, on request, and when the periodic relist finds
//! a change.
//!
//! # The way in
//!
//! * [`Pleg`] is the actor; start it with `windlass_mailboxes::start_actor`
//! * [`PlegDeps`] are its dependencies: the runtime, a clock, metrics, the cache and the sender of
//!   changes
//! * `windlass_actors::StatusCache` is the cache, `PodChanged` a change; `PlegHandle` requests
//!   inspections
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use futures::StreamExt;
//! use tokio_util::sync::CancellationToken;
//! use windlass_actors::{OomKillCache, PlegHealth, RuntimeName, StatusCache};
//! use windlass_mailboxes::{ActorKind, SystemClock, mailbox, run_actors, slots, start_actor};
//! use windlass_cri::{CriClient, CriOptions, HungCalls};
//! use windlass_metrics::Metrics;
//! use windlass_pleg::{Pleg, PlegDeps};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Arc::new(tokio::runtime::Runtime::new()?);
//! run_actors(&runtime, async {
//!     let metrics = Metrics::new()?;
//!     let options = CriOptions::new(metrics.runtime_calls.clone());
//!     let (_sender, mailbox) = mailbox(windlass_pleg::PLEG, &metrics.mailboxes);
//!     let (changes, mut changed) = slots(ActorKind::new("SyncLoop", 50), &metrics.mailboxes);
//!     let cache = StatusCache::new();
//!     let clock = Arc::new(SystemClock);
//!     let deps = PlegDeps {
//!         runtime: Arc::new(CriClient::connect("/run/containerd/containerd.sock", options)?),
//!         clock: clock.clone(),
//!         metrics: metrics.pleg,
//!         mailboxes: metrics.mailboxes,
//!         cache: cache.clone(),
//!         changes,
//!         cancel: CancellationToken::new(),
//!         health: PlegHealth::default(),
//!         runtime_name: RuntimeName::default(),
//!         hung: HungCalls::new(clock),
//!         oom_kills: OomKillCache::default(),
//!     };
//!     start_actor(Pleg::new(deps, mailbox));
//!     while let Some((uid, change)) = changed.next().await {
//!         let alive = cache.get(&uid).is_some_and(|pod| pod.is_alive());
//!         println!("{uid}: {:?}, alive: {alive}", change.events);
//!     }
//!     Ok(())
//! })
//! # }
//! ```
//!
//! `cargo run -p windlass-pleg --example watch_pod_events -- /run/containerd/containerd.sock`
//! follows a real runtime.
//!
//! # What it promises
//!
//! * The PLEG is the only writer of the cache, and writes it before it sends a change. Each change
//!   is sent exactly once.
//! * Events coalesce per container, changes per pod. A slow reader misses intermediate states, but
//!   never the last one.
//! * At most eight concurrent inspections, one per pod; a hung inspection loses its permit after
//!   500 ms, so a hung sandbox delays only its own pod.
//! * The relist detects a lost event after at most 10 s; without an event stream the interval is 1
//!   s. A failed relist is retried with a back-off from 100 ms to 5 s.
//!
//! # What it does not do
//!
//! It does not start or stop anything and keeps no history: objects removed from the runtime are
//! removed from the cache. It ignores containers without the pod labels.
//!
//! # Inside
//!
//! * `actor` the actor
//! * `queue` the inspection queue: pure
//! * `io` the CRI calls

pub mod actor;
mod io;
mod queue;

use windlass_mailboxes::ActorKind;

pub use actor::{Pleg, PlegDeps};

/// Inspections are coalesced per pod: 110 concurrent requests, the completions of 8 inspections in
/// flight, plus slack.
pub const PLEG: ActorKind = ActorKind::new("Pleg", 256);
