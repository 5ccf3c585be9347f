//! Export of spans to a collector.

use std::borrow::Cow;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tokio::io::DuplexStream;
use tokio::net::{TcpListener, UnixListener, UnixSocket, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{UnboundedReceiverStream, UnixListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint, Server, Uri};
use tonic::{Request, Response, Status};
use windlass_metrics::Metrics;
use windlass_types::{
    FinishedSpan, SpanId, SpanSink, Timestamp, TraceId, TraceParent, span::SpanKind,
};

use super::{
    BATCH_INTERVAL, Collector, FLUSH_TIMEOUT, MAX_BATCH_SPANS, OtlpSink, QUEUE_CAPACITY, Sampler,
    TelemetryConfig, connect_with_channel,
};

/// Longer than any test takes.
const DEADLINE: Duration = Duration::from_secs(60);

/// A collector that records spans.
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

struct Fixture {
    sink: OtlpSink,
    exporter: JoinHandle<()>,
    shutdown: CancellationToken,
    metrics: Metrics,
}

impl Fixture {
    fn new(collector: Collector, rate: i32) -> Self {
        Self::over(collector.channel(), rate)
    }

    fn over(channel: Channel, rate: i32) -> Self {
        let shutdown = CancellationToken::new();
        let metrics = Metrics::new().expect("metrics");
        let config = TelemetryConfig {
            // the channel exists already
            collector: Collector::Unix("nowhere".into()),
            sampler: Sampler::per_million(rate),
            host_name: "node1".into(),
        };
        let (sink, exporter) =
            connect_with_channel(channel, &config, metrics.spans.clone()).expect("a channel");
        Self {
            sink,
            exporter: tokio::spawn(exporter.run(shutdown.clone())),
            shutdown,
            metrics,
        }
    }

    fn counts(&self) -> [f64; 3] {
        let spans = &self.metrics.spans;
        [&spans.exported, &spans.queue_full, &spans.export_failed].map(|it| it.get())
    }

    async fn end(self) -> Duration {
        let begun = Instant::now();
        self.shutdown.cancel();
        let ended = timeout(DEADLINE, self.exporter).await;
        ended.expect("in time").expect("ends");
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

async fn listener() -> (TcpListener, Collector) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("address").to_string();
    let collector = Collector::Tcp(address.parse().expect("address"));
    (listener, collector)
}

/// An in-memory channel and the other ends of its connections: paused time does not advance while
/// data is in flight.
fn in_memory() -> (Channel, mpsc::UnboundedReceiver<DuplexStream>) {
    let (dialled, accepted) = mpsc::unbounded_channel();
    let dial = tower::service_fn(move |_: Uri| {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let dialled = dialled.send(far).map_err(io::Error::other);
        async move { dialled.map(|()| TokioIo::new(near)) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    (endpoint.connect_with_connector_lazy(dial), accepted)
}

fn collector() -> (Received, Channel) {
    let (channel, accepted) = in_memory();
    let received = Received::default();
    let incoming = UnboundedReceiverStream::new(accepted).map(Ok::<_, io::Error>);
    let server = Server::builder()
        .add_service(TraceServiceServer::new(received.clone()))
        .serve_with_incoming(incoming);
    tokio::spawn(server);
    (received, channel)
}

async fn until(done: impl Fn() -> bool) {
    let waited = async {
        while !done() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(DEADLINE, waited).await.expect("in time");
}

#[tokio::test(start_paused = true)]
async fn collector_receives_spans_with_resource() {
    let (received, channel) = collector();
    let fixture = Fixture::over(channel, 1_000_000);
    fixture.sink.ended(span(1));
    fixture.sink.ended(span(2));
    let took = fixture.end().await;
    assert!(took < FLUSH_TIMEOUT, "{took:?}");
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

#[tokio::test(start_paused = true)]
async fn full_batch_is_sent_at_once_and_a_partial_one_later() {
    let (received, channel) = collector();
    let fixture = Fixture::over(channel, 1_000_000);
    let batch = MAX_BATCH_SPANS as u64;
    (1..=batch).for_each(|number| fixture.sink.ended(span(number)));
    let begun = Instant::now();
    until(|| received.spans() == MAX_BATCH_SPANS).await;
    assert!(begun.elapsed() < BATCH_INTERVAL, "a whole batch");
    assert_eq!(received.0.lock().expect("lock").len(), 1);

    fixture.sink.ended(span(batch + 1));
    let begun = Instant::now();
    until(|| received.spans() > MAX_BATCH_SPANS).await;
    let took = begun.elapsed();
    assert!(
        (BATCH_INTERVAL..BATCH_INTERVAL * 2).contains(&took),
        "{took:?}"
    );
    fixture.end().await;
}

#[tokio::test]
async fn abstract_socket_works() {
    let name = format!("windlass-telemetry-{}", std::process::id());
    let listener = UnixListener::bind(format!("\0{name}")).expect("bound");
    let received = Received::default();
    let server = Server::builder()
        .add_service(TraceServiceServer::new(received.clone()))
        .serve_with_incoming(UnixListenerStream::new(listener));
    tokio::spawn(server);
    let fixture = Fixture::new(Collector::Abstract(name), 1_000_000);
    (1..=MAX_BATCH_SPANS as u64).for_each(|number| fixture.sink.ended(span(number)));
    until(|| received.spans() == MAX_BATCH_SPANS).await;
}

#[tokio::test]
async fn full_socket_queue_costs_spans_and_blocks_no_thread() {
    let name = format!("windlass-telemetry-full-{}", std::process::id());
    let socket = UnixSocket::new_stream().expect("socket");
    socket.bind(format!("\0{name}")).expect("bound");
    // the kernel queues one connection more than this
    let _listener = socket.listen(0).expect("listens");
    let first = UnixStream::connect(format!("\0{name}")).await;
    let _first = first.expect("there is a place");
    let fixture = Fixture::new(Collector::Abstract(name), 1_000_000);
    (1..=MAX_BATCH_SPANS as u64).for_each(|number| fixture.sink.ended(span(number)));
    until(|| fixture.counts() == [0.0, 0.0, MAX_BATCH_SPANS as f64]).await;
}

#[tokio::test(start_paused = true)]
async fn unreachable_collector_costs_only_queued_spans() {
    // the listener is closed
    let (listener, collector) = listener().await;
    drop(listener);
    let fixture = Fixture::new(collector, 1_000_000);
    let spans = QUEUE_CAPACITY as u64 + 10;
    // the exporter has not run yet
    (1..=spans).for_each(|number| fixture.sink.ended(span(number)));
    assert_eq!(fixture.counts(), [0.0, 10.0, 0.0]);
    until(|| fixture.counts()[2] >= QUEUE_CAPACITY as f64).await;
    assert_eq!(fixture.counts(), [0.0, 10.0, QUEUE_CAPACITY as f64]);
    fixture.sink.ended(span(1));
    assert_eq!(
        fixture.counts(),
        [0.0, 10.0, QUEUE_CAPACITY as f64],
        "there is room again"
    );
    let took = fixture.end().await;
    assert!(took <= FLUSH_TIMEOUT, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn hung_collector_delays_shutdown_by_the_flush_timeout() {
    // connections are accepted, but not served
    let (channel, _accepted) = in_memory();
    let fixture = Fixture::over(channel, 1_000_000);
    (1..=600).for_each(|number| fixture.sink.ended(span(number)));
    let took = fixture.end().await;
    assert!(
        (FLUSH_TIMEOUT..FLUSH_TIMEOUT * 2).contains(&took),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn without_spans_nothing_connects_and_shutdown_is_immediate() {
    let (listener, collector) = listener().await;
    let fixture = Fixture::new(collector, 0);
    assert!(!fixture.sink.samples(TraceId(1)));
    sleep(Duration::from_secs(3600)).await;
    let accepted = timeout(Duration::from_millis(1), listener.accept()).await;
    assert!(accepted.is_err(), "a connection");
    assert_eq!(fixture.end().await, Duration::ZERO);
}
