//! What containers answer, as the network and the runtime hand it over.

use std::time::Duration;

/// A complete answer to a GET.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Status code of the last answer.
    pub status: u16,
    /// Its body, [`super::MAX_OUTPUT`] bytes at most.
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
    /// The server has no health service; its message.
    Unimplemented(String),
    /// The server refused to say: `rpc error: code = NotFound desc = unknown service`.
    Refused(String),
}

/// Why there was no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// There was a connection, and no answer within the timeout.
    #[error("timeout after {0:?}")]
    TimedOut(Duration),
    /// There was no connection within the timeout.
    #[error("no connection within {0:?}")]
    ConnectTimedOut(Duration),
    /// A TLS request was answered in plain HTTP.
    #[error("server gave HTTP response to HTTPS client")]
    PlainHttp,
    /// The head of an HTTP answer came, its body did not.
    #[error("body: {0}")]
    Body(String),
    /// What a redirect led to failed: the whole text, with the URL.
    #[error("{0}")]
    Redirected(String),
    /// The node itself could not ask: it has no file, no memory, no thread left. That says nothing
    /// about the container, although upstream holds it against it.
    #[error("{0}")]
    Node(String),
    /// Anything else: refused, reset, no route, not HTTP.
    #[error("{0}")]
    Failed(String),
}

/// Why a command has no exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecFailure {
    /// It ran longer than the timeout and was killed.
    TimedOut,
    /// The runtime could not run it.
    Failed(String),
}
