//! Checks with the gRPC health service.

use std::time::Duration;

use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tonic::transport::{Endpoint, Uri};
use tonic::{Code, Status};
use windlass_pod_lifecycle::http_target::{Purpose, join_host_port};
use windlass_proto::health_v1::HealthCheckRequest;
use windlass_proto::health_v1::health_check_response::ServingStatus;
use windlass_proto::health_v1::health_client::HealthClient;

use crate::{CheckError, GrpcHealth};

/// Maximum response size; a status has 2 bytes.
const MAX_RESPONSE_BYTES: usize = 4 << 10;

/// Time for the close of a connection after the check.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the tasks of a connection until its check ends: a server that stops reading would block
/// them.
#[derive(Clone)]
struct Tasks(watch::Receiver<()>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let mut check = self.0.clone();
        tokio::spawn(async move {
            let check_ended = async {
                // fails when the check drops the sender
                let _ = check.changed().await;
                tokio::time::sleep(CLOSE_TIMEOUT).await;
            };
            tokio::select! {
                biased;
                () = task => {}
                () = check_ended => {}
            }
        });
    }
}

/// Checks the health of a service.
pub(super) async fn check(
    stream: TcpStream,
    host: &str,
    port: u16,
    service: &str,
) -> Result<GrpcHealth, CheckError> {
    let authority = join_host_port(host, port);
    let failed = |error: tonic::transport::Error| CheckError::Failed(error_chain(&error));
    let (_check, tasks) = watch::channel(());
    let endpoint = Endpoint::from_shared(format!("http://{authority}"))
        .and_then(|endpoint| endpoint.user_agent(Purpose::Probe.user_agent()))
        .map_err(failed)?
        .executor(Tasks(tasks));
    // there is no reconnect
    let stream = Mutex::new(Some(stream));
    let connector = tower::service_fn(move |_: Uri| {
        let stream = stream.lock().take();
        async move {
            let not_connected = || std::io::Error::from(std::io::ErrorKind::NotConnected);
            stream.map(TokioIo::new).ok_or_else(not_connected)
        }
    });
    let channel = endpoint
        .connect_with_connector(connector)
        .await
        .map_err(failed)?;
    let mut client = HealthClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    match client.check(request).await {
        Ok(response) => Ok(health(response.into_inner().status)),
        Err(status) => Ok(error_health(&status)),
    }
}

fn health(status: i32) -> GrpcHealth {
    match ServingStatus::try_from(status) {
        Ok(ServingStatus::Serving) => GrpcHealth::Serving,
        Ok(other) => GrpcHealth::NotServing(other.as_str_name().to_owned()),
        Err(_) => GrpcHealth::NotServing(status.to_string()),
    }
}

/// Formats a status as grpc-go.
fn error_health(status: &Status) -> GrpcHealth {
    if status.code() == Code::Unimplemented {
        return GrpcHealth::Unimplemented(status.message().to_owned());
    }
    let code = format!("{:?}", status.code());
    GrpcHealth::Refused(format!(
        "rpc error: code = {code} desc = {}",
        status.message()
    ))
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
