//! Support for actors: bounded mailboxes, coalescing slots, completions, clocks and shutdown.
//!
//! An actor is an `actix::Actor` whose inputs are streams of one closed event enum. Handlers are
//! synchronous; I/O runs in a spawned future that posts one completion. The mailboxes are separate
//! from those of actix, whose bound is not strict (`docs/actors.md`).
//!
//! # Entry points
//!
//! * [`run_actors`] runs actors on this thread and their I/O on a tokio runtime; [`start_actor`]
//!   starts one, [`spawn_io`] starts I/O by name, [`Shutdown`] stops everything in order
//! * [`mailbox()`] is a bounded channel, [`slots()`] a coalescing channel with one slot per key,
//!   [`completions()`] the channel for completions of an actor's own tasks
//! * [`SystemClock`] is the wall clock, [`SimClock`] follows the clock of tokio, which a test may
//!   pause
//!
//! # Example
//!
//! ```
//! use futures::StreamExt;
//! use windlass_mailboxes::{ActorKind, Merge, slots};
//! use windlass_metrics::{MailboxMetrics, Registrar, Registry};
//!
//! struct Changes(u32);
//!
//! impl Merge for Changes {
//!     fn merge(&mut self, newer: Self) {
//!         self.0 += newer.0;
//!     }
//! }
//!
//! const COUNTER: ActorKind = ActorKind::new("Counter", 8);
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = Registry::new();
//! let metrics = MailboxMetrics::new(&Registrar::new(&registry))?;
//! let (sender, mut receiver) = slots(COUNTER, &metrics);
//! for _ in 0..1000 {
//!     sender.put("web", Changes(1)); // never waits, never fails
//! }
//! let (pod, changes) = receiver.next().await.ok_or("closed")?;
//! assert_eq!((pod, changes.0), ("web", 1000));
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-mailboxes --example run_actor` is an actor with both kinds of channels.
//!
//! # Guarantees
//!
//! A full mailbox delays its sender, or drops an event and counts it; nothing else is dropped.
//! Slots take memory per key, not per message. Depth, age of the oldest message, drops and handled
//! messages are metrics. A message carries the span of its sender.
//!
//! # Limits
//!
//! No supervision: a panic in a handler aborts the agent, and its service manager restarts it. No
//! addresses, no lookup by name, no messages between processes.

mod kind;

pub mod completions;
pub mod mailbox;
pub mod slots;

pub mod clock;
mod spawn;

pub use clock::{SimClock, SystemClock};
pub use completions::{CompletionSender, Completions, completions};
pub use kind::ActorKind;
pub use mailbox::{Delivery, Mailbox, MailboxSender, SendError, TrySendError, mailbox};
pub use slots::{Merge, SlotReceiver, SlotSender, slots};
pub use spawn::{Shutdown, run_actors, spawn_io, start_actor};

#[cfg(test)]
fn test_metrics() -> windlass_metrics::MailboxMetrics {
    let registry = windlass_metrics::Registry::new();
    windlass_metrics::MailboxMetrics::new(&windlass_metrics::Registrar::new(&registry))
        .expect("names are unique")
}
