//! Touches as spans: a pod's start is one trace, and every later job of its worker one of its own.
//!
//! Names of traces follow from the pod and the time, so that a simulation has the same ones each time.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use windlass_units::hash::{fnv1a_64, fnv1a_128};
use windlass_pod_status::timeline::{Outcome, TouchId, What};
use windlass_types::why::RecordKind;
use windlass_types::{
    FinishedSpan, Pod, PodExt, PodUid, SpanId, SpanKind, SpanSink, Timestamp, TraceId, TraceParent,
};

use crate::context::traceparent;

/// Name of the root of a pod's start.
const POD_START: &str = "podStart";

/// Makes spans of touches, and hands them to the sink.
#[derive(Debug)]
pub(crate) struct Tracer(Arc<dyn SpanSink>);

/// The trace of a pod's start, which is not over yet.
#[derive(Debug)]
pub(crate) struct StartTrace {
    root: TraceParent,
    began: Timestamp,
    attributes: Attributes,
}

impl StartTrace {
    /// How long the start has lasted.
    pub(crate) fn lasts(&self, now: Timestamp) -> Duration {
        now.duration_since(self.began).unsigned_abs()
    }
}

/// A touch in its trace.
#[derive(Debug)]
pub(crate) struct Span {
    /// Trace and name.
    pub(crate) id: TraceParent,
    parent: Option<SpanId>,
    attributes: Attributes,
}

type Attributes = Vec<(&'static str, String)>;

impl Tracer {
    pub(crate) fn new(sink: Arc<dyn SpanSink>) -> Self {
        Self(sink)
    }

    /// The trace of a pod's start, if it is to be taken.
    pub(crate) fn start(&self, pod: &Pod, now: Timestamp) -> Option<StartTrace> {
        let uid = pod.uid();
        Some(StartTrace {
            root: self.root(&uid, now, 0)?,
            began: now,
            attributes: of_pod((&uid, pod.namespace(), pod.name())),
        })
    }

    /// The trace of a pod's start is over, with the pod's error if it has one.
    pub(crate) fn start_is_over(&self, start: StartTrace, error: Option<&str>, now: Timestamp) {
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

    /// A touch is part of what the current task does, else of its pod's start; a job of a pod that
    /// has started is a trace of its own.
    pub(crate) fn span(
        &self,
        start: Option<&StartTrace>,
        what: &What,
        pod: (&PodUid, &str, &str),
        id: TouchId,
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
        // a job is looked for by its pod, as upstream's are
        let mut attributes = if job { of_pod(pod) } else { Vec::new() };
        attributes.extend(subject);
        let parent = parent.map(|parent| parent.span);
        Some(Span {
            id,
            parent,
            attributes,
        })
    }

    /// A touch that is part of a trace is over.
    pub(crate) fn ended(
        &self,
        span: Span,
        what: &What,
        outcome: &Outcome,
        (begin, end): (Timestamp, Timestamp),
    ) {
        let error = match outcome {
            Outcome::Done | Outcome::Decided(_) => None,
            Outcome::Failed(why) => Some(why.to_string()),
            Outcome::Cancelled => Some("cancelled".to_owned()),
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

    /// The root of a new trace, if that is to be taken.
    fn root(&self, uid: &PodUid, now: Timestamp, number: u64) -> Option<TraceParent> {
        let seed = format!("{uid}/{}/{number}", now.as_nanosecond());
        let trace = TraceId(fnv1a_128(seed.as_bytes()).max(1));
        let span = SpanId(fnv1a_64(seed.as_bytes()).max(1));
        self.0.samples(trace).then_some(TraceParent { trace, span })
    }
}

/// OpenTelemetry's names of a pod, as upstream's spans have them.
fn of_pod((uid, namespace, name): (&PodUid, &str, &str)) -> Attributes {
    vec![
        ("k8s.pod.uid", uid.to_string()),
        ("k8s.pod.name", name.to_owned()),
        ("k8s.namespace.name", namespace.to_owned()),
    ]
}
