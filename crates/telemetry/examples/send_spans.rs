//! Sends two spans of one trace to an OpenTelemetry collector (OTLP over gRPC, not encrypted).
//!
//! `cargo run -p windlass-telemetry --example send_spans -- 127.0.0.1:4317`
//!
//! Without an argument it starts a collector that prints the spans.
//!
//! Runs without a container runtime.

use std::error::Error;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1 as otlp;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use windlass_metrics::Metrics;
use windlass_telemetry::{Collector, Sampler, TelemetryConfig, connect};
use windlass_types::{FinishedSpan, SpanId, SpanKind, SpanSink, Timestamp, TraceId, TraceParent};

struct Printer;

#[tonic::async_trait]
impl TraceService for Printer {
    async fn export(
        &self,
        request: Request<otlp::ExportTraceServiceRequest>,
    ) -> Result<Response<otlp::ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans;
        let scopes = resources.into_iter().flat_map(|it| it.scope_spans);
        for span in scopes.flat_map(|it| it.spans) {
            let took = Duration::from_nanos(span.end_time_unix_nano - span.start_time_unix_nano);
            println!("collector: {} took {took:?}", span.name);
        }
        Ok(Response::new(otlp::ExportTraceServiceResponse::default()))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = match std::env::args().nth(1) {
        Some(address) => address,
        None => {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?.to_string();
            let server = Server::builder().add_service(TraceServiceServer::new(Printer));
            tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
            address
        }
    };
    let config = TelemetryConfig {
        collector: Collector::Tcp(address.parse()?),
        sampler: Sampler::per_million(1_000_000),
        host_name: "n1".to_owned(),
    };
    let metrics = Metrics::new()?.spans;
    let (sink, exporter) = connect(&config, metrics.clone())?;
    let shutdown = CancellationToken::new();
    let exporter = tokio::spawn(exporter.run(shutdown.clone()));

    let trace = TraceId(0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
    let (root, child) = (SpanId(1), SpanId(2));
    sink.ended(span(trace, child, Some(root), "RunPodSandbox", 900)?);
    sink.ended(span(trace, root, None, "start of a pod", 1500)?);

    // shutdown: queued spans are sent for at most two seconds
    shutdown.cancel();
    exporter.await?;
    println!(
        "taken: {}, lost: {}",
        metrics.exported.get(),
        metrics.export_failed.get()
    );
    match metrics.export_failed.get() > 0.0 {
        true => Err(format!("{address}: no collector took the spans").into()),
        false => Ok(()),
    }
}

fn span(
    trace: TraceId,
    span: SpanId,
    parent: Option<SpanId>,
    name: &'static str,
    milliseconds: i64,
) -> Result<FinishedSpan, Box<dyn Error>> {
    let begin = 1_795_305_600_000;
    Ok(FinishedSpan {
        id: TraceParent { trace, span },
        parent,
        name: name.into(),
        kind: SpanKind::Internal,
        begin: Timestamp::from_millisecond(begin)?,
        end: Timestamp::from_millisecond(begin + milliseconds)?,
        attributes: vec![("k8s.pod.name", "web".to_owned())],
        error: None,
    })
}
