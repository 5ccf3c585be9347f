//! The port over real sockets.

use std::time::Duration;

use async_trait::async_trait;
use tokio::net::TcpStream;
use windlass_core::http_target::HttpTarget;

use crate::port::Checks;
use crate::{CheckError, GrpcHealth, HttpAnswer};

/// Requests over the node's network.
#[derive(Clone, Debug, Default)]
pub struct NetChecks;

#[async_trait]
impl Checks for NetChecks {
    async fn http(&self, _: &HttpTarget, _: Option<Duration>) -> Result<HttpAnswer, CheckError> {
        Err(CheckError::Failed("HTTP is not there yet".to_owned()))
    }

    async fn tcp(&self, host: &str, port: u16, timeout: Duration) -> Result<(), CheckError> {
        match tokio::time::timeout(timeout, TcpStream::connect((host, port))).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(CheckError::Failed(error.to_string())),
            Err(_) => Err(CheckError::TimedOut(timeout)),
        }
    }

    async fn grpc(&self, _: &str, _: u16, _: &str, _: Duration) -> Result<GrpcHealth, CheckError> {
        Err(CheckError::Failed("gRPC is not there yet".to_owned()))
    }
}
