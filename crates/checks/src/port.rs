//! The port: what can be asked of a container over the network.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::http_target::HttpTarget;

/// Requests to containers. Every one is on a connection of its own and ends with it.
#[async_trait]
pub trait Checks: Send + Sync + Debug + 'static {
    /// One GET. Redirects to the same host are followed, ten at most; one to another host ends
    /// with that answer. `timeout` covers everything; `None` is none.
    ///
    /// # Errors
    /// There was no complete answer.
    async fn http(
        &self,
        target: &HttpTarget,
        timeout: Option<Duration>,
    ) -> Result<HttpAnswer, CheckError>;

    /// Opens a connection and closes it.
    ///
    /// # Errors
    /// It could not be opened.
    async fn tcp(&self, host: &str, port: u16, timeout: Duration) -> Result<(), CheckError>;

    /// Asks `grpc.health.v1.Health/Check`, without TLS.
    ///
    /// # Errors
    /// There was no answer.
    async fn grpc(
        &self,
        host: &str,
        port: u16,
        service: &str,
        timeout: Duration,
    ) -> Result<GrpcHealth, CheckError>;
}

/// A complete answer to a GET.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Status code of the last answer.
    pub status: u16,
    /// Its body, 10 KiB at most.
    pub body: Vec<u8>,
    /// Where it redirects to, if that is another host.
    pub other_host: Option<String>,
}

/// What the health service said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrpcHealth {
    /// `SERVING`.
    Serving,
    /// Any other status, by name.
    NotServing(String),
    /// The server has no health service.
    Unimplemented,
    /// The server refused to say, with its code and message.
    Refused(String),
}

/// Why there was no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// It took longer than the timeout.
    #[error("timeout after {0:?}")]
    TimedOut(Duration),
    /// A TLS request was answered in plain HTTP.
    #[error("server gave HTTP response to HTTPS client")]
    PlainHttp,
    /// Anything else: refused, reset, no route, not HTTP.
    #[error("{0}")]
    Failed(String),
}
