//! Pieces of work as a trace shows them, and the port that takes them out of the agent.

use std::borrow::Cow;
use std::fmt;

use crate::Timestamp;

/// A trace (W3C `trace-id`): everything that one pod's start, or one request, caused. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(pub u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A piece of work in a trace (W3C `parent-id`). Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(pub u64);

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What a piece of work tells those whom it asks, so that theirs becomes a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: TraceId,
    /// The piece of work that asks.
    pub span: SpanId,
}

impl fmt::Display for TraceParent {
    /// The value of a `traceparent` header of a sampled trace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-01", self.trace, self.span)
    }
}

/// Whose part of a conversation a piece of work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Nobody else takes part.
    Internal,
    /// Another process is asked.
    Client,
    /// Another process asks.
    Server,
}

/// A piece of work that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedSpan {
    /// Trace and name of the piece.
    pub id: TraceParent,
    /// What it is a part of; `None` for the root of its trace.
    pub parent: Option<SpanId>,
    /// What was done, such as `RunPodSandbox`.
    pub name: Cow<'static, str>,
    /// Who takes part.
    pub kind: SpanKind,
    /// When it began.
    pub begin: Timestamp,
    /// When it was over.
    pub end: Timestamp,
    /// What it was about: OpenTelemetry's names, such as `k8s.pod.name`.
    pub attributes: Vec<(&'static str, String)>,
    /// Why it failed.
    pub error: Option<String>,
}

/// Takes finished pieces of work out of the agent (OTLP).
///
/// Must not block and holds a bounded number of them: what does not fit is dropped and counted.
pub trait SpanSink: fmt::Debug + Send + Sync + 'static {
    /// Whether a trace is to be taken; the same answer for the same trace.
    fn samples(&self, trace: TraceId) -> bool;

    /// Takes one piece of a trace that is to be taken.
    fn ended(&self, span: FinishedSpan);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_written_as_w3c_wants_it() {
        let parent = TraceParent {
            trace: TraceId(0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c),
            span: SpanId(0x00b7_ad6b_7169_2033),
        };
        let expected = "00-0af7651916cd43dd8448eb211c80319c-00b7ad6b71692033-01";
        assert_eq!(parent.to_string(), expected);
    }
}
