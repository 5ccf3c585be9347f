//! Spans of a trace, and the port that exports them.

use std::borrow::Cow;
use std::fmt;

use crate::Timestamp;

/// ID of the trace of one pod start or request (W3C `trace-id`). Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(pub u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// ID of a span (W3C `parent-id`). Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(pub u64);

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Trace context that a span passes to the requests that it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: TraceId,
    /// The parent span.
    pub span: SpanId,
}

impl fmt::Display for TraceParent {
    /// The value of a `traceparent` header of a sampled trace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-01", self.trace, self.span)
    }
}

/// Role of a span in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// No request.
    Internal,
    /// A request to another process.
    Client,
    /// A request from another process.
    Server,
}

/// A finished span.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedSpan {
    /// IDs of trace and span.
    pub id: TraceParent,
    /// Parent span; `None` for the root of a trace.
    pub parent: Option<SpanId>,
    /// Name of the operation, such as `RunPodSandbox`.
    pub name: Cow<'static, str>,
    /// Role in a request.
    pub kind: SpanKind,
    /// Start time.
    pub begin: Timestamp,
    /// End time.
    pub end: Timestamp,
    /// Attributes with OpenTelemetry names, such as `k8s.pod.name`.
    pub attributes: Vec<(&'static str, String)>,
    /// Error text, if it failed.
    pub error: Option<String>,
}

/// Exports finished spans (OTLP).
///
/// Must not block; spans over its bound are dropped and counted.
pub trait SpanSink: fmt::Debug + Send + Sync + 'static {
    /// True if the trace is sampled; deterministic per trace.
    fn samples(&self, trace: TraceId) -> bool;

    /// Exports a span of a sampled trace.
    fn ended(&self, span: FinishedSpan);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traceparent_follows_w3c_format() {
        let parent = TraceParent {
            trace: TraceId(0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c),
            span: SpanId(0x00b7_ad6b_7169_2033),
        };
        let expected = "00-0af7651916cd43dd8448eb211c80319c-00b7ad6b71692033-01";
        assert_eq!(parent.to_string(), expected);
    }
}
