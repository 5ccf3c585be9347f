//! Spans on their way to a collector.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use windlass_metrics::Metrics;
use windlass_types::{
    FinishedSpan, SpanId, SpanSink, Timestamp, TraceId, TraceParent, span::SpanKind,
};

use super::{Collector, FLUSH, OtlpSink, QUEUE, Sampler, TelemetryConfig, connect};

/// Longer than any test takes.
const DEADLINE: Duration = Duration::from_secs(60);

/// A collector that keeps what it is sent.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[tonic::async_trait]
impl TraceService for Received {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.lock().expect("lock").push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Received {
    fn spans(&self) -> usize {
        let requests = self.0.lock().expect("lock");
        let scopes = requests.iter().flat_map(|it| &it.resource_spans);
        let spans = scopes.flat_map(|it| &it.scope_spans);
        spans.map(|it| it.spans.len()).sum()
    }
}

struct World {
    sink: OtlpSink,
    sending: JoinHandle<()>,
    shutdown: CancellationToken,
    metrics: Metrics,
}

impl World {
    fn new(address: &str, rate: i32) -> Self {
        let shutdown = CancellationToken::new();
        let metrics = Metrics::new().expect("metrics");
        let config = TelemetryConfig {
            collector: Collector::Tcp(address.parse().expect("address")),
            sampler: Sampler::per_million(rate),
            host_name: "node1".into(),
        };
        let (sink, sending) = connect(&config, metrics.spans.clone()).expect("a channel");
        Self {
            sink,
            sending: tokio::spawn(sending.run(shutdown.clone())),
            shutdown,
            metrics,
        }
    }

    fn counts(&self) -> [f64; 3] {
        let spans = &self.metrics.spans;
        [&spans.exported, &spans.no_room, &spans.not_taken].map(|it| it.get())
    }

    async fn end(self) -> Duration {
        let begun = Instant::now();
        self.shutdown.cancel();
        self.sending.await.expect("ends");
        begun.elapsed()
    }
}

fn span(number: u64) -> FinishedSpan {
    let time = |text: &str| text.parse::<Timestamp>().expect("time");
    FinishedSpan {
        id: TraceParent {
            trace: TraceId(7),
            span: SpanId(number),
        },
        parent: (number > 1).then_some(SpanId(1)),
        name: Cow::Borrowed("RunPodSandbox"),
        kind: SpanKind::Client,
        begin: time("2026-11-22T06:00:00Z"),
        end: time("2026-11-22T06:00:01.5Z"),
        attributes: vec![
            ("k8s.pod.name", "web".into()),
            ("long", "\u{e4}".repeat(200)),
            ("http.response.status_code", "200".into()),
        ],
        error: Some("x".repeat(2000)),
    }
}

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("address").to_string();
    (listener, address)
}

async fn collector() -> (Received, String) {
    let (listener, address) = listener().await;
    let received = Received::default();
    let server = tonic::transport::Server::builder()
        .add_service(TraceServiceServer::new(received.clone()))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);
    (received, address)
}

async fn until(done: impl Fn() -> bool) {
    let waited = async {
        while !done() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(DEADLINE, waited).await.expect("in time");
}

#[tokio::test]
async fn a_collector_gets_spans_with_who_sent_them() {
    let (received, address) = collector().await;
    let world = World::new(&address, 1_000_000);
    world.sink.ended(span(1));
    world.sink.ended(span(2));
    let took = world.end().await;
    assert!(took <= FLUSH, "{took:?}");
    assert_eq!(received.spans(), 2, "what was queued is sent at the end");

    let requests = received.0.lock().expect("lock");
    let [resource] = requests[0].resource_spans.as_slice() else {
        panic!("{requests:?}");
    };
    let attributes = &resource.resource.as_ref().expect("resource").attributes;
    let mut keys: Vec<_> = attributes.iter().map(|it| format!("{it:?}")).collect();
    keys.sort();
    assert!(
        keys[0].contains("host.name") && keys[0].contains("node1"),
        "{keys:?}"
    );
    assert!(
        keys[1].contains("service.name") && keys[1].contains("kubelet"),
        "{keys:?}"
    );
    let spans = &resource.scope_spans[0].spans;
    let child = &spans[1];
    assert_eq!(child.trace_id, 7_u128.to_be_bytes());
    assert_eq!(child.span_id, 2_u64.to_be_bytes());
    assert_eq!(child.parent_span_id, 1_u64.to_be_bytes());
    assert_eq!(spans[0].parent_span_id, [0_u8; 0]);
    assert_eq!(child.name, "RunPodSandbox");
    assert_eq!(child.kind, 3, "client");
    assert_eq!(
        child.end_time_unix_nano - child.start_time_unix_nano,
        1_500_000_000
    );
    let texts = format!("{:?}", child.attributes);
    assert_eq!(
        texts.matches('\u{e4}').count(),
        64,
        "long texts are cut: {texts}"
    );
    assert!(texts.contains("IntValue(200)"), "{texts}");
    let status = child.status.as_ref().expect("status");
    assert_eq!((status.code, status.message.len()), (2, 512));
}

#[tokio::test]
async fn spans_that_are_no_batch_are_sent_after_a_while_and_batches_at_once() {
    let (received, address) = collector().await;
    let world = World::new(&address, 1_000_000);
    (1..=512).for_each(|number| world.sink.ended(span(number)));
    let begun = Instant::now();
    until(|| received.spans() == 512).await;
    assert!(begun.elapsed() < super::PERIOD, "a whole batch");
    assert_eq!(received.0.lock().expect("lock").len(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_is_away_costs_the_queue_and_nothing_else() {
    // nobody listens there any more
    let (listener, address) = listener().await;
    drop(listener);
    let world = World::new(&address, 1_000_000);
    let spans = QUEUE as u64 + 10;
    // the task that sends has not run yet
    (1..=spans).for_each(|number| world.sink.ended(span(number)));
    assert_eq!(world.counts(), [0.0, 10.0, 0.0]);
    until(|| world.counts()[2] >= QUEUE as f64).await;
    assert_eq!(world.counts(), [0.0, 10.0, QUEUE as f64]);
    world.sink.ended(span(1));
    assert_eq!(
        world.counts(),
        [0.0, 10.0, QUEUE as f64],
        "there is room again"
    );
    let took = world.end().await;
    assert!(took <= FLUSH, "{took:?}");
}

#[tokio::test]
async fn a_collector_that_hangs_delays_the_end_by_no_more_than_the_deadline() {
    // connections are accepted by the kernel, and nobody speaks
    let (_listener, address) = listener().await;
    let world = World::new(&address, 1_000_000);
    (1..=600).for_each(|number| world.sink.ended(span(number)));
    let took = timeout(DEADLINE, world.end()).await.expect("ends");
    assert!(took >= FLUSH / 2, "it hangs: {took:?}");
    assert!(took < FLUSH * 2, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn without_spans_nothing_is_dialled_and_the_end_is_at_once() {
    let (listener, address) = listener().await;
    let world = World::new(&address, 0);
    assert!(!world.sink.samples(TraceId(1)));
    sleep(Duration::from_secs(3600)).await;
    let accepted = timeout(Duration::from_millis(1), listener.accept()).await;
    assert!(accepted.is_err(), "a connection");
    assert_eq!(world.end().await, Duration::ZERO);
}
