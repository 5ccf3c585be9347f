//! Requests as spans of traces (upstream's filter of `otelrestful`): of the client's trace, or of a
//! new one.
//!
//! *owns* a counter for new trace IDs · *invariant* a request that its client does not sample costs
//! the parsing of one header, one without a header a trace ID; unauthorized requests have no span ·
//! *bound* the sink's.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::USER_AGENT;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use windlass_https::Peer;
use windlass_timelines::within;
use windlass_types::{
    Clock, FinishedSpan, SpanId, SpanKind, SpanSink, Timestamp, TraceId, TraceParent,
};
use windlass_units::hash::{fnv1a_64, fnv1a_128};

use crate::ServerType;

/// Creates spans of requests.
#[derive(Debug)]
pub struct RequestSpans {
    sink: Arc<dyn SpanSink>,
    clock: Arc<dyn Clock>,
    /// Unique for this agent run.
    seed: String,
    next: AtomicU64,
}

impl RequestSpans {
    /// Creates spans of requests to this node.
    pub fn new(sink: Arc<dyn SpanSink>, clock: Arc<dyn Clock>, node: &str) -> Self {
        Self {
            sink,
            seed: format!("{node}/{}", clock.now().as_nanosecond()),
            clock,
            next: AtomicU64::new(0),
        }
    }

    fn begin(&self, server: ServerType, request: &Request) -> Option<FinishedSpan> {
        let header = request.headers().get("traceparent");
        let header = header.and_then(|it| it.to_str().ok());
        // the trace context of unauthenticated clients is ignored, as upstream
        let trusted = (server == ServerType::ReadWrite)
            .then_some(header)
            .flatten();
        let incoming = trusted.and_then(parse);
        if incoming.is_some_and(|it| !it.sampled) {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // the counter first: its digits then change every bit of the ID
        let seed = format!("{number}/{}", self.seed);
        let (trace, parent) = match incoming {
            Some(Incoming { parent, .. }) => (parent.trace, Some(parent.span)),
            None => (TraceId(fnv1a_128(seed.as_bytes()).max(1)), None),
        };
        if parent.is_none() && !self.sink.samples(trace) {
            return None;
        }
        let now = self.clock.now();
        Some(span(request, trace, parent, &seed, now))
    }
}

/// Adds spans to requests of these routes, if there is a sink.
pub fn traced(routes: Router, server: ServerType, spans: Option<Arc<RequestSpans>>) -> Router {
    match spans {
        None => routes,
        Some(spans) => routes.layer(from_fn_with_state((spans, server), record)),
    }
}

/// A span ends with the head of the response, as upstream's for all but streams.
async fn record(
    State((spans, server)): State<(Arc<RequestSpans>, ServerType)>,
    request: Request,
    next: Next,
) -> Response {
    let Some(mut span) = spans.begin(server, &request) else {
        return next.run(request).await;
    };
    let response = within(span.id, next.run(request)).await;
    let status = response.status();
    span.end = spans.clock.now();
    let code = ("http.response.status_code", status.as_str().to_owned());
    span.attributes.push(code);
    span.error = status.is_server_error().then(|| status.to_string());
    spans.sink.ended(span);
    response
}

/// Returns a span with upstream's attributes.
fn span(
    request: &Request,
    trace: TraceId,
    parent: Option<SpanId>,
    seed: &str,
    now: Timestamp,
) -> FinishedSpan {
    let (extensions, headers) = (request.extensions(), request.headers());
    let route = extensions.get::<MatchedPath>().map(MatchedPath::as_str);
    let peer = extensions.get::<Peer>().map(Peer::address);
    let agent = headers.get(USER_AGENT).and_then(|it| it.to_str().ok());
    let version = format!("{:?}", request.version());
    let attributes = [
        ("server.address", Some("kubelet".to_owned())),
        ("http.request.method", Some(request.method().to_string())),
        ("http.route", route.map(str::to_owned)),
        ("url.path", Some(request.uri().path().to_owned())),
        (
            "network.protocol.version",
            Some(version.replace("HTTP/", "")),
        ),
        ("network.peer.address", peer.map(|it| it.ip().to_string())),
        ("network.peer.port", peer.map(|it| it.port().to_string())),
        ("user_agent.original", agent.map(str::to_owned)),
    ];
    let attributes = attributes.into_iter();
    let name = route.unwrap_or_else(|| request.method().as_str());
    let seed = format!("{trace}/{seed}");
    FinishedSpan {
        id: TraceParent {
            trace,
            span: SpanId(fnv1a_64(seed.as_bytes()).max(1)),
        },
        parent,
        name: Cow::Owned(name.to_owned()),
        kind: SpanKind::Server,
        begin: now,
        end: now,
        attributes: attributes
            .filter_map(|(key, text)| Some((key, text?)))
            .collect(),
        error: None,
    }
}

/// Trace context of the client.
#[derive(Clone, Copy, Debug)]
struct Incoming {
    parent: TraceParent,
    sampled: bool,
}

/// Parses a `traceparent` header (W3C). Later versions may have more parts.
fn parse(header: &str) -> Option<Incoming> {
    let mut parts = header.trim().split('-');
    let version = hex(parts.next()?, 2)?;
    let trace = hex(parts.next()?, 32)?;
    let span = u64::try_from(hex(parts.next()?, 16)?).ok()?;
    let flags = hex(parts.next()?, 2)?;
    let is_whole = version > 0 || parts.next().is_none();
    let is_valid = version != 0xff && trace != 0 && span != 0 && is_whole;
    is_valid.then_some(Incoming {
        parent: TraceParent {
            trace: TraceId(trace),
            span: SpanId(span),
        },
        sampled: flags & 1 == 1,
    })
}

/// Parses a lower-case hexadecimal number of `digits` digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_number = text.len() == digits && text.bytes().all(is_digit);
    is_number.then(|| u128::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests;
