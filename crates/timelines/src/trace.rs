//! Timeline records as spans: a pod start is one trace, each later sync another.
//!
//! Trace IDs derive from the pod and the time, so simulations are deterministic.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use windlass_pod_status::timeline::{RecordId, RecordKey, RecordOutcome};
use windlass_types::explain::RecordKind;
use windlass_types::{
    FinishedSpan, Pod, PodExt, PodUid, SpanId, SpanKind, SpanSink, Timestamp, TraceId, TraceParent,
};
use windlass_units::hash::{fnv1a_64, fnv1a_128};

use crate::context::traceparent;

/// Name of the root span of a pod start.
const POD_START: &str = "podStart";

/// Creates spans of records and passes them to the sink.
#[derive(Debug)]
pub(crate) struct Tracer(Arc<dyn SpanSink>);

/// The trace of a running pod start.
#[derive(Debug)]
pub(crate) struct StartTrace {
    root: TraceParent,
    began: Timestamp,
    attributes: Attributes,
}

impl StartTrace {
    /// Returns the duration of the start so far.
    pub(crate) fn duration(&self, now: Timestamp) -> Duration {
        now.duration_since(self.began).unsigned_abs()
    }
}

#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) id: TraceParent,
    parent: Option<SpanId>,
    attributes: Attributes,
}

type Attributes = Vec<(&'static str, String)>;

impl Tracer {
    pub(crate) fn new(sink: Arc<dyn SpanSink>) -> Self {
        Self(sink)
    }

    /// Starts the trace of a pod start, if it is sampled.
    pub(crate) fn start(&self, pod: &Pod, now: Timestamp) -> Option<StartTrace> {
        let uid = pod.uid();
        Some(StartTrace {
            root: self.root(&uid, now, 0)?,
            began: now,
            attributes: pod_attributes((&uid, pod.namespace(), pod.name())),
        })
    }

    pub(crate) fn end_start(&self, start: StartTrace, error: Option<&str>, now: Timestamp) {
        self.0.ended(FinishedSpan {
            id: start.root,
            parent: None,
            kind: SpanKind::Internal,
            name: Cow::Borrowed(POD_START),
            begin: start.began,
            end: now,
            attributes: start.attributes,
            error: error.map(str::to_owned),
        });
    }

    /// Starts a span below the span of the current task, else below the pod start. A sync of a
    /// started pod is a new trace.
    pub(crate) fn span(
        &self,
        start: Option<&StartTrace>,
        what: &RecordKey,
        pod: (&PodUid, &str, &str),
        id: RecordId,
        now: Timestamp,
    ) -> Option<Span> {
        let job = what.kind == RecordKind::Sync;
        let parent = traceparent().or_else(|| start.map(|start| start.root));
        let id = match parent {
            Some(TraceParent { trace, span }) => {
                let seed = format!("{trace}/{span}/{}", id.0);
                let span = SpanId(fnv1a_64(seed.as_bytes()).max(1));
                TraceParent { trace, span }
            }
            None if job => self.root(pod.0, now, id.0)?,
            None => return None,
        };
        let subject = what.subject.as_ref();
        let subject = subject.map(|subject| ("windlass.subject", subject.to_string()));
        // syncs have the pod attributes, as upstream
        let mut attributes = if job { pod_attributes(pod) } else { Vec::new() };
        attributes.extend(subject);
        let parent = parent.map(|parent| parent.span);
        Some(Span {
            id,
            parent,
            attributes,
        })
    }

    /// Ends a span.
    pub(crate) fn ended(
        &self,
        span: Span,
        what: &RecordKey,
        outcome: &RecordOutcome,
        (begin, end): (Timestamp, Timestamp),
    ) {
        let error = match outcome {
            RecordOutcome::Done | RecordOutcome::Decided(_) => None,
            RecordOutcome::Failed(why) => Some(why.to_string()),
            RecordOutcome::Cancelled => Some("cancelled".to_owned()),
        };
        self.0.ended(FinishedSpan {
            id: span.id,
            parent: span.parent,
            kind: match what.kind {
                RecordKind::RuntimeCall | RecordKind::ApiRequest => SpanKind::Client,
                _ => SpanKind::Internal,
            },
            name: Cow::Borrowed(what.name),
            begin,
            end,
            attributes: span.attributes,
            error,
        });
    }

    /// Creates the root of a new trace, if it is sampled.
    fn root(&self, uid: &PodUid, now: Timestamp, number: u64) -> Option<TraceParent> {
        let seed = format!("{uid}/{}/{number}", now.as_nanosecond());
        let trace = TraceId(fnv1a_128(seed.as_bytes()).max(1));
        let span = SpanId(fnv1a_64(seed.as_bytes()).max(1));
        self.0.samples(trace).then_some(TraceParent { trace, span })
    }
}

/// Returns the OpenTelemetry attributes of a pod, as upstream.
fn pod_attributes((uid, namespace, name): (&PodUid, &str, &str)) -> Attributes {
    vec![
        ("k8s.pod.uid", uid.to_string()),
        ("k8s.pod.name", name.to_owned()),
        ("k8s.namespace.name", namespace.to_owned()),
    ]
}
