//! The actor kit, and the catalogue of every message that crosses between actors.
//!
//! For whoever starts one of Windlass' actors (the PLEG, a pod source, a probe manager) in a
//! program of their own, or writes another. actix gives each actor its thread and its turn; the
//! mailboxes are ours, because actix' own bound does not bind (`docs/actors.md`). An actor here is
//! an `actix::Actor` whose inputs are streams of one closed event enum. Handlers are synchronous;
//! whatever waits runs in a spawned future that ends by posting one message back.
//!
//! # The way in
//!
//! * [`run_actors`] runs actors on this thread and their I/O on a tokio runtime; [`start_actor`]
//!   starts one, [`spawn_io`] starts I/O by name, [`Shutdown`] ends all of it in order
//! * [`mailbox()`] is a bounded channel for messages, [`slots()`] a coalescing box with one slot
//!   for each key, [`completions()`] the lane on which an actor hears of its own jobs
//! * [`StatusCache`], [`ProbeResults`], [`PlegHealth`]: one writer, any number of readers
//! * [`SystemClock`] is the wall clock, [`SimClock`] follows tokio's, which a test may pause
//! * the messages, and the handles that send them, are in `catalogue` and at the root
//!
//! # Example
//!
//! ```
//! use futures::StreamExt;
//! use windlass_actors::{ActorKind, Merge, slots};
//! use windlass_metrics::Metrics;
//!
//! struct Seen(u32);
//!
//! impl Merge for Seen {
//!     fn merge(&mut self, newer: Self) {
//!         self.0 += newer.0;
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let metrics = Metrics::new()?;
//! let (sender, mut receiver) = slots(ActorKind::SyncLoop, &metrics);
//! for _ in 0..1000 {
//!     sender.put("web", Seen(1)); // never waits, never fails
//! }
//! let (pod, seen) = receiver.next().await.ok_or("closed")?;
//! assert_eq!((pod, seen.0), ("web", 1000));
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-actors --example run_actor` is an actor with both kinds of lanes.
//!
//! # What it promises
//!
//! A full mailbox holds its sender back, or refuses a hint and counts it; nothing else is dropped.
//! The bound of each is [`ActorKind::mailbox_bound`], with its arithmetic beside it. Slots take
//! memory by keys, not by messages. Depth, age of the oldest message, drops and messages handled
//! are metrics. The span of the sender travels with a message.
//!
//! # What it does not do
//!
//! No supervision: a panic in a handler is not survived, the agent aborts and is started again. No
//! addresses, no look-up by name, no messages between processes. [`ActorKind`] is the closed list
//! of the agent's actors: one of your own borrows the name, and with it the bound, of the one it
//! stands for.

mod catalogue;
mod kind;

pub mod completions;
pub mod mailbox;
pub mod slots;

mod node_expander;
mod pleg_health;
mod probe_results;
mod runtime_name;
mod mounted_volume_cache;
mod status_cache;

pub mod clock;
mod spawn;

pub use completions::{CompletionSender, Completions, completions};
pub use catalogue::*;
pub use node_expander::NodeExpander;
pub use clock::{SimClock, SystemClock};
pub use kind::ActorKind;
pub use mailbox::{Delivery, Mailbox, MailboxSender, SendError, TrySendError, mailbox};
pub use pleg_health::PlegHealth;
pub use probe_results::ProbeResults;
pub use runtime_name::RuntimeName;
pub use mounted_volume_cache::MountedVolumeCache;
pub use slots::{Merge, SlotReceiver, SlotSender, slots};
pub use spawn::{Shutdown, run_actors, spawn_io, start_actor};
pub use status_cache::StatusCache;
