//! What touched each pod and how long it took: the owner of all timelines, and the spans of traces.
//!
//! For an agent that wants to answer "why did this pod take so long?" after the fact, without a tracing
//! back end; with a [`SpanSink`](windlass_types::SpanSink) the same records leave it as spans, and a pod's
//! start is one trace.
//!
//! # The way in
//!
//! * [`Timelines`] is a handle that those who work on pods record with, and that answers
//! * [`What`] and [`Outcome`] say what was done and what came of it; [`Touch`] is something under way
//! * [`traceparent`] is the piece of a trace that the current task does, for those whom it asks
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use windlass_actors::SystemClock;
//! use windlass_timelines::{Outcome, Timelines, RecordKind, What};
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
//!     let call = timelines.begin(&pod.uid(), What::new(RecordKind::RuntimeCall, "RunPodSandbox"));
//!     call.end(Outcome::failed("no network"));
//! }
//! let timeline = timelines.find("default", "web").ok_or("nobody has seen it")?;
//! assert_eq!(timeline.records.len(), 1, "three of a kind are one record");
//! assert_eq!(timeline.records[0].count, 3);
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-timelines --example record_a_start` shows the timeline of a pod's start.
//!
//! # What it promises
//!
//! * A record costs a lock and no waiting. A [`Touch`] that is dropped before its end counts as cancelled.
//! * A timeline takes 8 KiB at most: what happened until the pod was ready stays, what came later is a
//!   ring, and how many records made room is told. What is kept, and how much, is
//!   `windlass_pod_status::timeline`.
//! * The last 32 pods that left can still be found by name.
//! * Names of traces follow from the pod and the time: a simulation has the same ones each time.
//!
//! # What it does not do
//!
//! It survives no restart: what an earlier agent did is in its log. It sends nothing (`windlass-telemetry`
//! does), and a record of a pod that nobody has shown is dropped.

mod context;
mod timelines;
mod trace;

pub use context::{traceparent, within};
pub use timelines::{Timelines, Touch};
pub use windlass_pod_status::timeline::{Outcome, What};
pub use windlass_types::why::RecordKind;
