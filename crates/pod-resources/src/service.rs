//! The sockets, and what both services have in common.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use futures::StreamExt;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::transport::Server;
use windlass_pacing::RateLimit;
use windlass_proto::podresources_v1::pod_resources_lister_server::PodResourcesListerServer;
use windlass_proto::podresources_v1alpha1::pod_resources_lister_server as v1alpha1;
use windlass_proto::pods_v1alpha1::pods_server::PodsServer;
use windlass_grpc_sockets::{AnyAuthority, BindError, bind_socket, incoming};

use crate::{PodResources, Pods};

/// Requests of one connection worked on at a time. No more than [`BURST`] can pass at once.
const REQUESTS_PER_CONNECTION: usize = 16;
/// Streams of one connection: requests, and watches, of which a program needs one.
const STREAMS_PER_CONNECTION: u32 = 64;
/// Requests a second (upstream `DefaultQPS`).
const QPS: f64 = 100.0;
/// Requests at once after a quiet time (upstream `DefaultBurstTokens`).
const BURST: u32 = 10;

/// Where a service is found below the root directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    /// `pod-resources/kubelet.sock`.
    PodResources,
    /// `pods-api/pods-api.sock`.
    Pods,
}

/// Why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Its directory.
    #[error("{}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The socket itself.
    #[error(transparent)]
    Bind(#[from] BindError),
}

impl Socket {
    /// Where it is.
    pub fn path(self, root_dir: &Path) -> PathBuf {
        root_dir.join(match self {
            Self::PodResources => "pod-resources/kubelet.sock",
            Self::Pods => "pods-api/pods-api.sock",
        })
    }

    /// Makes its directory (0750) and opens it; a socket that a dead agent left behind is replaced.
    /// Its own mode is 0600, where upstream's is 0755: to connect one has to be allowed to write.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// A live agent has it, or what the file system says.
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
/// What ended the server.
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
/// What ended the server.
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

/// The pace of a service.
#[derive(Debug)]
pub(crate) struct RequestLimiter(Option<RateLimit>);

impl Default for RequestLimiter {
    fn default() -> Self {
        Self(RateLimit::new(QPS, BURST))
    }
}

impl RequestLimiter {
    /// Lets a request through, or refuses it in upstream's words.
    pub(crate) fn check(&self) -> Result<(), Status> {
        match self.0.as_ref().is_none_or(RateLimit::try_take) {
            true => Ok(()),
            false => Err(Status::resource_exhausted("rejected by rate limit")),
        }
    }
}
