//! The connection to the agent.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bytes::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};
use windlass_node_proto::podresources_v1::pod_resources_lister_client::PodResourcesListerClient;
use windlass_node_proto::windlass_v1 as proto;
use windlass_node_proto::windlass_v1::windlass_client::WindlassClient;

use crate::error::Error;
use crate::pod::PodView;

/// 500 pods with 20 events each are about 15 MiB.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;

/// Socket of PodResources, beside that of the agent.
const POD_RESOURCES: &str = "pod-resources/kubelet.sock";

#[derive(Debug)]
pub(crate) struct Client(WindlassClient<Channel>, PathBuf);

impl Client {
    pub(crate) async fn connect(path: &Path) -> Result<Self, Error> {
        let client = WindlassClient::new(channel(path).await?);
        let client = client.max_decoding_message_size(MAX_RESPONSE_BYTES);
        Ok(Self(client, path.to_owned()))
    }

    /// Connects to PodResources of the same agent.
    pub(crate) async fn pod_resources(&self) -> Result<PodResourcesListerClient<Channel>, Error> {
        let path = self.1.with_file_name(POD_RESOURCES);
        let client = PodResourcesListerClient::new(channel(&path).await?);
        Ok(client.max_decoding_message_size(MAX_RESPONSE_BYTES))
    }

    /// Returns the rejected manifests as `origin: error` lines.
    pub(crate) async fn rejected(&mut self) -> Result<Vec<String>, Error> {
        let request = proto::ListRejectedManifestsRequest {};
        match self.0.list_rejected_manifests(request).await {
            Ok(response) => Ok(response
                .into_inner()
                .rejected
                .into_iter()
                .map(rejection)
                .collect()),
            // an older agent
            Err(status) if status.code() == tonic::Code::Unimplemented => Ok(Vec::new()),
            Err(status) => Err(status.into()),
        }
    }

    /// Returns the node and its cluster.
    pub(crate) async fn node(&mut self) -> Result<proto::GetNodeResponse, Error> {
        let response = self.0.get_node(proto::GetNodeRequest {}).await?;
        Ok(response.into_inner())
    }

    /// Returns the timeline of a pod as JSON.
    pub(crate) async fn timeline(&mut self, namespace: &str, name: &str) -> Result<Bytes, Error> {
        let response = self.0.get_timeline(one(namespace, name)).await?;
        Ok(response.into_inner().json)
    }

    /// Returns the explanation of a pod as JSON.
    pub(crate) async fn explain(&mut self, namespace: &str, name: &str) -> Result<Bytes, Error> {
        let response = self.0.explain_pod(one(namespace, name)).await?;
        Ok(response.into_inner().json)
    }

    /// Returns the usage of node, pods and containers.
    pub(crate) async fn usage(&mut self) -> Result<proto::GetUsageResponse, Error> {
        let response = self.0.get_usage(proto::GetUsageRequest {}).await?;
        Ok(response.into_inner())
    }

    /// Returns the metrics of the agent, or of its probes.
    pub(crate) async fn metrics(&mut self, probes: bool) -> Result<String, Error> {
        let request = proto::GetMetricsRequest { probes };
        Ok(self.0.get_metrics(request).await?.into_inner().text)
    }

    pub(crate) async fn list(&mut self, namespace: Option<&str>) -> Result<Vec<PodView>, Error> {
        let request = filter(namespace);
        let response = self.0.list_pods(request).await?.into_inner();
        response.pods.into_iter().map(PodView::decode).collect()
    }

    /// Watches the pods of a namespace, or all.
    pub(crate) async fn watch(
        &mut self,
        namespace: Option<&str>,
    ) -> Result<Streaming<proto::WatchPodsResponse>, Error> {
        Ok(self.0.watch_pods(filter(namespace)).await?.into_inner())
    }

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

/// Formats a rejected manifest; most errors contain the origin.
fn rejection(manifest: proto::RejectedManifest) -> String {
    let proto::RejectedManifest { origin, error } = manifest;
    if error.starts_with(&origin) {
        error
    } else {
        format!("{origin}: {error}")
    }
}

/// Opens a connection.
async fn channel(path: &Path) -> Result<Channel, Error> {
    let stream = UnixStream::connect(path).await.map_err(|source| {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Error::NoSocket(path),
            io::ErrorKind::ConnectionRefused => Error::NotRunning(path),
            io::ErrorKind::PermissionDenied => Error::PermissionDenied(path),
            _ => Error::Connect { path, source },
        }
    })?;
    // one connection per command: a lost connection fails the command
    let stream = Mutex::new(Some(TokioIo::new(stream)));
    let connector = tower::service_fn(move |_| {
        let stream = stream.lock().ok().and_then(|mut stream| stream.take());
        async { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
    });
    let channel = Endpoint::from_static("http://windlass.sock");
    let channel = channel.connect_with_connector(connector).await;
    channel.map_err(|error| Error::UnexpectedResponse {
        path: path.to_owned(),
        detail: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::Client;

    #[tokio::test]
    async fn missing_agent_is_reported() {
        let check = async |path: &str, expected: &str| {
            let path = std::path::Path::new(path);
            let error = Client::connect(path)
                .await
                .expect_err("no agent")
                .to_string();
            assert_eq!(error, expected);
        };
        check(
            "/nonexistent/windlass.sock",
            "no socket at /nonexistent/windlass.sock; check that windlass is running with \
             --root-dir /nonexistent, or set --socket",
        )
        .await;
        check(
            "/dev/null",
            "cannot connect to /dev/null: connection refused; start windlass",
        )
        .await;
    }
}
