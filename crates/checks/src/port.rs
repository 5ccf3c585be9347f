//! The port of network checks.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use windlass_pod_lifecycle::http_target::HttpTarget;
use windlass_pod_lifecycle::probe::{CheckError, GrpcHealth, HttpAnswer};

/// Requests to containers, each on its own connection.
#[async_trait]
pub trait Checks: Send + Sync + Debug + 'static {
    /// Sends a GET request. Follows up to 10 redirects on the same host; a redirect to another host
    /// is the response.
    ///
    /// # Errors
    /// Fails without a complete response.
    async fn http(
        &self,
        target: &HttpTarget,
        timeout: Option<Duration>,
    ) -> Result<HttpAnswer, CheckError>;

    /// Opens a connection and closes it.
    ///
    /// # Errors
    /// Fails if the connection cannot be opened.
    async fn tcp(&self, host: &str, port: u16, timeout: Duration) -> Result<(), CheckError>;

    /// Calls `grpc.health.v1.Health/Check` without TLS.
    ///
    /// # Errors
    /// Fails without a response.
    async fn grpc(
        &self,
        host: &str,
        port: u16,
        service: &str,
        timeout: Duration,
    ) -> Result<GrpcHealth, CheckError>;
}
