//! Converts spans to OpenTelemetry.

use std::time::{Duration, SystemTime};

use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::EnvResourceDetector;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use windlass_types::{FinishedSpan, SpanKind as Kind, Timestamp};

/// The instrumentation scope.
const SCOPE: &str = "windlass";

/// The resource: upstream's service name, the host, and `OTEL_RESOURCE_ATTRIBUTES`.
pub(crate) fn resource(host_name: &str) -> Resource {
    Resource::builder_empty()
        .with_detector(Box::new(EnvResourceDetector::new()))
        .with_attributes([
            KeyValue::new("service.name", "kubelet"),
            KeyValue::new("host.name", host_name.to_owned()),
        ])
        .build()
}

pub(crate) fn span(span: FinishedSpan) -> SpanData {
    let kind = match span.kind {
        Kind::Internal => SpanKind::Internal,
        Kind::Client => SpanKind::Client,
        Kind::Server => SpanKind::Server,
    };
    let attributes = span.attributes.into_iter();
    SpanData {
        span_context: SpanContext::new(
            TraceId::from(span.id.trace.0),
            SpanId::from(span.id.span.0),
            TraceFlags::SAMPLED,
            false,
            TraceState::NONE,
        ),
        parent_span_id: span.parent.map_or(SpanId::INVALID, |it| SpanId::from(it.0)),
        parent_span_is_remote: kind == SpanKind::Server && span.parent.is_some(),
        span_kind: kind,
        name: span.name,
        start_time: system_time(span.begin),
        end_time: system_time(span.end),
        attributes: attributes.map(attribute).collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: match span.error {
            Some(error) => Status::error(error),
            None => Status::Unset,
        },
        instrumentation_scope: InstrumentationScope::builder(SCOPE).build(),
    }
}

/// Converts numeric attributes to numbers.
fn attribute((key, text): (&'static str, String)) -> KeyValue {
    let is_number = ["http.response.status_code", "network.peer.port"].contains(&key);
    match text.parse::<i64>() {
        Ok(number) if is_number => KeyValue::new(key, number),
        _ => KeyValue::new(key, text),
    }
}

/// Clamps times before 1970.
fn system_time(time: Timestamp) -> SystemTime {
    let since = u64::try_from(time.as_nanosecond()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_nanos(since)
}
