//! The actor kit, and the catalogue of every message that crosses between actors.
//!
//! actix gives each actor its thread and its turn; the mailboxes are ours, because actix' own
//! bound does not bind (`docs/actors.md`). An actor here is an `actix::Actor` whose inputs are
//! streams of one closed event enum: a bounded [`mailbox`], a coalescing [`slots`] box keyed by
//! pod, or a timer. Handlers are synchronous; whatever waits runs in a spawned future that ends
//! by posting one message back.

pub mod catalogue;
pub mod kind;

pub mod answers;
pub mod mailbox;
pub mod slots;

pub mod claim_sizes;
pub mod pleg_health;
pub mod probe_results;
pub mod settled;
pub mod status_cache;

pub mod clock;
pub mod spawn;

pub use answers::{AnswerSender, Answers, answers};
pub use catalogue::*;
pub use claim_sizes::ClaimSizes;
pub use clock::{SimClock, SystemClock};
pub use kind::ActorKind;
pub use mailbox::{Delivery, Mailbox, MailboxSender, SendError, TrySendError, mailbox};
pub use pleg_health::PlegHealth;
pub use probe_results::ProbeResults;
pub use settled::SettledVolumes;
pub use slots::{Merge, SlotReceiver, SlotSender, slots};
pub use spawn::{Shutdown, run_actors, spawn_io, start_actor};
pub use status_cache::StatusCache;
