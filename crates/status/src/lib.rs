//! Where results leave the agent: the latest status of every pod, and what happened to it.
//!
//! For whoever shows or forwards the state of pods: a CLI, a web page, the API server.
//!
//! # The way in
//!
//! * [`PodStatusStore`] has one entry for each pod ([`PodStatusEntry`]); pod workers write it, the local
//!   API and the StatusManager read it
//! * [`StatusSubscription`] is one reader's place: what is new since it last looked, all at once
//! * [`EventLog`] is the [`EventRecorder`] that keeps a bounded, aggregated list of events for each
//!   pod and puts it on the board; [`ApiEvents`] does the same and sends them to the API server too
//! * [`StatusManager`] is the actor that brings statuses and mirror pods to the API server
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use windlass_status::{PodStatusStore, PodStatusEntry};
//! use windlass_types::{Pod, PodExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut pod = Pod::default();
//! pod.metadata.uid = Some("u1".to_owned());
//! pod.metadata.name = Some("web".to_owned());
//!
//! let board = PodStatusStore::new();
//! let mut reader = board.subscribe();
//! board.publish(PodStatusEntry::new(Arc::new(pod)));
//! let change = reader.next().await.ok_or("the board is gone")?;
//! assert_eq!(change.changed[0].pod.name(), "web");
//! board.remove(&"u1".into());
//! assert_eq!(reader.next().await.ok_or("the board is gone")?.removed, ["u1".into()]);
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-status --example follow_board` follows a board while pods and events come
//! to it.
//!
//! # What it promises
//!
//! * The latest entry wins. A reader holds no lock while it works; a slow one misses states in
//!   between, never the last one and never a removal of what it knew.
//! * 32 events are kept for each pod, repeats are counted. Recording never waits; what the queue to
//!   the API server cannot take is dropped, oldest first, and counted.
//! * The StatusManager has one request for each pod under way and sixteen in all. Its content is
//!   computed when it is sent, so that an outage of ten minutes ends in one patch for each pod.
//!
//! # What it does not do
//!
//! It computes no status (`windlass_pod_status::status`) and keeps no history: an entry goes with its
//! pod, and all of it with the process. What runs is not looked up here.

mod api_events;
mod status_store;
mod events;
mod manager;

pub use api_events::{ApiEvents, EventSender};
pub use status_store::{StatusChange, StatusSubscription, PodStatusStore, PodStatusEntry, current_entry};
pub use events::EventLog;
pub use manager::{StatusManager, StatusManagerDeps};
pub use windlass_types::EventRecorder;
