//! gRPC health checks.

use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response};
use windlass_proto::health_v1::health_check_response::ServingStatus;
use windlass_proto::health_v1::health_server::{Health, HealthServer};
use windlass_proto::health_v1::{HealthCheckRequest, HealthCheckResponse};

use super::*;

/// Returns a status by service name and records the user agents.
#[derive(Clone, Default)]
struct ByName(Arc<Mutex<Vec<String>>>);

#[tonic::async_trait]
impl Health for ByName {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, tonic::Status> {
        let agent = request.metadata().get("user-agent").expect("user agent");
        let agent = agent.to_str().expect("text").to_owned();
        self.0.lock().expect("lock").push(agent);
        let status = match request.get_ref().service.as_str() {
            "" => ServingStatus::Serving as i32,
            "down" => ServingStatus::NotServing as i32,
            "odd" => 77,
            "slow" => std::future::pending().await,
            _ => return Err(tonic::Status::not_found("unknown service")),
        };
        Ok(Response::new(HealthCheckResponse { status }))
    }
}

/// Server without a health service.
struct Nothing;

#[tonic::async_trait]
impl Health for Nothing {}

async fn grpc_server(service: impl Health) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let serve = Server::builder()
        .add_service(HealthServer::new(service))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(async move { serve.await.expect("server") });
    address
}

async fn ask(
    address: SocketAddr,
    service: &str,
    limit: Duration,
) -> Result<GrpcHealth, CheckError> {
    let host = address.ip().to_string();
    NetChecks::new()
        .grpc(&host, address.port(), service, limit)
        .await
}

#[tokio::test]
async fn health_status_is_returned() {
    let service = ByName::default();
    let address = grpc_server(service.clone()).await;
    for (name, expected) in [
        ("", GrpcHealth::Serving),
        ("down", GrpcHealth::NotServing("NOT_SERVING".into())),
        ("odd", GrpcHealth::NotServing("77".into())),
        (
            "else",
            GrpcHealth::Refused("rpc error: code = NotFound desc = unknown service".into()),
        ),
    ] {
        assert_eq!(ask(address, name, LONG).await, Ok(expected), "{name}");
    }
    let agents = service.0.lock().expect("lock");
    let ours = |agent: &String| agent.starts_with("kube-probe/1.36");
    assert!(agents.len() == 4 && agents.iter().all(ours), "{agents:?}");
}

#[tokio::test]
async fn missing_health_service_is_unimplemented() {
    let address = grpc_server(Nothing).await;
    let answer = ask(address, "", LONG).await;
    assert!(
        matches!(answer, Ok(GrpcHealth::Unimplemented(_))),
        "{answer:?}"
    );
}

#[tokio::test]
async fn hung_health_service_times_out() {
    let slow = grpc_server(ByName::default()).await;
    assert_eq!(
        ask(slow, "slow", SHORT).await,
        Err(CheckError::TimedOut(SHORT))
    );
    let silent = server(until_closed).await;
    assert_eq!(
        ask(silent, "", SHORT).await,
        Err(CheckError::TimedOut(SHORT))
    );
}

#[tokio::test]
async fn non_grpc_server_is_a_failure() {
    let address = closed_port().await;
    let why = format!("dial tcp {address}: connect: connection refused");
    assert_eq!(ask(address, "", LONG).await, Err(CheckError::Failed(why)));
    let http1 = server(|mut stream| async move {
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).await.expect("read");
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .expect("write");
    })
    .await;
    let answer = ask(http1, "", LONG).await;
    assert!(
        matches!(
            answer,
            Ok(GrpcHealth::Refused(_)) | Err(CheckError::Failed(_))
        ),
        "{answer:?}"
    );
}

#[tokio::test]
async fn connection_ends_with_its_check() {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = ended.clone();
    let address = server(move |stream| {
        let count = count.clone();
        async move {
            until_closed(stream).await;
            count.fetch_add(1, Ordering::Relaxed);
        }
    })
    .await;
    let _ = ask(address, "", SHORT).await;
    let deadline = Instant::now() + LONG;
    while ended.load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < deadline, "the connection is still open");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Requests acknowledgements without end and reads none.
async fn floods(mut stream: TcpStream) {
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let mut sent = stream.write_all(&settings).await;
    while sent.is_ok() {
        sent = stream.write_all(&ping.repeat(4096)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_stops_reading_does_not_keep_connection() {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = ended.clone();
    let socket = TcpSocket::new_v4().expect("socket");
    socket.set_recv_buffer_size(4096).expect("small");
    let any = "127.0.0.1:0".parse().expect("address");
    socket.bind(any).expect("bind");
    let listener = socket.listen(8).expect("listen");
    let address = serve(listener, move |stream| {
        let count = count.clone();
        async move {
            floods(stream).await;
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    // until the socket buffers are full
    let limit = Duration::from_secs(3);
    assert!(ask(address, "", limit).await.is_err());
    let deadline = Instant::now() + LONG;
    while ended.load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < deadline, "the connection is still open");
        sleep(Duration::from_millis(10)).await;
    }
}
