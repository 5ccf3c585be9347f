//! The connection to the collector: not encrypted, as upstream's.

use std::path::PathBuf;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::EXPORT_TIMEOUT;

/// Where the collector is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collector {
    /// `host:port`.
    Tcp(http::uri::Authority),
    /// A Unix socket.
    Unix(PathBuf),
    /// A Unix socket without a file.
    Abstract(String),
}

impl Collector {
    /// A channel that dials with its first call, and anew after each loss. Must be made inside a
    /// tokio runtime.
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
            // tokio's spelling of such a name
            Self::Abstract(name) => PathBuf::from(format!("\0{name}")),
        };
        // the authority of a socket is never resolved
        let endpoint = Endpoint::from_static("http://localhost").connect_timeout(EXPORT_TIMEOUT);
        endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }))
    }
}
