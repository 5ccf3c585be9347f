//! Timelines of all pods, and their spans.
//!
//! A timeline shows afterwards why a pod took long, without a tracing back end. With a
//! [`SpanSink`](windlass_types::SpanSink) the same records are exported as spans.
//!
//! # The way in
//!
//! * [`Timelines`] records and returns timelines
//! * [`RecordKey`] and [`RecordOutcome`] describe a record; [`RecordGuard`] is an open record
//! * [`traceparent`] is the span of the current task
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use windlass_mailboxes::SystemClock;
//! use windlass_timelines::{RecordOutcome, Timelines, RecordKind, RecordKey};
//! use windlass_types::{Pod, PodExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut pod = Pod::default();
//! pod.metadata.name = Some("web".to_owned());
//! pod.metadata.namespace = Some("default".to_owned());
//! pod.metadata.uid = Some("1234".to_owned());
//! let timelines = Timelines::new(Arc::new(SystemClock), None);
//!
//! timelines.seen(&pod);
//! for _ in 0..3 {
//!     let call = RecordKey::new(RecordKind::RuntimeCall, "RunPodSandbox");
//!     let call = timelines.begin(&pod.uid(), call);
//!     call.end(RecordOutcome::failed("no network"));
//! }
//! let timeline = timelines.find("default", "web").ok_or("unknown pod")?;
//! assert_eq!(timeline.records.len(), 1, "repeats are one record");
//! assert_eq!(timeline.records[0].count, 3);
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-timelines --example record_a_start` prints the timeline of a pod start.
//!
//! # What it promises
//!
//! * Recording takes a lock and never waits. A dropped [`RecordGuard`] records a cancellation.
//! * A timeline takes at most 8 KiB: records of the start stay, later ones are in a ring buffer,
//!   and dropped ones are counted (`windlass_pod_status::timeline`).
//! * The last 32 removed pods can be found by name.
//! * Trace IDs derive from the pod and the time, so simulations are deterministic.
//!
//! # What it does not do
//!
//! Timelines do not survive a restart. `windlass-telemetry` sends the spans. Records of unknown
//! pods are dropped.

mod context;
mod timelines;
mod trace;

pub use context::{traceparent, within};
pub use timelines::{RecordGuard, Timelines};
pub use windlass_pod_status::timeline::{RecordKey, RecordOutcome};
pub use windlass_types::explain::RecordKind;
