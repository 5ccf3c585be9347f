//! Spans of requests.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::Request;
use tower::ServiceExt;
use windlass_types::{FinishedSpan, SpanSink, TraceId};

use super::{RequestSpans, parse, traced};
use crate::tests::{FixedClock, TestEnv};
use crate::{NodeApi, ServerType, router};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Samples every new trace, or none.
#[derive(Debug, Default)]
struct Sink {
    all: bool,
    spans: Mutex<Vec<FinishedSpan>>,
}

impl SpanSink for Sink {
    fn samples(&self, _: TraceId) -> bool {
        self.all
    }

    fn ended(&self, span: FinishedSpan) {
        self.spans.lock().expect("lock").push(span);
    }
}

/// Returns the spans of one request.
async fn spans_of(
    all: bool,
    server: ServerType,
    path: &str,
    parent: Option<&str>,
) -> Vec<FinishedSpan> {
    let sink = Arc::new(Sink {
        all,
        ..Sink::default()
    });
    let spans = RequestSpans::new(sink.clone(), Arc::new(FixedClock), "node1");
    let routes = router(NodeApi::new(TestEnv::new().deps), server);
    let routes = traced(routes, server, Some(Arc::new(spans)));
    let mut request = Request::builder().uri(path).header("user-agent", "curl");
    if let Some(parent) = parent {
        request = request.header("traceparent", parent);
    }
    let request = request.body(Body::empty()).expect("request");
    routes.oneshot(request).await.expect("an answer");
    let spans = sink.spans.lock().expect("lock");
    spans.clone()
}

fn line(spans: &[FinishedSpan]) -> String {
    let [span] = spans else {
        return format!("{} spans", spans.len());
    };
    let parent = span.parent.map_or("root".to_owned(), |it| it.to_string());
    let attributes = span.attributes.iter();
    let attributes: Vec<_> = attributes
        .map(|(key, text)| format!("{key}={text}"))
        .collect();
    format!("{} {parent} {}", span.name, attributes.join(" "))
}

#[tokio::test]
async fn request_span_has_route_and_status() {
    let spans = spans_of(
        true,
        ServerType::ReadWrite,
        "/healthz/syncloop?x=secret",
        None,
    )
    .await;
    assert_eq!(
        line(&spans),
        "/healthz/{check} root server.address=kubelet http.request.method=GET \
         http.route=/healthz/{check} url.path=/healthz/syncloop network.protocol.version=1.1 \
         user_agent.original=curl http.response.status_code=200"
    );
    let spans = spans_of(true, ServerType::ReadWrite, "/nowhere", None).await;
    assert_eq!(
        line(&spans),
        "GET root server.address=kubelet http.request.method=GET url.path=/nowhere \
         network.protocol.version=1.1 user_agent.original=curl http.response.status_code=404"
    );
}

#[tokio::test]
async fn request_span_joins_sampled_client_trace() {
    let spans = spans_of(false, ServerType::ReadWrite, "/pods", Some(PARENT)).await;
    assert!(
        line(&spans).starts_with("/pods b7ad6b7169203331 "),
        "{spans:?}"
    );
    assert_eq!(
        spans[0].id.trace.to_string(),
        "0af7651916cd43dd8448eb211c80319c"
    );
    let not_taken = PARENT.replace("-01", "-00");
    let spans = spans_of(true, ServerType::ReadWrite, "/pods", Some(&not_taken)).await;
    assert_eq!(line(&spans), "0 spans");
    let spans = spans_of(false, ServerType::ReadWrite, "/pods", None).await;
    assert_eq!(line(&spans), "0 spans");
}

#[tokio::test]
async fn unauthenticated_trace_context_is_ignored() {
    let spans = spans_of(false, ServerType::ReadOnly, "/pods", Some(PARENT)).await;
    assert_eq!(line(&spans), "0 spans");
    let spans = spans_of(true, ServerType::ReadOnly, "/pods", Some(PARENT)).await;
    assert!(line(&spans).starts_with("/pods root "), "{spans:?}");
}

#[test]
fn invalid_traceparent_is_ignored() {
    let later = format!("{}-more", PARENT.replacen("00", "01", 1));
    assert!(parse(PARENT).is_some() && parse(&later).is_some());
    let cases = [
        String::new(),
        "00".into(),
        PARENT.to_uppercase(),
        format!("{PARENT}-more"),
        PARENT.replacen("00", "ff", 1),
        PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
        PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
        PARENT.replace("b7ad", "+7ad"),
        PARENT.replace("-01", "-1"),
    ];
    for header in cases {
        assert!(parse(&header).is_none(), "{header:?}");
    }
}
