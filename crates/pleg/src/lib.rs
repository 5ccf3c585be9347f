//! The Pod Lifecycle Event Generator: keeps the cache of what the runtime has, and tells what
//! changed.
//!
//! For whoever wants to know what the pods of a container runtime do, as it happens and without
//! missing anything: a monitor, a log shipper, another agent. Three things make it look: a runtime
//! event (a hint that triggers the read of one pod), somebody who asks because they have just
//! changed something, and the relist that verifies everything and finds what events missed.
//!
//! # The way in
//!
//! * [`Pleg`] is the actor; start it with `windlass_mailboxes::start_actor`
//! * [`PlegDeps`] are what it works with: the runtime, a clock, metrics, the cache that it fills
//!   and the lane on which changes come
//! * `windlass_actors::StatusCache` is the cache, `PodChanged` a change, `PlegHandle` the way to
//!   ask
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use futures::StreamExt;
//! use tokio_util::sync::CancellationToken;
//! use windlass_actors::{PlegHealth, RuntimeName, StatusCache};
//! use windlass_mailboxes::{ActorKind, SystemClock, mailbox, run_actors, slots, start_actor};
//! use windlass_cri::{CriClient, CriOptions, HungCalls};
//! use windlass_metrics::Metrics;
//! use windlass_pleg::{Pleg, PlegDeps};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Arc::new(tokio::runtime::Runtime::new()?);
//! run_actors(&runtime, async {
//!     let metrics = Metrics::new()?;
//!     let options = CriOptions::new(metrics.clone());
//!     let (_ask, questions) = mailbox(crate::PLEG, &metrics.mailboxes);
//!     let (changes, mut changed) = slots(ActorKind::new("SyncLoop", 50), &metrics.mailboxes);
//!     let cache = StatusCache::new();
//!     let clock = Arc::new(SystemClock);
//!     let deps = PlegDeps {
//!         runtime: Arc::new(CriClient::connect("/run/containerd/containerd.sock", options)?),
//!         clock: clock.clone(),
//!         metrics,
//!         cache: cache.clone(),
//!         changes,
//!         cancel: CancellationToken::new(),
//!         health: PlegHealth::default(),
//!         runtime_name: RuntimeName::default(),
//!         hung: HungCalls::new(clock),
//!     };
//!     start_actor(Pleg::new(deps, questions));
//!     while let Some((uid, change)) = changed.next().await {
//!         let alive = cache.get(&uid).is_some_and(|pod| pod.is_alive());
//!         println!("{uid}: {:?}, alive: {alive}", change.events);
//!     }
//!     Ok(())
//! })
//! # }
//! ```
//!
//! `cargo run -p windlass-pleg --example watch_pod_events -- /run/containerd/containerd.sock` follows a
//! real runtime.
//!
//! # What it promises
//!
//! * There is one writer of the cache, and it is written before anyone is told. A change is told
//!   exactly once, however it was found.
//! * Events cost nothing when they are many: they coalesce for each container, changes for each
//!   pod. Whoever reads slowly misses states in between and never the last one.
//! * At most eight reads run at once, and one for each pod; a read that hangs gives its place up
//!   after 500 ms, so a sandbox that hangs delays only its own pod.
//! * A lost event is found by the relist after at most 10 s; without an event stream it lists every
//!   second. A list that fails is tried again after 100 ms doubling to 5 s.
//!
//! # What it does not do
//!
//! It starts and stops nothing, and keeps no history: what is gone from the runtime is gone from
//! the cache. It knows only containers of pods, as the CRI's labels name them.
//!
//! # Inside
//!
//! * `actor` the actor
//! * `queue` which pods are being read, who waits, when to read again: pure
//! * `io` the reads themselves

pub mod actor;
mod io;
mod queue;

use windlass_mailboxes::ActorKind;

pub use actor::{Pleg, PlegDeps};

/// Inspections are coalesced per pod: 110 concurrent requests, the completions of 8 inspections in
/// flight, plus slack.
pub const PLEG: ActorKind = ActorKind::new("Pleg", 256);
