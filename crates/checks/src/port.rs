//! The port: what can be asked of a container over the network.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use windlass_pod_lifecycle::http_target::HttpTarget;
use windlass_pod_lifecycle::probe::{CheckError, GrpcHealth, HttpAnswer};

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
