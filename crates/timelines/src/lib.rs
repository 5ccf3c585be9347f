//! What touched each pod and how long it took: the owner of all timelines, and the spans of traces.
//!
//! [`Timelines`] is a handle that those who work on pods record with; what is kept of it, and how
//! much, is `windlass_core::timeline`. With a [`SpanSink`](windlass_types::SpanSink) the same
//! records leave the agent as spans: a pod's start is one trace.

mod context;
mod timelines;
mod trace;

pub use context::{traceparent, within};
pub use timelines::{Timelines, Touch};
pub use windlass_core::timeline::{Outcome, What};
pub use windlass_types::why::TouchKind;
