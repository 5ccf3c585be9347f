//! The sockets and the common server options.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use futures::StreamExt;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::transport::Server;
use windlass_grpc_sockets::{AnyAuthority, BindError, bind_socket, incoming};
use windlass_node_proto::podresources_v1::pod_resources_lister_server::PodResourcesListerServer;
use windlass_node_proto::podresources_v1alpha1::pod_resources_lister_server as v1alpha1;
use windlass_node_proto::pods_v1alpha1::pods_server::PodsServer;
use windlass_pacing::RateLimit;

use crate::{PodResources, Pods};

/// Concurrent requests of one connection, more than [`BURST`].
const REQUESTS_PER_CONNECTION: usize = 16;
/// Maximum streams of one connection: requests and watches.
const STREAMS_PER_CONNECTION: u32 = 64;
/// Requests per second (upstream `DefaultQPS`).
const QPS: f64 = 100.0;
/// Burst after an idle period (upstream `DefaultBurstTokens`).
const BURST: u32 = 10;

/// Socket of a service below the root directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    /// `pod-resources/kubelet.sock`.
    PodResources,
    /// `pods-api/pods-api.sock`.
    Pods,
}

/// A socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Its directory could not be created.
    #[error("{}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The socket could not be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
}

impl Socket {
    /// Path of the socket.
    pub fn path(self, root_dir: &Path) -> PathBuf {
        root_dir.join(match self {
            Self::PodResources => "pod-resources/kubelet.sock",
            Self::Pods => "pods-api/pods-api.sock",
        })
    }

    /// Creates the directory (0750) and binds the socket; a stale socket is replaced.
    /// Its mode is 0600, where upstream's is 0755: connecting requires the write permission.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// A running agent uses the socket, or the file system rejects the operation.
    pub fn bind(self, root_dir: &Path) -> Result<UnixListener, SocketError> {
        let path = self.path(root_dir);
        if let Some(directory) = path.parent() {
            let made = DirBuilder::new()
                .recursive(true)
                .mode(0o750)
                .create(directory);
            made.map_err(|source| SocketError::Directory {
                path: directory.to_owned(),
                source,
            })?;
        }
        Ok(bind_socket(&path)?)
    }
}

/// Serves PodResources, v1 and v1alpha1, until `shutdown`.
///
/// # Errors
/// The server failed.
pub async fn serve_pod_resources(
    listener: UnixListener,
    service: PodResources,
    shutdown: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let connections = incoming(listener).map(|it| it.map(AnyAuthority::new));
    server()
        .add_service(PodResourcesListerServer::new(service.clone()))
        .add_service(v1alpha1::PodResourcesListerServer::new(service))
        .serve_with_incoming_shutdown(connections, shutdown.cancelled_owned())
        .await
}

/// Serves the Pods API until `shutdown`.
///
/// # Errors
/// The server failed.
pub async fn serve_pods(
    listener: UnixListener,
    service: Pods,
    shutdown: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let connections = incoming(listener).map(|it| it.map(AnyAuthority::new));
    server()
        .add_service(PodsServer::new(service))
        .serve_with_incoming_shutdown(connections, shutdown.cancelled_owned())
        .await
}

fn server() -> Server {
    Server::builder()
        .concurrency_limit_per_connection(REQUESTS_PER_CONNECTION)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
}

#[derive(Debug)]
pub(crate) struct RequestLimiter(Option<RateLimit>);

impl Default for RequestLimiter {
    fn default() -> Self {
        Self(RateLimit::new(QPS, BURST))
    }
}

impl RequestLimiter {
    /// Admits a request, or rejects it with upstream's error.
    pub(crate) fn check(&self) -> Result<(), Status> {
        match self.0.as_ref().is_none_or(RateLimit::try_take) {
            true => Ok(()),
            false => Err(Status::resource_exhausted("rejected by rate limit")),
        }
    }
}
