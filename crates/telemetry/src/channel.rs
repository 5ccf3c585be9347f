//! The connection to the collector: not encrypted, as upstream's.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream as StdUnixStream};
use std::path::PathBuf;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::EXPORT;

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
        // the authority of a socket is never resolved
        let local = || Endpoint::from_static("http://localhost").connect_timeout(EXPORT);
        match self.clone() {
            Self::Tcp(host) => {
                let uri = Uri::builder()
                    .scheme("http")
                    .authority(host)
                    .path_and_query("/")
                    .build();
                let endpoint = Endpoint::from(uri.unwrap_or_default());
                endpoint.connect_timeout(EXPORT).connect_lazy()
            }
            Self::Unix(path) => {
                local().connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
                    let path = path.clone();
                    async move { UnixStream::connect(path).await.map(TokioIo::new) }
                }))
            }
            Self::Abstract(name) => {
                local().connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
                    let stream = connect_abstract(&name);
                    async move { stream.map(TokioIo::new) }
                }))
            }
        }
    }
}

/// Connecting to a local socket does not wait for its other end.
fn connect_abstract(name: &str) -> io::Result<UnixStream> {
    let address = SocketAddr::from_abstract_name(name)?;
    let stream = StdUnixStream::connect_addr(&address)?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}
