//! The connection to the collector; not encrypted, as upstream.

use std::path::PathBuf;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::EXPORT_TIMEOUT;

/// Address of the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collector {
    /// `host:port`.
    Tcp(http::uri::Authority),
    /// A Unix socket.
    Unix(PathBuf),
    /// An abstract Unix socket.
    Abstract(String),
}

impl Collector {
    /// Returns a channel that connects with its first call and reconnects after a failure. Must be
    /// called inside a tokio runtime.
    pub(crate) fn channel(&self) -> Channel {
        let path = match self.clone() {
            Self::Tcp(host) => {
                let uri = Uri::builder()
                    .scheme("http")
                    .authority(host)
                    .path_and_query("/")
                    .build();
                let endpoint = Endpoint::from(uri.unwrap_or_default());
                return endpoint.connect_timeout(EXPORT_TIMEOUT).connect_lazy();
            }
            Self::Unix(path) => path,
            // tokio's notation for abstract sockets
            Self::Abstract(name) => PathBuf::from(format!("\0{name}")),
        };
        // the authority is not resolved for sockets
        let endpoint = Endpoint::from_static("http://localhost").connect_timeout(EXPORT_TIMEOUT);
        endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }))
    }
}
