//! Where results leave the agent: the latest status of every pod, and what happened to it.
//!
//! [`PodBoard`] is written by the pod workers and read by the local API (and, with an API
//! server, by the [`StatusManager`]). [`EventLog`] is the [`EventRecorder`] that keeps a bounded,
//! aggregated list of events for each pod and puts it on the board; [`ApiEvents`] does the same and
//! sends them to the API server too.

pub mod api_events;
pub mod board;
pub mod events;
pub mod manager;

pub use api_events::{ApiEvents, EventSender};
pub use board::{BoardChange, BoardSubscription, PodBoard, PodEntryView, present};
pub use events::EventLog;
pub use manager::{StatusManager, StatusManagerDeps};
pub use windlass_types::EventRecorder;
