//! The pod status store, events, and their updates at the API server.
//!
//! # The way in
//!
//! * [`PodStatusStore`] has one [`PodStatusEntry`] per pod; pod workers write it, the control API
//!   and the StatusManager read it
//! * [`StatusSubscription`] returns the changes since the last read
//! * [`EventLog`] is an [`EventRecorder`] with a bounded list of events per pod; [`ApiEvents`] also
//!   sends them to the API server
//! * [`StatusManager`] is the actor that updates statuses and mirror pods at the API server
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
//! let store = PodStatusStore::new();
//! let mut reader = store.subscribe();
//! store.publish(PodStatusEntry::new(Arc::new(pod)));
//! let change = reader.next().await.ok_or("store dropped")?;
//! assert_eq!(change.changed[0].pod.name(), "web");
//! store.remove(&"u1".into());
//! assert_eq!(reader.next().await.ok_or("store dropped")?.removed, ["u1".into()]);
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-status --example follow_pod_status` follows a pod status store.
//!
//! # What it promises
//!
//! * The latest entry wins. A slow reader misses intermediate states, but never the last state or a
//!   removal.
//! * Each pod keeps 32 events, repeats are counted. Recording never waits; an overflow of the send
//!   queue drops and counts the oldest event.
//! * The StatusManager has at most one request in flight per pod and 16 in total. Patches are
//!   computed when they are sent, so after an outage each pod needs one patch.
//!
//! # What it does not do
//!
//! It computes no status (`windlass_pod_status::status`), keeps no history and inspects no pods.

mod api_events;
mod events;
mod explain;
pub mod log_target;
mod manager;
mod status_store;

use windlass_mailboxes::ActorKind;

pub use api_events::{ApiEvents, EventSender};
pub use events::EventLog;
pub use explain::{PodExplainer, blocker_message};
pub use manager::{StatusManager, StatusManagerDeps};
pub use status_store::{
    PodStatusEntry, PodStatusStore, RequestedSizes, StatusChange, StatusSubscription, current_entry,
};
pub use windlass_types::EventRecorder;

/// Receives slots per pod, and the completions of its requests.
pub const STATUS_MANAGER: ActorKind = ActorKind::new("StatusManager", 4);
