//! What touched each pod and how long it took.

mod context;

pub use context::{traceparent, within};
