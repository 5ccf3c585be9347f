//! The connection to the agent.

use std::io;
use std::path::Path;
use std::sync::Mutex;

use bytes::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};
use windlass_proto::windlass_v1 as proto;
use windlass_proto::windlass_v1::windlass_client::WindlassClient;

use crate::error::Error;
use crate::pod::PodView;

/// Largest answer that is taken: 500 pods with 20 events each are about 15 MiB.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// A connected client.
#[derive(Debug)]
pub(crate) struct Client(WindlassClient<Channel>);

impl Client {
    /// Connects; the kernel's answer becomes an error that says what to do.
    pub(crate) async fn connect(path: &Path) -> Result<Self, Error> {
        let stream = UnixStream::connect(path).await.map_err(|source| {
            let path = path.to_owned();
            match source.kind() {
                io::ErrorKind::NotFound => Error::NoSocket(path),
                io::ErrorKind::ConnectionRefused => Error::NotRunning(path),
                io::ErrorKind::PermissionDenied => Error::Forbidden(path),
                _ => Error::Connect { path, source },
            }
        })?;
        // one connection for one command: when it breaks, the command has failed
        let stream = Mutex::new(Some(TokioIo::new(stream)));
        let connector = tower::service_fn(move |_| {
            let stream = stream.lock().ok().and_then(|mut stream| stream.take());
            async { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
        });
        let channel = Endpoint::from_static("http://windlass.sock")
            .connect_with_connector(connector)
            .await
            .map_err(|error| Error::Handshake {
                path: path.to_owned(),
                detail: error.to_string(),
            })?;
        Ok(Self(
            WindlassClient::new(channel).max_decoding_message_size(MAX_ANSWER),
        ))
    }

    /// Manifests that the agent's sources refuse at present, as `origin: error` lines.
    pub(crate) async fn rejected(&mut self) -> Result<Vec<String>, Error> {
        let request = proto::ListRejectedManifestsRequest {};
        match self.0.list_rejected_manifests(request).await {
            Ok(answer) => Ok(answer
                .into_inner()
                .rejected
                .into_iter()
                .map(rejection)
                .collect()),
            // an agent of an earlier version
            Err(status) if status.code() == tonic::Code::Unimplemented => Ok(Vec::new()),
            Err(status) => Err(status.into()),
        }
    }

    /// What the agent is a node of.
    pub(crate) async fn node(&mut self) -> Result<proto::GetNodeResponse, Error> {
        let answer = self.0.get_node(proto::GetNodeRequest {}).await?;
        Ok(answer.into_inner())
    }

    /// What touched a pod, as JSON.
    pub(crate) async fn timeline(&mut self, namespace: &str, name: &str) -> Result<Bytes, Error> {
        let answer = self.0.get_timeline(one(namespace, name)).await?;
        Ok(answer.into_inner().json)
    }

    /// What keeps a pod from what was asked, as JSON.
    pub(crate) async fn explain(&mut self, namespace: &str, name: &str) -> Result<Bytes, Error> {
        let answer = self.0.explain_pod(one(namespace, name)).await?;
        Ok(answer.into_inner().json)
    }

    /// What node, pods and containers use.
    pub(crate) async fn usage(&mut self) -> Result<proto::GetUsageResponse, Error> {
        let answer = self.0.get_usage(proto::GetUsageRequest {}).await?;
        Ok(answer.into_inner())
    }

    /// Metrics of the agent, or of its probes.
    pub(crate) async fn metrics(&mut self, probes: bool) -> Result<String, Error> {
        let request = proto::GetMetricsRequest { probes };
        Ok(self.0.get_metrics(request).await?.into_inner().text)
    }

    /// The pods of a namespace, or of all.
    pub(crate) async fn list(&mut self, namespace: Option<&str>) -> Result<Vec<PodView>, Error> {
        let request = filter(namespace);
        let answer = self.0.list_pods(request).await?.into_inner();
        answer.pods.into_iter().map(PodView::decode).collect()
    }

    /// The same as a stream.
    pub(crate) async fn watch(
        &mut self,
        namespace: Option<&str>,
    ) -> Result<Streaming<proto::WatchPodsResponse>, Error> {
        Ok(self.0.watch_pods(filter(namespace)).await?.into_inner())
    }

    /// A log as it comes.
    pub(crate) async fn log(
        &mut self,
        request: proto::ReadLogRequest,
    ) -> Result<Streaming<proto::ReadLogResponse>, Error> {
        Ok(self.0.read_log(request).await?.into_inner())
    }
}

fn one(namespace: &str, name: &str) -> proto::GetPodRequest {
    proto::GetPodRequest {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn filter(namespace: Option<&str>) -> proto::ListPodsRequest {
    proto::ListPodsRequest {
        namespace: namespace.map(str::to_owned),
        name: None,
    }
}

/// Errors usually name their origin themselves.
fn rejection(manifest: proto::RejectedManifest) -> String {
    let proto::RejectedManifest { origin, error } = manifest;
    if error.starts_with(&origin) {
        error
    } else {
        format!("{origin}: {error}")
    }
}

#[cfg(test)]
mod tests {
    use super::Client;

    #[tokio::test]
    async fn a_missing_agent_is_explained() {
        let check = async |path: &str, expected: &str| {
            let path = std::path::Path::new(path);
            let error = Client::connect(path)
                .await
                .expect_err("nobody there")
                .to_string();
            assert_eq!(error, expected);
        };
        check(
            "/nonexistent/windlass.sock",
            "no socket at /nonexistent/windlass.sock: is windlass running with --root-dir \
             /nonexistent? Name another socket with --socket",
        )
        .await;
        check(
            "/dev/null",
            "nobody answers at /dev/null: windlass is not running, start it",
        )
        .await;
    }
}
