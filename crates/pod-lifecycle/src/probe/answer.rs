//! Responses of containers to probe attempts and hooks.

use std::time::Duration;

/// A complete response to a GET request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Status code of the last response.
    pub status: u16,
    /// Its body, at most [`super::MAX_OUTPUT_BYTES`].
    pub body: Vec<u8>,
    /// Redirect target, if it is another host.
    pub other_host: Option<String>,
}

/// Result of a gRPC health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrpcHealth {
    /// `SERVING`.
    Serving,
    /// Any other status, by name.
    NotServing(String),
    /// The server has no health service; its message.
    Unimplemented(String),
    /// The RPC failed: `rpc error: code = NotFound desc = unknown service`.
    Refused(String),
}

/// Error of a check without a response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// No response within the timeout.
    #[error("timeout after {0:?}")]
    TimedOut(Duration),
    /// No connection within the timeout.
    #[error("no connection within {0:?}")]
    ConnectTimedOut(Duration),
    /// Plain HTTP response to a TLS request.
    #[error("server gave HTTP response to HTTPS client")]
    PlainHttp,
    /// HTTP response with an incomplete body.
    #[error("body: {0}")]
    Body(String),
    /// The redirected request failed: the whole text, with the URL.
    #[error("{0}")]
    Redirected(String),
    /// The node has no resources for the request. Unlike upstream, it does not count as a failure.
    #[error("{0}")]
    Node(String),
    /// Other error: refused, reset, no route, not HTTP.
    #[error("{0}")]
    Failed(String),
}

/// Error of a command without an exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecFailure {
    /// Killed after the timeout.
    TimedOut,
    /// The runtime could not run it.
    Failed(String),
}
