//! A connection pool to the API server, as a `tower` service.
//!
//! HTTP/2 if the server offers it, else HTTP/1.1. Each pool has its own connections, so two
//! clients with a pool each never block each other.
//!
//! **Dead connections** are detected in two ways. A connection sends a ping after
//! [`KEEP_ALIVE_INTERVAL`] (15 s) of silence and closes if there is no response in
//! [`KEEP_ALIVE_TIMEOUT`] (8 s). With at most [`dial::DIAL_TIMEOUT`] (5 s) for the next one that
//! is 28 s, below the required 30 s. A request that is canceled after a second or more, without a
//! byte in its second half, also makes its connection suspect. The next request then opens a new
//! one, so only one heartbeat fails.
//!
//! **Streams.** A server allows 100 streams per connection (upstream's default) and delays further
//! requests without an error, so at most [`MAX_STREAMS`] are started on one.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Future;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request, Response, StatusCode};
use kube::client::Body;

use crate::config::{ApiServerConfig, ConfigError};
use crate::credentials::{Credentials, CredentialsError};
use crate::identity::ClientIdentity;
use dial::{Dialer, spawn};
use pool::{Pool, ResponseBody};

mod dial;
mod last_read;
mod pool;
mod tls;
mod tunnel;

/// Silence before a ping.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Timeout of a ping.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(8);
/// Maximum number of requests per connection: a server's limit of 100 less those still being
/// reset.
const MAX_STREAMS: usize = 80;
/// Maximum number of connections of a pool: half of the usual limit of 1024 files. That is 40,960
/// concurrent requests with HTTP/2 and 512 with HTTP/1.1.
const MAX_CONNECTIONS: usize = 512;

/// Sends requests over its own pool. Clones share the pool.
#[derive(Clone)]
pub(crate) struct Transport {
    pool: Arc<Pool>,
    credentials: Arc<Credentials>,
    identity: ClientIdentity,
}

/// A request without a response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    #[error("looking up {host}")]
    Lookup {
        host: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{host} has no address")]
    NoAddress { host: String },
    #[error("connecting to {address}")]
    Connect {
        address: std::net::SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("connecting through proxy {proxy}")]
    Proxy {
        proxy: String,
        #[source]
        source: std::io::Error,
    },
    #[error("proxy {proxy} rejected a connection to {target}: HTTP {status}{fix}")]
    ProxyRejected {
        proxy: String,
        target: String,
        status: StatusCode,
        fix: &'static str,
    },
    #[error("no connection to {address} within {} s", dial::DIAL_TIMEOUT.as_secs())]
    ConnectTimeout { address: String },
    #[error("all {MAX_CONNECTIONS} connections are busy")]
    Full,
    #[error("the connection failed")]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    Credentials(#[from] Arc<CredentialsError>),
    #[error("the request has no valid path")]
    Request(#[from] http::Error),
}

impl Transport {
    /// Creates a pool without connections; `credentials` and the identity may be shared.
    pub(crate) fn new(
        config: &ApiServerConfig,
        credentials: Arc<Credentials>,
    ) -> Result<Self, ConfigError> {
        let identity = config.identity().clone();
        Ok(Self {
            pool: Arc::new(Pool::new(Dialer::new(config)?)),
            credentials,
            identity,
        })
    }

    async fn send(
        self,
        mut request: Request<Body>,
    ) -> Result<Response<ResponseBody>, TransportError> {
        request
            .headers_mut()
            .insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let header = self.credentials.header(&self.identity).await?;
        let retry = header.is_some().then(|| copy(&request)).flatten();
        authorize(&mut request, header.as_ref());
        let response = self.pool.send(request).await?;
        if header.is_none() {
            self.identity.record_response(response.status());
        }
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let renewed = self
            .credentials
            .renewed(header.as_ref(), &self.identity)
            .await;
        match (retry, renewed) {
            (Some(mut request), Some(header)) => {
                authorize(&mut request, Some(&header));
                self.pool.send(request).await
            }
            _ => Ok(response),
        }
    }
}

const AGENT: &str = concat!("windlass/", env!("CARGO_PKG_VERSION"));

fn authorize(request: &mut Request<Body>, header: Option<&HeaderValue>) {
    if let Some(header) = header {
        request.headers_mut().insert(AUTHORIZATION, header.clone());
    }
}

/// Copies a request; `None` if its body streams.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

impl tower::Service<Request<Body>> for Transport {
    type Response = Response<ResponseBody>;
    type Error = TransportError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}

#[cfg(test)]
mod tests;
