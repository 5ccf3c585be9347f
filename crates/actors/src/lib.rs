//! Support for actors, and the catalogue of all messages between them.
//!
//! An actor is an `actix::Actor` whose inputs are streams of one closed event enum. Handlers are
//! synchronous; I/O runs in a spawned future that posts one completion. The mailboxes are our own,
//! because the bound of actix mailboxes is not strict (`docs/actors.md`).
//!
//! # The way in
//!
//! * [`run_actors`] runs actors on this thread and their I/O on a tokio runtime; [`start_actor`]
//!   starts one, [`spawn_io`] starts I/O by name, [`Shutdown`] stops everything in order
//! * [`mailbox()`] is a bounded channel, [`slots()`] a coalescing channel with one slot per key,
//!   [`completions()`] the channel for completions of an actor's own tasks
//! * [`StatusCache`], [`ProbeResults`], [`PlegHealth`]: one writer, any number of readers
//! * [`SystemClock`] is the wall clock, [`SimClock`] follows the clock of tokio, which a test may
//!   pause
//! * the messages and the handles that send them are at the root
//!
//! # Example
//!
//! ```
//! use futures::StreamExt;
//! use windlass_actors::{ActorKind, Merge, slots};
//! use windlass_metrics::Metrics;
//!
//! struct Changes(u32);
//!
//! impl Merge for Changes {
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
//!     sender.put("web", Changes(1)); // never waits, never fails
//! }
//! let (pod, changes) = receiver.next().await.ok_or("closed")?;
//! assert_eq!((pod, changes.0), ("web", 1000));
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-actors --example run_actor` is an actor with both kinds of channels.
//!
//! # What it promises
//!
//! A full mailbox delays its sender, or drops an event and counts it; nothing else is dropped.
//! The bounds and their arithmetic are in [`ActorKind::mailbox_bound`]. Slots take memory per key,
//! not per message. Depth, age of the oldest message, drops and handled messages are metrics. A
//! message carries the span of its sender.
//!
//! # What it does not do
//!
//! No supervision: a panic in a handler aborts the agent, and its service manager restarts it. No
//! addresses, no lookup by name, no messages between processes. [`ActorKind`] is a closed list; a
//! new actor outside the agent uses the kind, and the bound, of the actor that it replaces.

mod catalogue;
mod kind;

pub mod completions;
pub mod mailbox;
pub mod slots;

mod mounted_volume_cache;
mod node_expander;
mod pleg_health;
mod probe_results;
mod runtime_name;
mod status_cache;

pub mod clock;
mod spawn;

pub use catalogue::*;
pub use clock::{SimClock, SystemClock};
pub use completions::{CompletionSender, Completions, completions};
pub use kind::ActorKind;
pub use mailbox::{Delivery, Mailbox, MailboxSender, SendError, TrySendError, mailbox};
pub use mounted_volume_cache::MountedVolumeCache;
pub use node_expander::NodeExpander;
pub use pleg_health::PlegHealth;
pub use probe_results::ProbeResults;
pub use runtime_name::RuntimeName;
pub use slots::{Merge, SlotReceiver, SlotSender, slots};
pub use spawn::{Shutdown, run_actors, spawn_io, start_actor};
pub use status_cache::StatusCache;
