//! Trace of a pod start, as received by a collector, and its propagation to the runtime.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::manifest::shell;
use crate::test_env::{SOON, TestEnv, eventually, skipped};

/// A collector that stores received spans.
#[derive(Clone, Debug, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let scopes = resources.flat_map(|it| it.scope_spans);
        let spans = scopes.flat_map(|it| it.spans);
        self.0.lock().unwrap().extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Starts one and returns its address.
    fn serve(&self) -> String {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = incoming.local_addr().unwrap();
        let service = TraceServiceServer::new(self.clone());
        let server = Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(incoming));
        address.to_string()
    }

    fn spans(&self) -> Vec<Span> {
        self.0.lock().unwrap().clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_pod_start_is_one_trace_with_runtime_spans() {
    if skipped() {
        return;
    }
    let collector = Collector::default();
    let config = format!(
        "tracing: {{endpoint: \"{}\", samplingRatePerMillion: 1000000}}",
        collector.serve()
    );
    let (mut env, proxy) = TestEnv::configured_behind_proxy("i-traces", &config).await;
    env.apply("web.yaml", &shell("web", "HOLD"));
    env.ready("web").await;
    let root = eventually("the trace of the start", SOON, async || {
        let spans = collector.spans();
        let mut roots = spans.iter().filter(|span| span.name == "podStart");
        match (roots.next(), roots.next()) {
            (Some(root), None) => Ok(root.clone()),
            _ => Err(format!(
                "{:?}",
                spans.iter().map(|it| &it.name).collect::<Vec<_>>()
            )),
        }
    })
    .await;
    assert!(root.parent_span_id.is_empty());
    let attributes = format!("{:?}", root.attributes);
    assert!(attributes.contains("web-node"), "{attributes}");

    let trace = collector.spans().into_iter();
    let trace: Vec<_> = trace
        .filter(|span| span.trace_id == root.trace_id)
        .collect();
    let ids: BTreeSet<_> = trace.iter().map(|span| span.span_id.clone()).collect();
    let names: BTreeSet<_> = trace.iter().map(|span| span.name.as_str()).collect();
    for call in ["RunPodSandbox", "CreateContainer", "StartContainer"] {
        assert!(names.contains(call), "{call} not in {names:?}");
        let told = proxy.traced();
        let told: Vec<_> = told.iter().filter(|it| it.method == call).collect();
        let [told] = told.as_slice() else {
            panic!("{call}: {told:?}");
        };
        let span = trace.iter().find(|span| span.name == call).unwrap();
        let (of_trace, of_span) = (hex(&span.trace_id), hex(&span.span_id));
        assert_eq!(told.traceparent, format!("00-{of_trace}-{of_span}-01"));
        assert!(
            ids.contains(&span.parent_span_id),
            "{call} is a part of the trace"
        );
        assert!(span.start_time_unix_nano >= root.start_time_unix_nano);
        assert!(span.end_time_unix_nano <= root.end_time_unix_nano);
    }
    let parents = trace.iter().filter(|span| span.parent_span_id.is_empty());
    assert_eq!(parents.count(), 1, "one root: {names:?}");
    env.stop().await;
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
