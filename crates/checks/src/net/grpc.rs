//! The gRPC health service, asked over a connection of its own.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tonic::transport::{Endpoint, Uri};
use tonic::{Code, Status};
use windlass_pod_lifecycle::http_target::{Purpose, join_host_port};
use windlass_proto::health_v1::HealthCheckRequest;
use windlass_proto::health_v1::health_check_response::ServingStatus;
use windlass_proto::health_v1::health_client::HealthClient;

use crate::{CheckError, GrpcHealth};

/// Longest answer, in bytes. A status is two.
const MAX_ANSWER: usize = 4 << 10;

/// How long a connection may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// Runs the tasks of a connection, which end with their check: a server that stops reading would
/// keep them and their socket for ever.
#[derive(Clone)]
struct Tasks(watch::Receiver<()>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let mut check = self.0.clone();
        tokio::spawn(async move {
            let over = async {
                // nothing is ever sent: it changes when the check drops its end
                let _ = check.changed().await;
                tokio::time::sleep(GOODBYE).await;
            };
            tokio::select! {
                biased;
                () = task => {}
                () = over => {}
            }
        });
    }
}

/// Asks whether a service serves.
pub(super) async fn check(
    stream: TcpStream,
    host: &str,
    port: u16,
    service: &str,
) -> Result<GrpcHealth, CheckError> {
    let authority = join_host_port(host, port);
    let failed = |error: tonic::transport::Error| CheckError::Failed(chain(&error));
    let (_check, tasks) = watch::channel(());
    let endpoint = Endpoint::from_shared(format!("http://{authority}"))
        .and_then(|endpoint| endpoint.user_agent(Purpose::Probe.user_agent()))
        .map_err(failed)?
        .executor(Tasks(tasks));
    // the connection is there; a second one is never made
    let stream = Mutex::new(Some(stream));
    let connector = tower::service_fn(move |_: Uri| {
        let stream = stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        async move {
            let gone = || std::io::Error::from(std::io::ErrorKind::NotConnected);
            stream.map(TokioIo::new).ok_or_else(gone)
        }
    });
    let channel = endpoint
        .connect_with_connector(connector)
        .await
        .map_err(failed)?;
    let mut client = HealthClient::new(channel).max_decoding_message_size(MAX_ANSWER);
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    match client.check(request).await {
        Ok(answer) => Ok(health(answer.into_inner().status)),
        Err(status) => Ok(refusal(&status)),
    }
}

fn health(status: i32) -> GrpcHealth {
    match ServingStatus::try_from(status) {
        Ok(ServingStatus::Serving) => GrpcHealth::Serving,
        Ok(other) => GrpcHealth::NotServing(other.as_str_name().to_owned()),
        Err(_) => GrpcHealth::NotServing(status.to_string()),
    }
}

/// As grpc-go prints a status.
fn refusal(status: &Status) -> GrpcHealth {
    if status.code() == Code::Unimplemented {
        return GrpcHealth::Unimplemented(status.message().to_owned());
    }
    let code = format!("{:?}", status.code());
    GrpcHealth::Refused(format!(
        "rpc error: code = {code} desc = {}",
        status.message()
    ))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
