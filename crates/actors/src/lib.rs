//! The messages between the actors of the agent, their handles, and the state that they share.
//!
//! For programs that feed or observe one of the actor crates: a pod source, a PLEG without the rest
//! of the agent, a test. `docs/actors.md` has a row for each message: sender, receiver, bound, and
//! what happens if it is lost.
//!
//! # Entry points
//!
//! * the messages and the handles that send them are at the root, for example [`SourceSnapshot`],
//!   [`PodChanged`], [`PodWorkersHandle`]
//! * [`StatusCache`], [`ProbeResults`], [`PlegHealth`], [`OomKillCache`]: one writer, any number of readers
//!
//! # Example
//!
//! ```
//! use windlass_actors::StatusCache;
//! use windlass_types::{ObservedPod, PodUid};
//!
//! let cache = StatusCache::new();
//! assert!(cache.all().is_empty());
//! ```
//!
//! # Guarantees
//!
//! Commands are imperative, events past tense, queries begin with `Get`. A message has no reference
//! to an actor: it is sent through a mailbox or a slot of `windlass-mailboxes`.
//!
//! # Limits
//!
//! No actor is here: each has a crate of its own, and `windlass` connects them.

mod catalogue;

mod mounted_volume_cache;
mod node_expander;
mod oom_kills;
mod pleg_health;
mod probe_results;
mod runtime_name;
mod status_cache;

pub use catalogue::*;
pub use mounted_volume_cache::MountedVolumeCache;
pub use node_expander::NodeExpander;
pub use oom_kills::OomKillCache;
pub use pleg_health::PlegHealth;
pub use probe_results::ProbeResults;
pub use runtime_name::RuntimeName;
pub use status_cache::StatusCache;
